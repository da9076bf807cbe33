"""A sample of rows, drawn during a pass, on which a learner may measure itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from learners.counts.kernels import row_hashes
from learners.schema import Chunk, Schema

MAX_ROWS = 5000


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
        self.hashes = np.empty(0, np.uint64)
        self.rows = np.empty((0, width), schema.code_dtype)
        self.counts = np.empty(0, np.int64)

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
        if self.hashes.size == self.capacity:
            small = np.flatnonzero(hashes <= self.hashes[-1])
        elif rows.n_rows > self.capacity:
            threshold = np.partition(hashes, self.capacity - 1)[self.capacity - 1]
            small = np.flatnonzero(hashes <= threshold)
        else:
            small = np.arange(rows.n_rows)
        if small.size:
            content = np.vstack([rows.x[:, small], rows.y[small].astype(rows.x.dtype)]).T
            self._add(hashes[small], content, np.ones(small.size, np.int64))

    def merge(self, other: HoldOut) -> None:
        """Add the sample of other rows."""
        self.n_rows += other.n_rows
        self._add(other.hashes, other.rows, other.counts)

    def _add(self, hashes: Any, rows: Any, counts: Any) -> None:
        hashes = np.concatenate([self.hashes, hashes])
        rows = np.concatenate([self.rows, rows])
        counts = np.concatenate([self.counts, counts])
        # The content breaks ties of the hash, so that equal rows are neighbours even if others share their hash.
        order = np.argsort(hashes, kind="stable")
        if hashes.size > 1 and np.any(hashes[order][1:] == hashes[order][:-1]):
            order = np.lexsort((*rows.T[::-1], hashes))
        hashes, rows, counts = hashes[order], rows[order], counts[order]
        is_new = np.ones(hashes.size, bool)
        is_new[1:] = (hashes[1:] != hashes[:-1]) | np.any(rows[1:] != rows[:-1], axis=1)
        starts = np.flatnonzero(is_new)
        if starts.size:
            counts = np.add.reduceat(counts, starts)
        kept = starts[: self.capacity]
        self.hashes, self.rows, self.counts = hashes[kept], rows[kept], counts[: kept.size]

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
        copies = -(-self.counts // 10)
        before = np.cumsum(copies) - copies
        copies = np.clip(size - before, 0, copies)
        rows = np.repeat(self.rows, copies, axis=0)
        return Chunk(np.ascontiguousarray(rows[:, :-1].T), np.ascontiguousarray(rows[:, -1].astype(np.uint8)))

    def to_arrow(self) -> pa.Table:
        """One row per sampled row; the number of all rows stands in the metadata."""
        width = self.rows.shape[1]
        table = pa.table(
            {
                "hash": self.hashes,
                "count": self.counts,
                "codes": pa.FixedSizeListArray.from_arrays(pa.array(self.rows.ravel().astype(np.uint16)), width),
                "n_rows": np.full(self.hashes.size, self.n_rows, np.int64),
            }
        )
        return table

    def from_arrow(self, table: pa.Table) -> HoldOut:
        """Read what `to_arrow` wrote."""
        read = self.empty()
        read.hashes, read.counts = table["hash"].to_numpy().copy(), table["count"].to_numpy().copy()
        codes = table["codes"].combine_chunks()
        codes = codes.chunk(0) if isinstance(codes, pa.ChunkedArray) and codes.num_chunks else codes
        flat = codes.flatten().to_numpy(zero_copy_only=False) if len(codes) else np.empty(0)
        read.rows = flat.reshape(-1, self.rows.shape[1]).astype(self.schema.code_dtype)
        read.n_rows = int(table["n_rows"][0].as_py()) if table.num_rows else 0
        return read

    def __eq__(self, other: object) -> bool:
        """Whether the same rows were sampled from as many rows."""
        if not isinstance(other, HoldOut):
            return NotImplemented
        return (
            self.n_rows == other.n_rows
            and np.array_equal(self.hashes, other.hashes)
            and np.array_equal(self.rows, other.rows)
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]
