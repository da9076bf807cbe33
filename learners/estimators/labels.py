"""Class labels and weights that are given beside a table."""

from __future__ import annotations

from collections.abc import Collection, Generator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from learners.errors import InvalidArgument, InvalidParameter, SchemaError, one_line_error_text
from learners.estimators.table_inputs import Rows, values_to_arrow_column
from learners.kernels.arrays import Array
from learners.models.model import Model
from learners.passes.column_summaries import ColumnSummaries
from learners.schema.nominal_forms import plain_nominal_values
from learners.schema.overrides import MOST_WEIGHT
from learners.schema.schema import Value


def class_label_column(y: Any, name: str) -> pa.Array | pa.ChunkedArray:
    """Convert class labels to a column.

    Raises InvalidParameter if these are not class labels; SchemaError if they have several types.
    """
    if isinstance(y, pa.Array | pa.ChunkedArray):
        return y
    try:
        array = column_or_1d(_array_of_labels(y), warn=True)
        column = values_to_arrow_column(name, array.tolist())
        known = array[column.is_valid().to_numpy(zero_copy_only=False)]  # the schema refuses nulls
        check_classification_targets(np.array(known.tolist()) if known.dtype == object else known)
    except SchemaError:
        raise
    except ValueError as error:  # in the words of scikit-learn, whose users know them
        words = one_line_error_text(error).removesuffix(".")
        if "continuous" in words:
            words += ". fewpass predicts classes: cut numbers into ranges, such as pandas.qcut(y, 4).astype(str)"
        raise InvalidArgument("y", y, because=words) from error
    return column


def text_array(texts: Sequence[str]) -> Array:
    """Return texts as an array, of objects where a text ends in a zero character, which NumPy's own text drops."""
    return np.array(texts, dtype=object if any(text.endswith("\0") for text in texts) else None)


def _array_of_labels(y: Any) -> Array:
    return text_array(y) if isinstance(y, list) and y and all(type(label) is str for label in y) else np.asarray(y)


def append_class_column(rows: Rows, y: Any, target: str | None) -> tuple[Rows, str]:
    """Append the class column to the rows; returns them with its name, taken from y or the target.

    Raises InvalidParameter if the rows have a column of that name.
    """
    own = getattr(y, "name", None)  # that the classes bring along, as those of a pandas Series do
    name = own if isinstance(own, str) and own else target or "class"
    if name in rows.arrow_schema.names:
        raise InvalidParameter(
            "target", name, because="X already has a column of that name: choose another name for the classes"
        )
    return rows.with_column(name, class_label_column(y, name)), name


def sample_weight_counts(sample_weight: Any) -> pa.Array:
    """Convert weights to the number of times that each row counts, int64.

    `sample_weight`: (n,) array-like of whole numbers.
    Raises InvalidParameter if one is negative or a fraction: the models are made of counts, and a part of a row cannot be
    counted.
    """
    try:
        weights = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument("sample_weight", sample_weight, "one number for each row") from None
    if weights.ndim != 1:
        raise InvalidParameter("sample_weight", f"{weights.ndim}-dimensional", "one number for each row")
    is_count = (weights >= 0) & (weights == np.floor(weights)) & (weights <= MOST_WEIGHT)
    if not is_count.all():
        row = int(np.argmin(is_count))
        raise InvalidParameter(
            "sample_weight",
            float(weights[row]),
            because=f"the weight of row {row} must be a whole number from 0 to {MOST_WEIGHT:,}, because it is the number of times the row counts. To use fractions, multiply all weights and round them",
        )
    if not weights.any():
        raise InvalidParameter(
            "sample_weight", "zeros", because="all weights are zero, so there is no row to learn from"
        )
    return pa.array(weights.astype(np.int64))


def weighted_accuracy(predicted: Any, y: Any, sample_weight: Any) -> float:
    """Return the share of correct predictions. Raises InvalidParameter."""
    from sklearn.metrics import accuracy_score

    shape = np.shape(y)[:1] if not isinstance(y, pa.Array | pa.ChunkedArray) else (len(y),)
    if not shape:
        raise InvalidArgument("y", y, f"a list of the {len(predicted):,} rows' classes")
    if shape != predicted.shape:
        raise InvalidArgument("y", y, has=f"{shape[0]:,} classes, but X has {len(predicted):,} rows")
    column = class_label_column(y, "class")
    n_missing = column.null_count
    if n_missing:
        raise InvalidArgument("y", y, because=f"{n_missing:,} classes are missing: leave these rows out")
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        y = plain_nominal_values(column, "class").to_numpy(
            zero_copy_only=False
        )  # times, say, are classes by their text
    try:
        return float(accuracy_score(y, predicted, sample_weight=sample_weight))
    except (TypeError, ValueError) as error:  # in the words of scikit-learn, whose users know them
        raise InvalidArgument("y", y, because=one_line_error_text(error).removesuffix(".")) from error


def unused_column_name(name: str, names: Collection[str]) -> str:
    """Return the name, extended by underscores until no column has it."""
    while name in names:
        name += "_"
    return name


def declared_class_labels(classes: Any) -> list[Value]:
    """Convert declared classes to schema values.

    Raises InvalidParameter if these are not classes; SchemaError if they have several types.
    """
    labels: Sequence[Any] = np.asarray(classes).ravel().tolist()
    if not all(isinstance(name, str | bool | int | float) for name in labels):
        raise InvalidArgument("classes", classes, "a list of classes")
    plain: list[Value] = [int(name) if isinstance(name, float) and name.is_integer() else name for name in labels]
    values_to_arrow_column("classes", plain)
    return list(dict.fromkeys(plain))


def passes_with_declared_classes(
    passes: Generator[Any, Any, Model], classes: Sequence[Value]
) -> Generator[Any, Any, Model]:
    """Run the passes of a learner with additional classes that may not have occurred yet.

    Raises InvalidParameter if they are of another type than those of the rows.
    """
    answer: Any = None
    while True:
        try:
            request = passes.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = yield request
        if isinstance(answer, ColumnSummaries):
            known = answer.empty()  # what was collected may be stored at this moment: it stays as it is
            known.merge(answer)
            if known.classes and isinstance(known.classes[0], str) is not isinstance(classes[0], str):
                problem = f"the rows have classes such as {known.classes[0]!r}: give classes of that type"
                raise InvalidParameter("classes", list(classes), because=problem)
            known.classes += [name for name in classes if name not in known.classes]
            answer = known
