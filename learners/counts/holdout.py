"""A sample of rows, drawn during a pass, on which a learner may measure itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from learners.counts.kernels import row_hashes
from learners.errors import StatisticMismatch
from learners.schema import Chunk, Schema
from learners.schema.extension import CodeMaps

MAX_ROWS = 5000
# Codes of the distinct rows drawn from: of a narrow table, where rows repeat, more rows.
ROOM = 200_000
# Twice as many are kept as are drawn from, so that rows can be subtracted until half of them are gone.
RESERVE = 2
EVERYTHING = 2**64 - 1


class _Sample(NamedTuple):
    """Distinct rows, ascending by hash."""

    hashes: Any  # (m,) uint64
    rows: Any  # (m, n_attributes + 1) codes, the class last
    counts: Any  # (m,) int64


class HoldOut:
    """The distinct rows with the smallest content hashes, and how often each occurred.

    As the hash depends on the content alone (on names and values, not on codes), the sample is the same for any order
    and partition of the rows and for any larger domain, and two samples merge exactly: a row among the smallest of the
    whole was among the smallest of every part it was in.

    Parameters
    ----------
    schema : Schema
    capacity : int
        Rows to draw at most.
    room : int
        Codes that the distinct rows to draw from may have, where these are more than `capacity`; twice as many are kept.

    Attributes
    ----------
    n_distinct : int
        Distinct rows to draw from.
    limit : int
        Every row with a hash up to this one is in the sample.
    """

    stage = "drawing the hold-out"

    def __init__(self, schema: Schema, capacity: int = MAX_ROWS, room: int = ROOM) -> None:
        self.schema, self.capacity, self.room = schema, capacity, room
        self.n_distinct = max(capacity, room // (schema.n_attributes + 1))
        self.n_rows = 0
        self.limit = EVERYTHING
        width = schema.n_attributes + 1
        self._sample = _Sample(np.empty(0, np.uint64), np.empty((0, width), schema.code_dtype), np.empty(0, np.int64))
        self._pending: list[_Sample] = []
        self._n_pending = 0

    @property
    def spec(self) -> dict[str, Any]:
        """What is collected."""
        return {"statistic": "hold-out", "capacity": self.capacity, "room": self.room, "reserve": RESERVE}

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return self.schema.columns

    def empty(self) -> HoldOut:
        """No rows."""
        return HoldOut(self.schema, self.capacity, self.room)

    def under(self, schema: Schema) -> HoldOut:
        """No rows, by another schema."""
        return HoldOut(schema, self.capacity, self.room)

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        hashes = np.empty(rows.n_rows, np.uint64)
        row_hashes(rows.x, rows.y, self.schema.value_keys, self.schema.class_keys, hashes)
        small = np.flatnonzero(hashes <= self._bound(hashes))
        if small.size:
            content = np.vstack([rows.x[:, small], rows.y[small].astype(rows.x.dtype)]).T
            self._add(_Sample(hashes[small], content, np.ones(small.size, np.int64)))

    def _bound(self, hashes: Any) -> Any:
        """A hash above which no row can be among the smallest."""
        if self.limit < EVERYTHING:
            return np.uint64(self.limit)
        rank = 2 * RESERVE * self.n_distinct
        if hashes.size > rank:
            smallest = np.partition(hashes, rank)[:rank]
            if np.unique(smallest).size > RESERVE * self.n_distinct:
                return smallest.max()
        return np.uint64(EVERYTHING)

    def merge(self, other: HoldOut) -> None:
        """Add the sample of other rows."""
        self._require_same(other)
        self.n_rows += other.n_rows
        sample = other.sample
        self.limit = min(self.limit, other.limit)
        self._add(sample)

    def subtract(self, other: HoldOut) -> None:
        """Take away the sample of rows that were added before.

        What had been crowded out is not known any more: see `is_sufficient`.
        """
        self._require_same(other)
        ours, theirs = self.sample, other.sample
        limit = min(self.limit, other.limit)
        known, gone = (sample.hashes <= np.uint64(limit) for sample in (ours, theirs))
        parts = [_Sample(*(array[known] for array in ours)), _Sample(*(array[gone] for array in theirs))]
        parts[1] = parts[1]._replace(counts=-parts[1].counts)
        left = _distinct(parts)
        if np.any(left.counts < 0):
            raise StatisticMismatch("Rows that were never added cannot be subtracted; these samples are different.")
        self.n_rows -= other.n_rows
        self.limit = limit
        self._sample = _Sample(*(array[left.counts > 0] for array in left))

    @property
    def is_sufficient(self) -> bool:
        """Whether enough rows are known for `draw`."""
        return self.limit == EVERYTHING or self.sample.hashes.size >= self.n_distinct

    def recoded(self, schema: Schema, maps: CodeMaps) -> HoldOut | None:
        """The same rows by another schema; None where values share a code that were apart, as they hash differently."""
        if not all(map(_is_one_to_one, (*maps.attributes, maps.classes))):
            return None
        read = self.under(schema)
        hashes, rows, counts = self.sample
        columns = [
            maps.classes[rows[:, i]] if i == schema.n_attributes else maps.attributes[i][rows[:, i]]
            for i in range(rows.shape[1])
        ]
        content = np.stack(columns, axis=1) if hashes.size else np.empty((0, rows.shape[1]))
        if np.any(content < 0):
            return None
        read._sample = _Sample(hashes, content.astype(schema.code_dtype), counts)
        read.n_rows, read.limit = self.n_rows, self.limit
        return read

    def _require_same(self, other: HoldOut) -> None:
        if other.schema != self.schema or other.spec != self.spec:
            raise StatisticMismatch("Hold-outs of different schemas or capacities cannot be combined.")

    def _add(self, sample: _Sample) -> None:
        # Sorting at every chunk would take longer than counting.
        self._pending.append(sample)
        self._n_pending += sample.hashes.size
        if self._n_pending > RESERVE * self.n_distinct:
            self._settle()

    @property
    def sample(self) -> _Sample:
        """The sampled rows in the order of their hashes."""
        self._settle()
        return self._sample

    def _settle(self) -> None:
        if not self._pending and self._sample.hashes.size <= RESERVE * self.n_distinct:
            return
        whole = _distinct([self._sample, *self._pending])
        self._pending, self._n_pending = [], 0
        known = int(np.searchsorted(whole.hashes, np.uint64(self.limit), side="right"))
        if known > RESERVE * self.n_distinct:
            known = RESERVE * self.n_distinct
            self.limit = int(whole.hashes[known - 1])
        self._sample = _Sample(*(array[:known] for array in whole))

    def draw(self) -> Chunk:
        """min(n_rows / 10, capacity) rows: of the `n_distinct` first distinct rows, in hash order, every so many occurrences one.

        So each occurrence of a sampled row is as likely to be drawn as any other, and of a row that is frequent most stay
        for training.

        Returns
        -------
        Chunk
            In hash order; without rows if there are fewer than 10.

        References
        ----------
        Petitjean, Buntine, Webb, Zaidi (2018), section 6.1 (the size of the hold-out).
        """
        size = min(self.n_rows // 10, self.capacity)
        sample = _Sample(*(array[: self.n_distinct] for array in self.sample))
        # Occurrences lie in a row, of which `size` at equal distances are drawn.
        passed = np.cumsum(sample.counts) * size // max(1, int(sample.counts.sum()))
        rows = np.repeat(sample.rows, np.diff(passed, prepend=0), axis=0)
        return Chunk(np.ascontiguousarray(rows[:, :-1].T), np.ascontiguousarray(rows[:, -1].astype(np.uint8)))

    def to_arrow(self) -> pa.Table:
        """One row per sampled row; the number of all rows stands beside each."""
        hashes, rows, counts = self.sample
        codes = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel().astype(np.uint16)), rows.shape[1])
        n_rows, limit = np.full(hashes.size, self.n_rows, np.int64), np.full(hashes.size, self.limit, np.uint64)
        return pa.table({"hash": hashes, "count": counts, "codes": codes, "n_rows": n_rows, "limit": limit})

    def from_arrow(self, table: pa.Table) -> HoldOut:
        """Read what `to_arrow` wrote."""
        read = self.empty()
        codes = table["codes"].combine_chunks()
        codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) and codes.num_chunks else codes
        flat = codes.flatten().to_numpy(zero_copy_only=False) if len(codes) else np.empty(0)
        rows = flat.reshape(-1, self.schema.n_attributes + 1).astype(self.schema.code_dtype)
        read._sample = _Sample(table["hash"].to_numpy().copy(), rows, table["count"].to_numpy().copy())
        if table.num_rows:
            read.n_rows, read.limit = int(table["n_rows"][0].as_py()), int(table["limit"][0].as_py())
        return read

    def __eq__(self, other: object) -> bool:
        """Whether the same rows were sampled from as many rows."""
        if not isinstance(other, HoldOut):
            return NotImplemented
        same = all(np.array_equal(ours, theirs) for ours, theirs in zip(self.sample, other.sample, strict=True))
        return same and (self.n_rows, self.limit) == (other.n_rows, other.limit)


def _distinct(parts: list[_Sample]) -> _Sample:
    """Distinct rows ascending by hash, with the sums of their counts."""
    hashes, rows, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")
    if np.any(hashes[order][1:] == hashes[order][:-1]):
        # The content breaks ties, so that equal rows are neighbours even if others share their hash.
        order = np.lexsort((*rows.T[::-1], hashes))
    hashes, rows, counts = hashes[order], rows[order], counts[order]
    is_new = np.ones(hashes.size, bool)
    is_new[1:] = (hashes[1:] != hashes[:-1]) | np.any(rows[1:] != rows[:-1], axis=1)
    starts = np.flatnonzero(is_new)
    return _Sample(hashes[starts], rows[starts], np.add.reduceat(counts, starts) if starts.size else counts[:0])


def _is_one_to_one(codes: Any) -> bool:
    kept = codes[codes >= 0]
    return bool(np.unique(kept).size == kept.size)
