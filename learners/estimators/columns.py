"""Columns of a fitted estimator, warnings about other columns, and extraction of single rows."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import numpy as np
import pyarrow as pa

from learners.errors import MOST_NAMED, ColumnWarning, SchemaError, names_with_suggestions
from learners.estimators.table_inputs import is_pandas_frame, is_record
from learners.kernels.arrays import Floats
from learners.models.model import Model
from learners.models.record_classifier import record_classifier
from learners.schema import Attribute, Schema
from learners.schema.encoding.json_records import MARKS
from learners.schema.encoding.unlike_training import (
    UnlikeTraining,
    UnseenValues,
    ValueCodes,
    has_unseen_value,
    nominal_value_codes,
)
from learners.schema.times_and_durations import DICTIONARY

PLAIN = frozenset("iufb")


def issue_column_warning(message: str) -> None:
    """Issue a ColumnWarning at the line that called the estimator."""
    warnings.warn(message, ColumnWarning, stacklevel=_depth())


def _depth() -> int:
    """Return the number of stack frames inside `learners` between the warning and the caller."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("learners."):
        depth, frame = depth + 1, frame.f_back
    return depth


class KnownColumns:
    """Columns that an estimator was fitted to.

    `estimator`: name of its class, for messages.
    `names`: all columns of the table but the target, used or not.
    `is_named`: whether the caller has named them; those of an array are known by their position.
    """

    _value_codes: ValueCodes | None = None  # of the class, as pickles of earlier releases have none

    def __init__(self, estimator: str, model: Model, names: Sequence[str], is_named: bool) -> None:
        self.estimator, self.model, self.names, self.is_named = estimator, model, tuple(names), is_named
        schema = model.schema
        self.attributes = tuple(attribute.name for attribute in schema.attributes)
        left_out = (entry.name for entry in schema.left_out)
        target = () if schema.target is None else (schema.target,)
        self.known = frozenset([*self.names, *self.attributes, *left_out, *target])
        # The columns of the last frame, as pandas holds them, and their names: they were looked at already.
        self.frame_columns: tuple[object, list[str]] = (None, [])
        self._messages: set[str] = set()
        self._passed: tuple[str, ...] = self.names
        self._classify: Callable[[Mapping[str, Any]], Floats] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # What is made again when it is needed: a closure, and an object of pandas.
        return vars(self) | {"_classify": None, "_value_codes": None, "frame_columns": (None, [])}

    def classify(self, record: Mapping[str, Any]) -> Floats:
        """Return the class probabilities of one row, (n_classes,) float64."""
        if self._classify is None:
            self._classify = record_classifier(self.model)
        return self._classify(record)

    def warn_once(self, message: str, about: str = "") -> None:
        """Issue a warning unless the same message, or one about the same, was issued before."""
        if (about or message) not in self._messages:
            self._messages.add(about or message)
            issue_column_warning(message)

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, then warn once where all rows are unlike the training rows."""
        unlike = UnlikeTraining(self.model.schema)
        yield from unlike.watch(batches)
        self._warn_of_unseen(unlike.unseen)
        for message in unlike.later.warnings():
            self.warn_once(message, "later rows")

    def check_values(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Warn once of a column in which no row has a value that training had."""
        if self._value_codes is None:
            self._value_codes = nominal_value_codes(self.model.schema)
        if not records or not has_unseen_value(records[0], self._value_codes):
            return
        unseen = UnseenValues(self.model.schema)
        unseen.add_values(lambda name: (record.get(name) for record in records), self._value_codes)
        self._warn_of_unseen(unseen)

    def _warn_of_unseen(self, unseen: UnseenValues) -> None:
        for name, message in unseen.warnings_by_column().items():
            self.warn_once(message, f"unseen values of {name}")

    def check_record(self, record: Mapping[str, Any]) -> None:
        """Check the columns of a row; some may be absent. Raises SchemaError if the row has none of the model's
        columns.
        """
        if not record.keys() <= self.known:
            if (odd := next((name for name in record if not isinstance(name, str)), None)) is not None:
                known = repr(self.attributes[0]) if self.attributes else "text"
                raise SchemaError(
                    f"A row names its columns as training did, such as {known}, but has the name {odd!r}."
                )
            self._warn_of_unknown([name for name in record if name not in self.known])
        elif record:
            return
        self._require_some(record)

    def check_names(self, names: Sequence[str]) -> None:
        """Check the columns of a table and warn of absent or unknown ones.

        Raises SchemaError if it has none of the model's.
        """
        names = tuple(names)
        if names == self._passed:
            return
        self._require_some(names)
        present = set(names)
        unknown = [name for name in names if name not in self.known]
        absent = [name for name in self.attributes if name not in present]
        if absent:
            self.warn_once(
                f"The data lacks columns of the model: {names_with_suggestions(absent, unknown)}. Predictions are made without them."
            )
        self._warn_of_unknown([name for name in unknown if not get_close_matches(name, absent)])
        self._passed = names

    def _warn_of_unknown(self, unknown: Sequence[str]) -> None:
        if unknown:
            self.warn_once(
                f"Columns that the model does not know are ignored: {names_with_suggestions(unknown, self.attributes)}."
            )

    def _require_some(self, names: Iterable[str]) -> None:
        names = list(names)  # none at all: nothing is known, which is a question like any other
        if self.attributes and names and not any(name in self.attributes for name in names):
            some = ", ".join(self.attributes[:MOST_NAMED]) + (", …" if len(self.attributes) > MOST_NAMED else "")
            raise SchemaError(f"None of the model's columns ({some}) is in the data.")

    def names_by_position(self, n_columns: int, is_named: bool) -> tuple[str, ...] | None:
        """Return names for columns that are matched by position; None if they are matched by name.

        Raises SchemaError if the number of columns differs from training.
        """
        if is_named and self.is_named:
            return None
        if n_columns != len(self.names):
            # In the words of scikit-learn, whose users know them.
            raise SchemaError(
                f"X has {n_columns} features, but {self.estimator} is expecting {len(self.names)} features as input."
            )
        if is_named:
            self.warn_once(
                f"X has feature names, but {self.estimator} was fitted without feature names: columns are taken in order."
            )
        elif self.is_named:
            self.warn_once(
                f"X does not have valid feature names, but {self.estimator} was fitted with feature names: columns are "
                "taken in order."
            )
        return self.names


