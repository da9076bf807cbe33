"""Shapley values of the shap library for our models, whose answers without a column are exact: nothing is drawn in its place.

>>> import fewpass.shap
>>> explanation = fewpass.shap.explainer(model)(frame)
"""

from __future__ import annotations

import warnings
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from learners.errors import ColumnWarning, LearnerError
from learners.kernels.arrays import Floats, Mask


class ShapMissing(LearnerError, ImportError):
    """The shap library is not installed."""

    def __init__(self) -> None:
        super().__init__("Shapley values need the shap library, which is not installed: pip install 'fewpass[shap]'.")


class Mark(Enum):
    """What stands in a row for a value that the model is not to see; a null says something of its own."""

    HIDDEN = "hidden"


class MissingColumns:
    """A masker of shap: it hides values by leaving their columns out, which `Probabilities` understands.

    Parameters
    ----------
    model : classifier
    """

    def __init__(self, model: Any) -> None:
        self.feature_names = [str(name) for name in model.feature_names_in_]
        self.shape = (1, len(self.feature_names))

    def __call__(self, mask: Mask, row: Any) -> tuple[Any]:
        """(1, n) object: the row with what is to be hidden marked."""
        seen = np.array(row, object)
        seen[~np.asarray(mask, bool)] = Mark.HIDDEN
        return (seen[np.newaxis],)


class Probabilities:
    """A model as a function of rows in which values may be hidden.

    Parameters
    ----------
    model : classifier
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.columns = [str(name) for name in model.feature_names_in_]

    def __call__(self, rows: Any) -> Floats:
        """(n_rows, n_classes) float64: P(class | what is seen of the row)."""
        values = np.asarray(rows, object)
        is_seen = np.frompyfunc(lambda value: value is not Mark.HIDDEN, 1, 1)(values).astype(bool)
        answers = np.empty((len(values), len(self.model.classes_)))
        patterns, which = np.unique(is_seen, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            alike = np.flatnonzero(which.ravel() == number)
            seen = [name for name, is_there in zip(self.columns, pattern, strict=True) if is_there]
            records = pd.DataFrame(values[np.ix_(alike, pattern)], columns=seen).infer_objects()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ColumnWarning)  # that columns are missing is the point
                answers[alike] = self.model.predict_proba(records if seen else [{}] * len(alike))
        return answers


def explainer(model: Any, **more: Any) -> Any:
    """`shap.Explainer` of a classifier; call it with rows. Its outputs are the classes in the order of `classes_`.

    `model.explain(X)` tells contributions without shap, and faster.

    Parameters
    ----------
    model : classifier
    **more
        Passed on, such as `algorithm="exact"` or `link=shap.links.logit`.

    Raises
    ------
    ShapMissing
    """
    try:
        import shap
    except ImportError as error:
        raise ShapMissing from error
    masker = MissingColumns(model)
    return shap.Explainer(Probabilities(model), masker, **({"feature_names": masker.feature_names} | more))
