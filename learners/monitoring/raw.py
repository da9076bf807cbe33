"""Rows as they came, for the few values of which a code does not say enough: is it absent, null, unseen, out of range?"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from learners.errors import LearnerError
from learners.kernels.arrays import Codes, Floats, Integers, Mask
from learners.monitoring.count_layout import STATUSES
from learners.schema.encoding.batches import BatchEncoder
from learners.schema.encoding.encode import numbers
from learners.schema.encoding.json_records import number_reader
from learners.schema.schema import Attribute

ABSENT, NULL, UNSEEN, BELOW, ABOVE, COMPARED, LOW_TAIL, HIGH_TAIL = range(len(STATUSES))
_NOTHING = object()


class _PythonRows(ABC):
    """Values of Python, whatever they are kept in."""

    @abstractmethod
    def values(self, attribute: Attribute, rows: Integers) -> list[object]:
        """The values of some rows; a mark where there is none."""

    def presence(self, attribute: Attribute, rows: Integers) -> tuple[Mask, Mask]:
        """Of some rows whether the column is absent, and whether its value is null."""
        values = self.values(attribute, rows)
        is_null = (value is None or (isinstance(value, float) and math.isnan(value)) for value in values)
        is_absent = np.fromiter((value is _NOTHING for value in values), bool, len(values))
        return is_absent, np.fromiter(is_null, bool, len(values))

    def tails(self, attribute: Attribute, rows: Integers) -> tuple[int, int, int, int]:
        """How many of some rows have a number below the least of training, above the greatest, and in its last quantiles."""
        read = number_reader(attribute)
        return _tails(np.array([read(x) for x in self.values(attribute, rows) if x is not _NOTHING]), attribute)


class RecordRows(_PythonRows):
    """Mappings from column to value."""

    def __init__(self, records: Sequence[Mapping[str, object]]) -> None:
        self.records = records

    def values(self, attribute: Attribute, rows: Integers) -> list[object]:
        """The values of some rows; a mark where there is none."""
        name, records = attribute.name, self.records
        return [records[row].get(name, _NOTHING) for row in rows.tolist()]


class ColumnRows(_PythonRows):
    """A mapping from column to the values of all rows."""

    def __init__(self, columns: Mapping[str, Sequence[object]]) -> None:
        self.columns = columns

    def values(self, attribute: Attribute, rows: Integers) -> list[object]:
        """The values of some rows; a mark where the column is absent."""
        if attribute.name not in self.columns:
            return [_NOTHING] * rows.size
        values = self.columns[attribute.name]
        return [values[row] for row in rows.tolist()]


class BatchRows:
    """A record batch or a table."""

    def __init__(self, batch: pa.RecordBatch | pa.Table) -> None:
        self.batch = batch

    @cached_property
    def place(self) -> dict[str, int]:
        """Of each column; made only when rows are counted."""
        return {name: place for place, name in enumerate(self.batch.schema.names)}

    @cached_property
    def whole(self) -> pa.RecordBatch | None:
        """All rows in one piece; None if they do not fit into one."""
        if isinstance(self.batch, pa.RecordBatch):
            return self.batch
        batches = self.batch.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else None

    def taken(self, rows: Integers) -> BatchRows:
        """Some of the rows."""
        return BatchRows(self.batch.take(pa.array(rows)))

    def _column(self, attribute: Attribute, rows: Integers) -> pa.Array:
        column = self.batch.column(self.place[attribute.name])
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        return column if rows.size == len(column) else column.take(pa.array(rows))

    def presence(self, attribute: Attribute, rows: Integers) -> tuple[Mask, Mask]:
        """As of records."""
        if attribute.name not in self.place:
            return np.ones(rows.size, bool), np.zeros(rows.size, bool)
        column = self._column(attribute, rows)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        is_null = column.is_null(nan_is_null=pa.types.is_floating(column.type))
        return np.zeros(rows.size, bool), is_null.to_numpy(zero_copy_only=False)

    def tails(self, attribute: Attribute, rows: Integers) -> tuple[int, int, int, int]:
        """As of records."""
        return _tails(numbers(self._column(attribute, rows), attribute.name, attribute.arrow_type), attribute)


RawRows = RecordRows | ColumnRows | BatchRows  # the rows of a request or a batch before they were encoded


def _tails(x: Floats, attribute: Attribute) -> tuple[int, int, int, int]:
    least, lowest, highest, greatest = attribute.edges
    with np.errstate(invalid="ignore"):
        low, high = x <= lowest, x > highest
    n_low, n_high = int(np.count_nonzero(low)), int(np.count_nonzero(high))
    below = int(np.count_nonzero(x < least)) if n_low else 0
    above = int(np.count_nonzero(x > greatest)) if n_high else 0
    return below, above, n_low, n_high


def status_counts(
    x: Codes,
    raw: RawRows,
    attributes: Sequence[Attribute],
    rows: Integers,
    compared: Integers | None = None,
    encoder: BatchEncoder | None = None,
) -> Integers:
    """How many rows have a value of each status, beside what their codes say.

    `x`, (n_attributes, n_rows) codes.
    `attributes`: whose codes they are.
    `rows`, (m,) int64: the rows to look at, ascending.
    `compared`, (l,) int64: the rows whose numbers are compared with those of training; all unless given.
    `encoder`: of these attributes: it compares the numbers of a whole batch at once.
    Returns (n_attributes, len(STATUSES)) int64.
    """
    found = np.zeros((len(attributes), len(STATUSES)), np.int64)
    compared = rows if compared is None else compared
    own = x[:, rows] if rows.size < x.shape[1] else x
    sizes = np.array([attribute.n_values for attribute in attributes], x.dtype)[:, np.newaxis]
    is_outside = own == sizes
    has_outside = is_outside.any(axis=1)
    is_read = np.zeros(len(attributes), bool)
    if encoder is not None and isinstance(raw, BatchRows) and compared.size == x.shape[1] and raw.whole is not None:
        tails, is_read = encoder.tails(raw.whole)
        first = np.array([attribute.has_missing for attribute in attributes], x.dtype)[:, np.newaxis]
        found[is_read, COMPARED] = ((x >= first) & (x < sizes)).sum(axis=1)[is_read]
        for place, count in zip((BELOW, ABOVE, LOW_TAIL, HIGH_TAIL), tails.T, strict=True):
            found[is_read, place] = count[is_read]
    for i, attribute in enumerate(attributes):
        if has_outside[i]:
            outside = rows[is_outside[i]]
            is_absent, is_null = raw.presence(attribute, outside)
            n_absent, n_null = int(is_absent.sum()), int(is_null.sum())
            found[i, :UNSEEN] = n_absent, n_null
            found[i, UNSEEN] = outside.size - n_absent - n_null
        if attribute.quantiles and not is_read[i]:
            _add_range(found[i], x[i], raw, attribute, compared)
    return found


def _add_range(found: Integers, codes: Codes, raw: RawRows, attribute: Attribute, rows: Integers) -> None:
    """Numbers beyond those of training, and in its outermost quantiles."""
    first = int(attribute.has_missing)
    own = codes[rows] if rows.size < codes.size else codes
    found[COMPARED] = np.count_nonzero((own >= first) & (own < attribute.n_values))
    if found[COMPARED]:
        try:
            below, above, low, high = raw.tails(attribute, rows)
        except LearnerError:  # of no number at all, which has no code either
            found[COMPARED] = 0
            return
        found[BELOW], found[ABOVE], found[LOW_TAIL], found[HIGH_TAIL] = below, above, low, high
