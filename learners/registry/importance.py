"""How much each column tells of the class, as the model itself has it: no data are needed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.kernels.arrays import Floats
from learners.models.model import Model
from learners.registry.model_kinds import kind_of


def column_importances(model: Model, names: Sequence[str]) -> Floats:
    """The share of each column in what the columns tell of the class. A column that the model does not use tells nothing.

    In a network an attribute tells I(X_i; Y | parents of X_i), the information that it has of the class where its parents in the
    network are known; what few rows would show by chance is taken off. An ensemble is read by its joint member. Averaged trees and
    circuits tell I(X_i; Y), circuits over `N_DRAWS` rows that they draw themselves; boosted trees the gain of their splits.

    `model`: a classifier.
    `names`: the columns asked about.
    Returns (len(names),) float64: they sum to 1; all 0 where nothing tells anything.
    Raises NoImportances if the model has no classes, or is of another kind.

    References
    ----------
    Miller (1955), Note on the bias of information estimates: the correction by the degrees of freedom.
    """
    information = kind_of(model).importances(model).tolist()
    own = {attribute.name: share for attribute, share in zip(model.schema.attributes, information, strict=True)}
    shares = np.array([own.get(name, 0.0) for name in names])
    return shares / shares.sum() if shares.sum() > 0 else shares
