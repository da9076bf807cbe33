"""Shapley values of the shap library for our models, whose answers without a column are exact: nothing is drawn in its place.

>>> import fewpass.shap
>>> explanation = fewpass.shap.explainer(model)(frame)
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
import pandas as pd

from fewpass.estimators import fitted_of
from learners.errors import LearnerError, NoClass
from learners.estimators.table_inputs import are_records, is_record
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
        self.columns = model._known()
        self.feature_names = list(self.columns.names)
        self.shape = (1, len(self.feature_names))

    def in_order(self, rows: Any) -> Any:
        """A table whose columns have names as shap takes it, which goes by their places; columns that it lacks are hidden.

        Raises
        ------
        SchemaError
            If it has none of the model's columns.
        """
        if is_record(rows) or are_records(rows):
            rows = pd.DataFrame([rows] if is_record(rows) else list(rows))
        rows = rows.to_pandas() if hasattr(rows, "to_pandas") else rows  # of polars and pyarrow
        if not isinstance(rows, pd.DataFrame) or not self.columns.is_named:
            return rows
        self.columns.check_names([str(name) for name in rows.columns if name != self.columns.model.schema.target])
        return rows.reindex(columns=self.feature_names, fill_value=Mark.HIDDEN)

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
        self.columns = model._known().names

    def __call__(self, rows: Any) -> Floats:
        """(n_rows, n_classes) float64: P(class | what is seen of the row)."""
        values = np.asarray(rows, object)
        records = [
            {name: value for name, value in zip(self.columns, row, strict=True) if value is not Mark.HIDDEN}
            for row in values.tolist()
        ]
        answers: Floats = self.model.predict_proba(records)
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
    LearnerError
        If it is no estimator of ours.
    NoClass
        If it has learned no class.
    """
    try:
        import shap
    except ImportError as error:
        raise ShapMissing from error
    if fitted_of(model).model.schema.target is None:
        raise NoClass
    masker = MissingColumns(model)
    of_shap = shap.Explainer(Probabilities(model), masker, **({"feature_names": masker.feature_names} | more))

    class ByName(type(of_shap)):  # type: ignore[misc]
        """The explainer that shap has chosen, for tables whose columns stand in any order."""

        def __call__(self, rows: Any, *args: Any, **more: Any) -> Any:
            return super().__call__(masker.in_order(rows), *args, **more)

    of_shap.__class__ = ByName  # as shap does itself when it chooses
    return of_shap