def model_arrow_schema(schema: Schema, names: Sequence[str]) -> pa.Schema:
    """Return the columns of a model with their training types, as far as the schema records them; the class last.

    `names`: names of all columns except the target, used or not.
    """
    kinds = {attribute.name: attribute for attribute in schema.attributes}
    fields = [pa.field(name, _arrow_type(kinds[name]) if name in kinds else pa.null()) for name in names]
    if schema.target is not None:
        fields.append(pa.field(schema.target, pa.type_for_alias(schema.class_type)))
    return pa.schema(fields)


def _arrow_type(attribute: Attribute) -> pa.DataType:
    name = attribute.arrow_type
    if name.startswith(DICTIONARY):
        name = name.removeprefix(DICTIONARY).partition(", indices=")[0]
    try:
        return pa.type_for_alias(name)
    except ValueError:  # decimal numbers, and what has parameters
        return pa.float64() if attribute.kind == "numeric" else pa.string()


def single_row_record(X: Any, known: KnownColumns) -> Mapping[str, Any] | None:
    """Return the row of a dict, or of a one-row frame, as a mapping from column to raw value; None for other input.

    Raises SchemaError if it has none of the model's columns.
    """
    if isinstance(X, dict):
        if not is_record(X):
            return None
        known.check_record(X)
        return X
    if not known.is_named or not is_pandas_frame(X) or len(X) != 1:
        return None
    index, names = known.frame_columns
    if X.columns is not index:
        names = X.columns.tolist()
        if len(set(names)) < len(names) or not all(name.__class__ is str for name in names):
            return None
        target = known.model.schema.target
        known.check_names([name for name in names if name != target])
        known.frame_columns = (X.columns, names)  # rows of one frame share this object, which never changes
    return dict(zip(names, _values(X), strict=True))


def _values(frame: Any) -> list[Any]:
    """Return the values of a frame's only row, with pandas' missing values as None.

    `_iter_column_arrays`, which pandas itself uses to iterate over columns, takes a third of the time of
    `iloc[0]`.
    """
    arrays = getattr(frame, "_iter_column_arrays", None)
    values = list(map(_first, arrays())) if arrays is not None else frame.iloc[0].tolist()
    return [None if value.__class__.__name__ in MARKS else value for value in values]


def _first(array: Any) -> Any:
    if array.__class__ is np.ndarray and array.dtype.kind in PLAIN:
        return array.item(0)  # as Python has it
    if getattr(array.dtype, "storage", None) == "pyarrow":  # text, in a quarter of the time that pandas takes
        return array.__arrow_array__()[0].as_py()
    return next(iter(array))
