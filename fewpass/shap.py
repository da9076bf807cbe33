"""Shapley values by the shap library; missing columns are summed out exactly, so no background rows are drawn.

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
    """Raised if the shap library is not installed."""

    def __init__(self) -> None:
        super().__init__("Shapley values need the shap library, which is not installed: pip install 'fewpass[shap]'.")


class Mark(Enum):
    """Marker of a hidden value in a row; a null is a value that the model can see."""

    HIDDEN = "hidden"


class MissingColumns:
    """A shap masker that hides values by omitting their columns, which `Probabilities` supports.

    Parameters
    ----------
    model : classifier
    """

    def __init__(self, model: Any) -> None:
        self.columns = model._known()
        self.feature_names = list(self.columns.names)
        self.shape = (1, len(self.feature_names))

    def in_order(self, rows: Any) -> Any:
        """Reorder the columns of a table by name, since shap goes by position; missing columns are hidden.

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
        """Return the row with hidden values marked, (1, n) object."""
        seen = np.array(row, object)
        seen[~np.asarray(mask, bool)] = Mark.HIDDEN
        return (seen[np.newaxis],)


class Probabilities:
    """Class probabilities as a function of rows with hidden values.

    Parameters
    ----------
    model : classifier
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.columns = model._known().names

    def __call__(self, rows: Any) -> Floats:
        """Return P(class | visible values of the row), (n_rows, n_classes) float64."""
        values = np.asarray(rows, object)
        records = [
            {name: value for name, value in zip(self.columns, row, strict=True) if value is not Mark.HIDDEN}
            for row in values.tolist()
        ]
        answers: Floats = self.model.predict_proba(records)
        return answers


def explainer(model: Any, **more: Any) -> Any:
    """Return a `shap.Explainer` of a classifier; call it with rows. Its outputs are the classes in the order of
    `classes_`.

    `model.explain(X)` computes contributions without shap, and faster.

    Parameters
    ----------
    model : classifier
    **more
        Passed on, such as `algorithm="exact"` or `link=shap.links.logit`.

    Raises
    ------
    ShapMissing
    LearnerError
        If it is not a fewpass estimator.
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
        """The explainer chosen by shap, for tables with columns in any order."""

        def __call__(self, rows: Any, *args: Any, **more: Any) -> Any:
            return super().__call__(masker.in_order(rows), *args, **more)

    of_shap.__class__ = ByName  # as shap does itself when it chooses
    return of_shap
