"""Counts of the values of nominal columns, in one batch and over many; and limits on the number of classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from learners.errors import SchemaError, columns_setting
from learners.kernels.arrays import Codes, Integers, Uint8s
from learners.schema.nominal_forms import (
    dictionary_encoded_column,
    dictionary_row_indices,
    distinct_values_with_inverse,
    nominal_forms,
    plain_nominal_values,
)
from learners.schema.schema import FEW_CLASSES, MAX_CLASSES, Value

MAX_DISTINCT = 1_048_576
FEW_BYTES = 8
MOST_WAITING = 1 << 16  # values, for a dictionary that counts objects of Python
MANY_TAKEN_BY = "learners nb, tan and kdb"


class ValueTally:
    """Counts of distinct values; above `MAX_DISTINCT` values, only the overflow is recorded.

    The values of many batches are converted to Python objects together, because most occur in each.

    `counts`: to begin with.
    `is_overfull`: whether there were too many.
    """

    def __init__(self, counts: Mapping[Value, int] | None = None, is_overfull: bool = False) -> None:
        self._counts, self._is_overfull = dict(counts or {}), is_overfull
        self._waiting: list[tuple[pa.Array, Integers]] = []
        self._n_waiting = 0
        self._name = ""

    @property
    def counts(self) -> dict[Value, int]:
        """Rows of each value so far. Raises SchemaError if text is not valid UTF-8."""
        self._settle()
        return self._counts

    @property
    def is_overfull(self) -> bool:
        """True if there were too many distinct values."""
        self._settle()
        return self._is_overfull

    @property
    def too_many(self) -> str:
        """Reason why an overfull column cannot be used."""
        return f"more than {MAX_DISTINCT:,} different values"

    def add(self, values: pa.Array, counts: Integers, name: str) -> None:
        """Count rows of a batch: distinct values (n,) and the number of rows of each, which may be 0."""
        if self._is_overfull:
            return
        if self._waiting and values.type != self._waiting[0][0].type:
            self._settle()
        self._waiting.append((values, counts))
        self._n_waiting, self._name = self._n_waiting + len(values), name
        if self._n_waiting > MOST_WAITING:
            self._settle()

    def merge(self, other: ValueTally) -> None:
        """Add the counts of another tally."""
        if self.is_overfull or other.is_overfull:  # in this order: what waits here is counted first
            self._counts, self._is_overfull = {}, True
        elif self.counts:
            self._add(other.counts.items())
        else:
            self._counts = dict(other.counts)

    def subtract(self, other: ValueTally) -> None:
        """Subtract rows that were counted before."""
        if self.is_overfull:
            return
        for value, count in other.counts.items():
            self._counts[value] -= count
        self._counts = {value: count for value, count in self._counts.items() if count}

    def _settle(self) -> None:
        """Count the pending batches."""
        if not self._waiting:
            return
        values, counts = (list(part) for part in zip(*self._waiting, strict=True))
        self._waiting, self._n_waiting = [], 0
        if len(values) == 1:
            distinct, totals = values[0], counts[0]
        else:
            whole = pa.concat_arrays(values).dictionary_encode()
            distinct, totals = whole.dictionary, np.zeros(len(whole.dictionary), np.int64)
            present = np.flatnonzero(whole.indices.is_valid().to_numpy(zero_copy_only=False))
            np.add.at(
                totals,
                whole.indices.to_numpy(zero_copy_only=False)[present].astype(np.int64),
                np.concatenate(counts)[present],
            )
        self._add(zip(category_python_values(distinct, self._name), totals.tolist(), strict=True))

    def _add(self, counts: Iterable[tuple[Value, int]]) -> None:
        own, known = self._counts, self._counts.get
        for value, count in counts:
            if count:
                own[value] = known(value, 0) + count
        if len(own) > MAX_DISTINCT:
            self._counts, self._is_overfull = {}, True


def category_python_values(values: pa.Array, name: str) -> list[Value]:
    """Convert distinct values to Python objects. Raises SchemaError if text is not valid UTF-8."""
    try:
        return list(values.to_pylist())
    except UnicodeDecodeError as error:
        reason = f"Column {name!r} holds text that is not UTF-8 ({error}). Restore the file, or drop the column."
        raise SchemaError(reason, name) from error


def category_value_counts(column: pa.Array, name: str) -> tuple[pa.Array, Integers, int]:
    """Return the distinct values of a nominal column, the rows of each, and the number of missing rows.

    Raises SchemaError if the values have no nominal form, or an index exceeds its dictionary.
    """
    kind = column.type
    if kind in (pa.int8(), pa.uint8()) and not column.null_count:
        values = np.frombuffer(column.buffers()[1], np.int8 if kind == pa.int8() else np.uint8)
        counts = _of_bytes(values[column.offset :][: len(column)].view(np.uint8))
        every = np.arange(256, dtype=np.uint8).view(values.dtype).astype(np.int64)
        return pa.array(every[counts > 0]), counts[counts > 0], 0
    if pa.types.is_boolean(kind):
        return pa.array([False, True]), np.array([column.false_count, column.true_count]), column.null_count
    is_plain = pa.types.is_dictionary(kind) and kind.index_type == pa.int32()
    if is_plain and not column.null_count and not column.dictionary.null_count:
        indices, n_values = column.indices.to_numpy(), len(column.dictionary)
        if indices.size and (indices.min() < 0 or indices.max() >= n_values):
            raise SchemaError(f"Column {name!r} has indices beyond its dictionary.", name)
        return plain_nominal_values(column.dictionary, name), np.bincount(indices, minlength=n_values), 0
    values, index, is_null = distinct_values_with_inverse(column, name)
    return values, np.bincount(index[~is_null], minlength=len(values)), int(is_null.sum())


def _of_bytes(values: Uint8s) -> Integers:
    """Count each byte value, (256,) int64."""
    largest = int(values.max(initial=0))
    if largest >= FEW_BYTES:
        return np.bincount(values, minlength=256)
    # Comparing is a fifteenth of what an increment for each row costs.
    counts = np.zeros(256, np.int64)
    counts[: largest + 1] = [np.count_nonzero(values == byte) for byte in range(largest + 1)]
    return counts


def check_class_count(target: str, n_classes: int, most: int, are_numbers: bool = False) -> None:
    """Refuse a target with more classes than a learner supports.

    `n_classes`: seen so far.
    `most`: `FEW_CLASSES` or `MAX_CLASSES`.
    `are_numbers`: whether the values are whole numbers, so that a user may want to predict a measurement.
    Raises SchemaError.
    """
    if n_classes > most:
        others = "" if most >= MAX_CLASSES else f" Up to {MAX_CLASSES:,} classes take {MANY_TAKEN_BY}."
        raise SchemaError(
            f"The target {target!r} has more than {most:,} different values. {_remedy(are_numbers)}{others}", target
        )


def _remedy(are_numbers: bool) -> str:
    if are_numbers:
        return "Predicting numbers is regression, and fewpass only classifies: cut them into classes, or name a class column (docs/limits.md#what-it-predicts)."
    return "Name a class column, or group the values (docs/limits.md#what-it-predicts)."


def check_rows_per_class(target: str | None, n_classes: int, most: int, n_rows: int, are_numbers: bool = False) -> None:
    """Check as `check_class_count`, and refuse likely identifiers and measurements: many classes with few rows each.

    Raises SchemaError.
    """
    if target is None:
        return
    check_class_count(target, n_classes, most, are_numbers)
    if n_classes > FEW_CLASSES and n_rows < 2 * n_classes:
        raise SchemaError(
            f"The target {target!r} has {n_classes:,} different values in {n_rows:,} rows, fewer than two rows for each. "
            + _remedy(are_numbers),
            target,
        )


def distinct_classes(column: pa.Array, target: str) -> tuple[pa.Array, Codes]:
    """Return the distinct values of a target, and the index of each row's value.

    Raises SchemaError if numbers have fractions, or if a row has no class.
    """
    column = dictionary_encoded_column(column, target)
    values, is_other = nominal_forms(column.dictionary, target)
    if is_other.any() and (pa.types.is_floating(column.dictionary.type) or pa.types.is_decimal(column.dictionary.type)):
        number = column.dictionary[int(np.argmax(is_other))].as_py()
        raise SchemaError(
            f"The target {target!r} holds numbers such as {number}. Predicting numbers is regression, and fewpass only classifies: cut "
            "them into classes (pandas.cut, SQL's CASE), or convert a few distinct numbers to text (docs/limits.md#what-it-predicts).",
            target,
        )
    index, is_null = dictionary_row_indices(
        column, plain_nominal_values(column.dictionary, target) if is_other.any() else values
    )
    if is_null.any():
        remedy = {target: {"null_class": "drop"}}
        raise SchemaError(
            f"The target {target!r} is null in at least {int(is_null.sum()):,} {'row' if is_null.sum() == 1 else 'rows'}. "
            f"Remove such rows, fill in their class, or set what to do with them: {columns_setting(remedy)} leaves them "
            "out; 'unknown' in place of 'drop' makes them a class.",
            target,
            remedy,
        )
    return values, index
