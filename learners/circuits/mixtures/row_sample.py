"""Rows of least hash with the numbers that they hold, not only the intervals of these."""

from __future__ import annotations

from typing import Self, cast

import numpy as np
import pyarrow as pa

from learners.counts.kernels import row_hashes
from learners.counts.samples.bottom_k_sample import RESERVE, DrawnRows, Sample
from learners.kernels.arrays import Codes, Integers, Uint64s
from learners.schema import Chunk, Schema

# Numbers and codes that the drawn rows may have.
ROOM, MOST_ROWS = 5_000_000, 200_000


class DrawnNumbers(DrawnRows):
    """The distinct rows with the smallest content hashes, the numbers of continuous columns among their content."""

    stage = "drawing rows of numbers"

    def __init__(self, schema: Schema) -> None:
        width = schema.n_attributes + 1 + len(schema.continuous)
        super().__init__(schema, min(MOST_ROWS, ROOM // width))
        self._sample = self._sample._replace(rows=np.empty((0, width), np.int64))

    @property
    def spec(self) -> dict[str, object]:
        """What is collected."""
        continuous = [self.schema.attributes[i].name for i in self.schema.continuous]
        return {
            "statistic": "drawn rows of numbers",
            "n": self.n_distinct,
            "reserve": RESERVE,
            "continuous": continuous,
        }

    def under(self, schema: Schema) -> Self:
        """No rows, by another schema."""
        return type(self)(schema)

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        hashes = np.empty(rows.n_rows, np.uint64)
        row_hashes(rows.x, rows.y, self.schema.value_keys, self.schema.class_keys, hashes)
        bits = _bits(rows)
        for own in bits:
            hashes = _mixed(hashes ^ own.view(np.uint64))
        small = np.flatnonzero(hashes <= self._bound(hashes))
        if small.size:
            codes = np.vstack([rows.x[:, small], rows.y[small]]).astype(np.int64)
            content = np.ascontiguousarray(np.vstack([codes, bits[:, small]]).T)
            self._add(Sample(hashes[small], cast("Codes", content), np.ones(small.size, np.int64)))

    def occurrences(self, most: int) -> Chunk:
        """The `n_distinct` first distinct rows in the order of their hashes, each as often as it occurred; of more, evenly so many."""
        n_codes = self.schema.n_attributes
        _, rows, counts = self.sample.at(slice(self.n_distinct))
        size = min(most, int(counts.sum()))
        passed = np.cumsum(counts) * size // max(1, int(counts.sum()))
        repeated = np.repeat(rows, np.diff(passed, prepend=0), axis=0)
        x = np.ascontiguousarray(repeated[:, :n_codes].T.astype(self.schema.code_dtype))
        y: Codes = repeated[:, n_codes].astype(self.schema.code_dtype)
        return Chunk(x, y, np.ascontiguousarray(repeated[:, n_codes + 1 :].T).view(np.float64))

    def to_arrow(self) -> pa.Table:
        """One row per sampled row; the number of all rows stands beside each."""
        hashes, rows, counts = self.sample
        content = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
        n_rows, limit = np.full(hashes.size, self.n_rows, np.int64), np.full(hashes.size, self.limit, np.uint64)
        return pa.table({"hash": hashes, "count": counts, "content": content, "n_rows": n_rows, "limit": limit})

    def from_arrow(self, table: pa.Table) -> Self:
        """Read what `to_arrow` wrote."""
        read = self.empty()
        content = table["content"].combine_chunks()
        content = content.chunk(0) if isinstance(content, pa.ChunkedArray) and content.num_chunks else content
        flat = content.flatten().to_numpy(zero_copy_only=False) if len(content) else np.empty(0)
        rows = cast("Codes", flat.reshape(-1, read._sample.rows.shape[1]).astype(np.int64))
        read._sample = Sample(table["hash"].to_numpy().copy(), rows, table["count"].to_numpy().copy())
        if table.num_rows:
            read.n_rows, read.limit = int(table["n_rows"][0].as_py()), int(table["limit"][0].as_py())
        return read


def _bits(rows: Chunk) -> Integers:
    """(n_continuous, n_rows) int64: the bits of each number, one for NaN and one for zero."""
    if rows.numbers is None:
        return np.empty((0, rows.n_rows), np.int64)
    numbers = np.where(np.isnan(rows.numbers), np.nan, rows.numbers + 0.0)
    return np.ascontiguousarray(numbers).view(np.int64)


def _mixed(z: Uint64s) -> Uint64s:
    """SplitMix64's last step."""
    with np.errstate(over="ignore"):
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
