"""Encoded rows as a statistic wants them: batch by batch, or many batches in one chunk."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from learners.kernels.arrays import Codes, Floats
from learners.passes.sources.content import BATCH_ROWS
from learners.passes.statistic import Statistic, Tabulated
from learners.schema import Chunk
from learners.schema.encoding.encode import Encoder

# Tables beyond the second cache are fetched again for every chunk, which takes longer than counting: 246 pairs of 5.1 M cells
# took 133 ms for 300,000 rows in chunks of 65,536, and 72 ms in one.
MANY_CELLS = 1 << 17
MOST_ROWS, MOST_BYTES = 1 << 18, 24 << 20


class Chunks:
    """Makes chunks of batches.

    `n_rows`: of each chunk but the last; 0 for a chunk of each batch.
    """

    def __init__(self, encoder: Encoder, n_rows: int = 0) -> None:
        self.encoder, self.n_rows = encoder, n_rows
        self._n = 0
        # What is not written to takes no memory.
        schema = encoder.schema
        n_numbers = len(schema.continuous)
        self._x: Codes = np.empty((schema.n_attributes, n_rows), schema.code_dtype)
        self._y: Codes = np.empty(n_rows, schema.code_dtype)
        self._numbers: Floats | None = np.empty((n_numbers, n_rows)) if n_numbers else None

    @classmethod
    def for_statistic(cls, encoder: Encoder, statistic: Statistic) -> Chunks:
        """As many rows at a time as pay: many where they are counted into large tables."""
        if not isinstance(statistic, Tabulated) or statistic.n_cells < MANY_CELLS:
            return cls(encoder)
        schema = encoder.schema
        row_bytes = (1 + schema.n_attributes) * np.dtype(schema.code_dtype).itemsize + 8 * len(schema.continuous)
        n_rows = min(MOST_ROWS, MOST_BYTES // row_bytes)
        return cls(encoder, n_rows if n_rows >= 2 * BATCH_ROWS else 0)

    def add(self, batch: pa.RecordBatch, where: str) -> Iterator[Chunk]:
        """The chunks that a batch of a file makes full, each to be counted before the next is asked for: they share their room.

        Raises SchemaError or UnknownColumn as `Encoder.training_chunk` does.
        """
        if not self.n_rows:
            yield self.encoder.training_chunk(batch, where)
            return
        y, numbers = self.encoder.training_classes(batch, where), self.encoder.numbers(batch)
        done = 0
        while done < batch.num_rows:
            part = batch.slice(done, self.n_rows - self._n)
            self.encoder.training_codes(part, where, self._x, self._n)
            stop = self._n + part.num_rows
            self._y[self._n : stop] = y[done : done + part.num_rows]
            if self._numbers is not None and numbers is not None:
                self._numbers[:, self._n : stop] = numbers[:, done : done + part.num_rows]
            self._n, done = stop, done + part.num_rows
            if stop == self.n_rows:
                yield from self.rest()

    def rest(self) -> Iterator[Chunk]:
        """What has not become a chunk yet, if anything."""
        if not self._n:
            return
        n, self._n = self._n, 0
        numbers = None if self._numbers is None else np.ascontiguousarray(self._numbers[:, :n])
        yield Chunk(np.ascontiguousarray(self._x[:, :n]), self._y[:n], numbers)
