"""Importance of each column for the class, computed from the model without data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.kernels.arrays import Floats
from learners.models.model import Model
from learners.registry.model_kinds import kind_of


def column_importances(model: Model, names: Sequence[str]) -> Floats:
    """Return the share of each column in the class information of all columns; 0 for columns that the model does not
    use.

    For an attribute of a network this is I(X_i; Y | parents of X_i), with a correction for the bias of few rows.
    An ensemble uses its joint member. Averaged trees and circuits use I(X_i; Y), circuits estimate it from
    `N_DRAWS` rows drawn from the circuit; boosted trees use the gain of their splits.

    `model`: a classifier.
    `names`: the columns asked about.
    Returns (len(names),) float64: they sum to 1; all 0 if no column has information.
    Raises NoImportances if the model has no classes, or is of another kind.

    References
    ----------
    Miller (1955), Note on the bias of information estimates: the correction by the degrees of freedom.
    """
    information = kind_of(model).importances(model).tolist()
    own = {attribute.name: share for attribute, share in zip(model.schema.attributes, information, strict=True)}
    shares = np.array([own.get(name, 0.0) for name in names])
    return shares / shares.sum() if shares.sum() > 0 else shares
