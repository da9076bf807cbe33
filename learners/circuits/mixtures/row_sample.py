"""Rows of least hash with the numbers that they hold, not only the intervals of these."""

from __future__ import annotations

from typing import Self, cast

import numpy as np

from learners.counts.row_samples import RESERVE, DrawnRows
from learners.kernels.arrays import Codes, Integers, Uint64s
from learners.kernels.random import random_bits_at
from learners.schema import Chunk, Schema

# Numbers and codes that the drawn rows may have.
ROOM, MOST_ROWS = 5_000_000, 200_000


class DrawnNumbers(DrawnRows):
    """The distinct rows with the smallest content hashes, the numbers of continuous columns among their content."""

    stage = "drawing rows of numbers"
    stored_name, stored_dtype = "content", np.dtype(np.int64)

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

    def _hashes(self, rows: Chunk) -> Uint64s:
        hashes = super()._hashes(rows)
        for own in _bits(rows):
            hashes = random_bits_at(hashes ^ own.view(np.uint64))
        return hashes

    def _content(self, rows: Chunk, some: Integers) -> Codes:
        return cast("Codes", np.hstack([super()._content(rows, some).astype(np.int64), _bits(rows)[:, some].T]))

    def _chunk(self, content: Codes) -> Chunk:
        n_codes = self.schema.n_attributes + 1
        codes = super()._chunk(content[:, :n_codes].astype(self.schema.code_dtype))
        return Chunk(codes.x, codes.y, np.ascontiguousarray(content[:, n_codes:].T).view(np.float64))


def _bits(rows: Chunk) -> Integers:
    """(n_continuous, n_rows) int64: the bits of each number, one for NaN and one for zero."""
    if rows.numbers is None:
        return np.empty((0, rows.n_rows), np.int64)
    return np.ascontiguousarray(np.where(np.isnan(rows.numbers), np.nan, rows.numbers + 0.0)).view(np.int64)
