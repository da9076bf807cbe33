"""Counts of served rows: a statistic that adds and subtracts over windows, processes and hours.

Codes do not distinguish absent, null, unseen and out-of-range values; these few are looked up in the raw
rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from learners.classifiers.lookup.look_up_tables import split_chunk_into_blocks
from learners.errors import LearnerError, StatisticMismatch
from learners.kernels.arrays import Codes, Floats, Integers, Mask, Uint64s
from learners.monitoring import kernels
from learners.monitoring.count_layout import REPEAT_CELLS, STATUSES, ColumnGroup, Watched
from learners.passes.statistic import Statistic
from learners.schema import Chunk
from learners.schema.encoding.batches import BatchEncoder
from learners.schema.encoding.encode import attribute_numbers, cached_schema_encoder, encode
from learners.schema.encoding.json_records import json_number_reader
from learners.schema.schema import Attribute

ABSENT, NULL, UNSEEN, BELOW, ABOVE, COMPARED, LOW_TAIL, HIGH_TAIL = range(len(STATUSES))
_NOTHING = object()
COUNTED, SERVED, REQUESTS = range(3)
BLOCK_ROWS = 16_384  # whose codes are counted together


class RecordRows:
    """Rows as mappings from column to value."""

    def __init__(self, records: Sequence[Mapping[str, object]]) -> None:
        self.records = records

    def values(self, name: str, rows: Integers) -> list[object]:
        """Return the values of a column in some rows; `_NOTHING` marks absent values."""
        records = self.records
        return [records[row].get(name, _NOTHING) for row in rows.tolist()]

    def presence(self, attribute: Attribute, rows: Integers) -> tuple[Mask, Mask]:
        """Return, for some rows, whether the column is absent and whether its value is null."""
        values = self.values(attribute.name, rows)
        is_null = (value is None or (isinstance(value, float) and math.isnan(value)) for value in values)
        is_absent = np.fromiter((value is _NOTHING for value in values), bool, len(values))
        return is_absent, np.fromiter(is_null, bool, len(values))

    def tails(self, attribute: Attribute, rows: Integers) -> tuple[int, int, int, int]:
        """Count the numbers below the training minimum, above the maximum, and in the lowest and highest quantiles."""
        read = json_number_reader(attribute)
        return _tails(np.array([read(x) for x in self.values(attribute.name, rows) if x is not _NOTHING]), attribute)


class ColumnRows(RecordRows):
    """Rows as a mapping from column to all its values."""

    def __init__(self, columns: Mapping[str, Sequence[object]]) -> None:
        self.columns = columns

    def values(self, name: str, rows: Integers) -> list[object]:
        """Return the values of a column in some rows; `_NOTHING` marks absent values."""
        if name not in self.columns:
            return [_NOTHING] * rows.size
        values = self.columns[name]
        return [values[row] for row in rows.tolist()]


class BatchRows:
    """Rows of a record batch or a table."""

    def __init__(self, batch: pa.RecordBatch | pa.Table) -> None:
        self.batch = batch

    @cached_property
    def place(self) -> dict[str, int]:
        """Position of each column, computed only when rows are counted."""
        return {name: place for place, name in enumerate(self.batch.schema.names)}

    @cached_property
    def whole(self) -> pa.RecordBatch | None:
        """All rows as one batch; None if they do not fit into one."""
        if isinstance(self.batch, pa.RecordBatch):
            return self.batch
        batches = self.batch.combine_chunks().to_batches()
        return batches[0] if len(batches) == 1 else None

    def taken(self, rows: Integers) -> BatchRows:
        """Select some of the rows."""
        return BatchRows(self.batch.take(pa.array(rows)))

    def _column(self, attribute: Attribute, rows: Integers) -> pa.Array:
        column = self.batch.column(self.place[attribute.name])
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        return column if rows.size == len(column) else column.take(pa.array(rows))

    def presence(self, attribute: Attribute, rows: Integers) -> tuple[Mask, Mask]:
        """Return, for some rows, whether the column is absent and whether its value is null."""
        if attribute.name not in self.place:
            return np.ones(rows.size, bool), np.zeros(rows.size, bool)
        column = self._column(attribute, rows)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        is_null = column.is_null(nan_is_null=pa.types.is_floating(column.type))
        return np.zeros(rows.size, bool), is_null.to_numpy(zero_copy_only=False)

    def tails(self, attribute: Attribute, rows: Integers) -> tuple[int, int, int, int]:
        """Count the numbers below the training minimum, above the maximum, and in the lowest and highest quantiles."""
        return _tails(attribute_numbers(self._column(attribute, rows), attribute), attribute)


RawRows = RecordRows | ColumnRows | BatchRows  # the rows of a request or a batch before they were encoded


def _tails(x: Floats, attribute: Attribute) -> tuple[int, int, int, int]:
    least, lowest, highest, greatest = attribute.edges
    with np.errstate(invalid="ignore"):
        low, high = x <= lowest, x > highest
    n_low, n_high = int(np.count_nonzero(low)), int(np.count_nonzero(high))
    below = int(np.count_nonzero(x < least)) if n_low else 0
    above = int(np.count_nonzero(x > greatest)) if n_high else 0
    return below, above, n_low, n_high


def served_value_status_counts(
    x: Codes,
    raw: RawRows,
    attributes: Sequence[Attribute],
    rows: Integers,
    compared: Integers | None = None,
    encoder: BatchEncoder | None = None,
) -> Integers:
    """Count the rows with a value of each status, which codes alone do not distinguish.

    `x`, (n_attributes, n_rows) codes.
    `attributes`: whose codes they are.
    `rows`, (m,) int64: the rows to look at, ascending.
    `compared`, (l,) int64: the rows whose numbers are compared with those of training; by default all.
    `encoder`: encoder of these attributes, which compares the numbers of a whole batch at once.
    Returns (n_attributes, len(STATUSES)) int64.
    """
    counts = np.zeros((len(attributes), len(STATUSES)), np.int64)
    compared = rows if compared is None else compared
    own = x[:, rows] if rows.size < x.shape[1] else x
    sizes = np.array([attribute.n_values for attribute in attributes], x.dtype)[:, np.newaxis]
    is_outside = own == sizes
    has_outside = is_outside.any(axis=1)
    is_read = np.zeros(len(attributes), bool)
    if encoder is not None and isinstance(raw, BatchRows) and compared.size == x.shape[1] and raw.whole is not None:
        tails, is_read = encoder.tails(raw.whole)
        first = np.array([attribute.first_code for attribute in attributes], x.dtype)[:, np.newaxis]
        counts[is_read, COMPARED] = ((x >= first) & (x < sizes)).sum(axis=1)[is_read]
        for place, count in zip((BELOW, ABOVE, LOW_TAIL, HIGH_TAIL), tails.T, strict=True):
            counts[is_read, place] = count[is_read]
    for i, attribute in enumerate(attributes):
        if has_outside[i]:
            outside = rows[is_outside[i]]
            is_absent, is_null = raw.presence(attribute, outside)
            n_absent, n_null = int(is_absent.sum()), int(is_null.sum())
            counts[i, :UNSEEN] = n_absent, n_null
            counts[i, UNSEEN] = outside.size - n_absent - n_null
        if attribute.quantiles and not is_read[i]:
            _add_range(counts[i], x[i], raw, attribute, compared)
    return counts


def _add_range(counts: Integers, codes: Codes, raw: RawRows, attribute: Attribute, rows: Integers) -> None:
    """Count the numbers outside the training range and in its outermost quantiles."""
    first = attribute.first_code
    own = codes[rows] if rows.size < codes.size else codes
    counts[COMPARED] = np.count_nonzero((own >= first) & (own < attribute.n_values))
    if counts[COMPARED]:
        try:
            below, above, low, high = raw.tails(attribute, rows)
        except LearnerError:  # of no number at all, which has no code either
            counts[COMPARED] = 0
            return
        counts[BELOW], counts[ABOVE], counts[LOW_TAIL], counts[HIGH_TAIL] = below, above, low, high


class ServedRows(NamedTuple):
    """Rows with their predictions."""

    x: Codes  # (n_attributes, n_rows) codes: by the model's own schema
    probabilities: Floats | None  # (n_rows, n_classes) float64, or None
    raw: RawRows | None  # as they came; without them nothing is known of statuses


class ServedCounts(Statistic):
    """Counts of served rows as one vector of integers.

    These are codes in their contexts, statuses, predicted class by confidence, surprise, and repeated rows. Real
    numbers are added in fixed point, so the result does not depend on order or partition, bit for bit.

    `predict_one_in`: where rows come without predictions: predict about one row in this many, chosen by the hash of
    its values. `present`: columns that there are to read; by default all of the model's.
    """

    stage = "counting rows"

    def __init__(self, watched: Watched, predict_one_in: int = 1, present: Sequence[str] | None = None) -> None:
        self.watched, self.predict_one_in, self.present = watched, predict_one_in, present
        self.counts: Integers = np.zeros(watched.n_counts, np.int64)

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return {"statistic": "served counts", "layout": self.watched.fingerprint, "predict_one_in": self.predict_one_in}

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        names = [attribute.name for attribute in self.watched.schema.attributes]
        return names if self.present is None else [name for name in names if name in set(self.present)]

    @property
    def n_rows(self) -> int:
        """Number of counted rows."""
        return int(self.block("rows")[COUNTED])

    def block(self, name: str) -> Integers:
        """Return a view of the counts of a named block."""
        return self.watched.blocks[name].of(self.counts)

    def family(self, i: int) -> Integers:
        """Return the rows with each code of an attribute in each context, (n_contexts, n_values + 1) int64."""
        return self.watched.family(self.counts, i)

    def marginal(self, i: int) -> Integers:
        """Return the rows with each code of an attribute, (n_values + 1,) int64; the last one counts unknown values."""
        return self.family(i).sum(axis=0)

    def empty(self) -> ServedCounts:
        """Return counts of no rows with the same settings."""
        return ServedCounts(self.watched, self.predict_one_in, self.present)

    def update(self, rows: pa.RecordBatch) -> None:
        """Add a record batch and the model's predictions for its rows."""
        chunk = encode(rows, self.watched.schema, with_class=False)
        schema, every = self.watched.schema, np.arange(chunk.n_rows)
        encoder = cached_schema_encoder(schema).inputs
        self.add_statuses(
            served_value_status_counts(chunk.x, BatchRows(rows), schema.attributes, every, encoder=encoder)
        )
        self.add_encoded(chunk)

    def add_encoded(self, chunk: Chunk) -> None:
        """Add the codes of rows and the model's predictions for them; statuses are added separately."""
        for part in split_chunk_into_blocks(chunk, self.watched.schema.n_classes):
            self._add_codes(self.watched.recoded(part.x), self._predict(part))
        self._add_rows(chunk.n_rows, chunk.n_rows, 1, 1)

    @property
    def can_gather(self) -> bool:
        """True if the columns of a row may be read one after the other."""
        return not self.watched.schema.continuous  # whose numbers a prediction needs beside the codes

    def gathering(self, n_rows: int) -> GatheredColumns:
        """Return a collector for the columns of at most `n_rows` rows."""
        return GatheredColumns(self, n_rows)

    def _predict(self, chunk: Chunk) -> Uint64s:
        """Add predictions and surprise of the rows that are selected by hash; returns all hashes."""
        hashes = np.empty(chunk.n_rows, np.uint64)
        kernels.hash_served_rows(chunk.x, hashes)
        if self.predict_one_in > 1:
            chunk = chunk.rows(np.flatnonzero((hashes >> np.uint64(32)) % np.uint64(self.predict_one_in) == 0))
        if self.watched.n_classes and chunk.n_rows:
            self._add_predictions(self.watched.model.predict_proba(chunk))
        self._add_surprise(self.watched.recoded(chunk.x))
        return hashes

    def add(self, rows: ServedRows, n_served: int | None = None, one_in: int = 1, n_requests: int = 1) -> None:
        """Add rows that were served.

        `rows`: the rows counted.
        `n_served`: how many there were, if not all are counted.
        `one_in`: about one in this many is counted.
        """
        n_rows, x = rows.x.shape[1], self.watched.recoded(rows.x)
        hashes = np.empty(n_rows, np.uint64)
        kernels.hash_served_rows(rows.x, hashes)
        self._add_codes(x, hashes)
        if rows.probabilities is not None and self.watched.n_classes:
            self._add_predictions(rows.probabilities)
        self._add_surprise(x)
        self._add_rows(n_rows, n_rows if n_served is None else n_served, n_requests, one_in)

    def add_statuses(self, counts: Integers) -> None:
        """Add the counts returned by `served_value_status_counts`."""
        self.block("statuses")[:] += counts

    def _add_rows(self, n_rows: int, n_served: int, n_requests: int, one_in: int) -> None:
        self.block("rows")[:] += (n_rows, n_served, n_requests)
        rates = self.block("rates")
        rates[min(max(1, one_in).bit_length() - 1, rates.size - 1)] += n_rows

    def _add_codes(self, x: Codes, hashes: Uint64s) -> None:
        kernels.add_served_family_counts(x, self.watched.places, np.empty(x.shape[1], np.int64), self.counts)
        np.add.at(self.block("repeats"), (hashes & np.uint64(REPEAT_CELLS - 1)).astype(np.int64), 1)

    def _add_predictions(self, probabilities: Floats) -> None:
        kernels.add_prediction_counts(np.ascontiguousarray(probabilities), self.block("confidence"), self.block("sums"))
        self.block("predicted")[0] += len(probabilities)

    def _add_surprise(self, x: Codes) -> None:
        member = self.watched.member
        if member is not None and x.shape[1]:
            log_joint = member.log_joint(Chunk(x, None))
            sizes = self.watched.places.sizes
            kernels.add_surprise_counts(log_joint, x, sizes, self.block("surprise"), self.block("surprise sums"))

    def _require_same(self, other: ServedCounts) -> None:
        if other.spec != self.spec:
            raise StatisticMismatch("Counts of different models, or of another release, cannot be combined.")

    def _combine(self, other: ServedCounts, sign: int) -> None:
        self.counts += sign * other.counts

    def to_arrow(self) -> pa.Table:
        """Return the nonzero cells and their counts."""
        cells = np.flatnonzero(self.counts)
        return pa.table({"cell": cells, "count": self.counts[cells]})

    def from_arrow(self, table: pa.Table) -> ServedCounts:
        """Build the counts from the output of `to_arrow`."""
        read = self.empty()
        read.counts[table["cell"].to_numpy()] = table["count"].to_numpy()
        return read

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ServedCounts) and self.spec == other.spec and np.array_equal(self.counts, other.counts)


