"""A sample of rows, drawn during a pass, on which a learner may measure itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from learners.counts.kernels import row_hashes
from learners.errors import StatisticMismatch
from learners.schema import Chunk, Schema

MAX_ROWS = 5000


class _Sample(NamedTuple):
    """Distinct rows, ascending by hash."""

    hashes: Any  # (m,) uint64
    rows: Any  # (m, n_attributes + 1) codes, the class last
    counts: Any  # (m,) int64


class HoldOut:
    """The distinct rows with the smallest content hashes, and how often each occurred.

    As the hash depends on the content alone, the sample is the same for any order and partition of the rows, and two
    samples merge exactly: a row among the smallest of the whole was among the smallest of every part it was in.

    Parameters
    ----------
    schema : Schema
    capacity : int
        Distinct rows to keep.
    """

    stage = "drawing the hold-out"

    def __init__(self, schema: Schema, capacity: int = MAX_ROWS) -> None:
        self.schema, self.capacity = schema, capacity
        self.n_rows = 0
        width = schema.n_attributes + 1
        self._sample = _Sample(np.empty(0, np.uint64), np.empty((0, width), schema.code_dtype), np.empty(0, np.int64))
        self._pending: list[_Sample] = []
        self._n_pending = 0

    @property
    def spec(self) -> dict[str, Any]:
        """What is collected."""
        return {"statistic": "hold-out", "capacity": self.capacity}

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return self.schema.columns

    def empty(self) -> HoldOut:
        """No rows."""
        return HoldOut(self.schema, self.capacity)

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        hashes = np.empty(rows.n_rows, np.uint64)
        row_hashes(rows.x, rows.y, hashes)
        small = np.flatnonzero(hashes <= self._limit(hashes))
        if small.size:
            content = np.vstack([rows.x[:, small], rows.y[small].astype(rows.x.dtype)]).T
            self._add(_Sample(hashes[small], content, np.ones(small.size, np.int64)))

    def _limit(self, hashes: Any) -> Any:
        """A hash above which no row can be among the smallest."""
        if self._sample.hashes.size == self.capacity:
            return self._sample.hashes[-1]
        rank = 2 * self.capacity
        if hashes.size > rank:
            smallest = np.partition(hashes, rank)[:rank]
            if np.unique(smallest).size >= self.capacity:
                return smallest.max()
        return np.uint64(2**64 - 1)

    def merge(self, other: HoldOut) -> None:
        """Add the sample of other rows."""
        if other.schema != self.schema or other.capacity != self.capacity:
            raise StatisticMismatch("Hold-outs of different schemas or capacities cannot be combined.")
        self.n_rows += other.n_rows
        self._add(other.sample)

    def _add(self, sample: _Sample) -> None:
        # Sorting at every chunk would take longer than counting.
        self._pending.append(sample)
        self._n_pending += sample.hashes.size
        if self._n_pending > self.capacity:
            self._settle()

    @property
    def sample(self) -> _Sample:
        """The sampled rows in the order of their hashes."""
        self._settle()
        return self._sample

    def _settle(self) -> None:
        if not self._pending:
            return
        hashes, rows, counts = (np.concatenate(parts) for parts in zip(self._sample, *self._pending, strict=True))
        self._pending, self._n_pending = [], 0
        order = np.argsort(hashes, kind="stable")
        if np.any(hashes[order][1:] == hashes[order][:-1]):
            # The content breaks ties, so that equal rows are neighbours even if others share their hash.
            order = np.lexsort((*rows.T[::-1], hashes))
        hashes, rows, counts = hashes[order], rows[order], counts[order]
        is_new = np.ones(hashes.size, bool)
        is_new[1:] = (hashes[1:] != hashes[:-1]) | np.any(rows[1:] != rows[:-1], axis=1)
        starts = np.flatnonzero(is_new)
        kept = starts[: self.capacity]
        self._sample = _Sample(hashes[kept], rows[kept], np.add.reduceat(counts, starts)[: kept.size])

    def draw(self) -> Chunk:
        """At most min(n_rows / 10, capacity) rows: of each sampled row a tenth of its occurrences, rounded up.

        A tenth, so that a table with few distinct rows keeps most of each of them for training.

        Returns
        -------
        Chunk
            In hash order; without rows if there are fewer than 10.

        References
        ----------
        Petitjean, Buntine, Webb, Zaidi (2018), section 6.1 (the size of the hold-out).
        """
        size = min(self.n_rows // 10, self.capacity)
        sample = self.sample
        copies = -(-sample.counts // 10)
        before = np.cumsum(copies) - copies
        copies = np.clip(size - before, 0, copies)
        rows = np.repeat(sample.rows, copies, axis=0)
        return Chunk(np.ascontiguousarray(rows[:, :-1].T), np.ascontiguousarray(rows[:, -1].astype(np.uint8)))

    def to_arrow(self) -> pa.Table:
        """One row per sampled row; the number of all rows stands in the metadata."""
        hashes, rows, counts = self.sample
        codes = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel().astype(np.uint16)), rows.shape[1])
        n_rows = np.full(hashes.size, self.n_rows, np.int64)
        return pa.table({"hash": hashes, "count": counts, "codes": codes, "n_rows": n_rows})

    def from_arrow(self, table: pa.Table) -> HoldOut:
        """Read what `to_arrow` wrote."""
        read = self.empty()
        codes = table["codes"].combine_chunks()
        codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) and codes.num_chunks else codes
        flat = codes.flatten().to_numpy(zero_copy_only=False) if len(codes) else np.empty(0)
        rows = flat.reshape(-1, self.schema.n_attributes + 1).astype(self.schema.code_dtype)
        read._sample = _Sample(table["hash"].to_numpy().copy(), rows, table["count"].to_numpy().copy())
        read.n_rows = int(table["n_rows"][0].as_py()) if table.num_rows else 0
        return read

    def __eq__(self, other: object) -> bool:
        """Whether the same rows were sampled from as many rows."""
        if not isinstance(other, HoldOut):
            return NotImplemented
        return self.n_rows == other.n_rows and all(
            np.array_equal(ours, theirs) for ours, theirs in zip(self.sample, other.sample, strict=True)
        )