class GatheredColumns:
    """Codes of rows whose columns are read in groups, so that only a few columns of a wide table are in memory at once.

    `counts`: to which `finish` adds the rows.
    `n_rows`: the most that may come.
    """

    def __init__(self, counts: ServedCounts, n_rows: int) -> None:
        self.counts, schema = counts, counts.watched.schema
        sizes = [min(BLOCK_ROWS, n_rows - start) for start in range(0, n_rows, BLOCK_ROWS)]
        self.blocks = [np.empty((schema.n_attributes, size), schema.code_dtype) for size in sizes]
        self.groups: Sequence[ColumnGroup] = counts.watched.column_groups(tuple(counts.columns))
        self.n_rows = 0

    @property
    def columns(self) -> list[list[str]]:
        """Groups of columns to read together."""
        return [group.names for group in self.groups]

    def add(self, number: int, batch: pa.RecordBatch, start: int) -> None:
        """Add one group of columns, for the rows from `start` on. Raises SchemaError if a column's type does not fit."""
        group = self.groups[number]
        x = group.encoder.codes(batch)
        counts = np.zeros((self.counts.watched.schema.n_attributes, len(STATUSES)), np.int64)
        counts[group.places] = served_value_status_counts(
            x, BatchRows(batch), group.encoder.attributes, np.arange(batch.num_rows), encoder=group.encoder
        )
        self.counts.add_statuses(counts)
        self._place(group.places, x, start)
        self.n_rows = max(self.n_rows, start + batch.num_rows)

    def _place(self, places: Integers, x: Codes, start: int) -> None:
        done, n_rows = 0, x.shape[1]
        while done < n_rows:
            block, first = divmod(start + done, BLOCK_ROWS)
            n = min(n_rows - done, BLOCK_ROWS - first)
            for k, i in enumerate(places.tolist()):
                self.blocks[block][i, first : first + n] = x[k, done : done + n]
            done += n

    def finish(self) -> None:
        """Count the collected rows."""
        for start, block in zip(range(0, self.n_rows, BLOCK_ROWS), self.blocks, strict=False):
            self.counts.add_encoded(Chunk(np.ascontiguousarray(block[:, : self.n_rows - start]), None))
