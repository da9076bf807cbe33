"""The rows themselves, for the few learners that no statistic can serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from learners.errors import SchemaError
from learners.kernels.arrays import Integers
from learners.passes.cluster import Cluster
from learners.passes.engine import Checkpoints
from learners.passes.row_weights import repeated
from learners.passes.sources.source import Source
from learners.schema import Chunk, Schema
from learners.schema.encoding.encode import Encoder, encode


class Rows:
    """All rows of some sources, encoded; every iteration reads them again, in the same order.

    `cluster`: whose workers may read the rows instead.
    `checkpoints`: where a computation over the rows may keep what it has so far, for a run that was killed and starts
    again.
    `n_rows`: at most; a filtered source has fewer.
    """

    def __init__(
        self,
        schema: Schema,
        sources: Sequence[Source],
        cluster: Cluster | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.schema, self.sources, self.cluster, self.checkpoints = schema, tuple(sources), cluster, checkpoints
        self.n_rows = sum(source.n_rows for source in sources)

    @property
    def folder(self) -> Path | None:
        """Where the computation may keep files."""
        return None if self.checkpoints is None else self.checkpoints.directory

    @property
    def identity(self) -> list[str]:
        """What tells these rows from others: that of each file in turn, and the conditions by which its rows are chosen."""
        return [repr(source.files[fragment.file]) for source in self.sources for fragment in source.fragments]

    def __iter__(self) -> Iterator[Chunk]:
        """Chunk by chunk, with a memory of one chunk. Raises SourceError, SchemaError or UnknownColumn as the data gives reason."""
        for chunk, weights in self.weighted():
            yield from _repeated(chunk, weights)

    def weighted(self) -> Iterator[tuple[Chunk, Integers | None]]:
        """As iterating, but a row that counts more than once comes once, with (n_rows,) int64: how often each counts."""
        encoder = Encoder(self.schema)
        for batch, weights, where in self._batches():
            yield encoder.training_chunk(batch, where), weights

    def with_unseen(self) -> Iterator[Chunk]:
        """As iterating, but values outside the domains get the unseen code instead of being refused.

        Raises SourceError, UnknownColumn or SchemaError, also of a class that the schema does not know.
        """
        for batch, weights, where in self._batches():
            try:
                yield from _repeated(encode(batch, self.schema), weights)
            except SchemaError as error:
                raise SchemaError(f"{where}: {error}", error.column) from error

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, Integers | None, str]]:
        for source in self.sources:
            for fragment in source.fragments:
                for batch, weights in source.read_weighted(fragment, self.schema.columns):
                    if batch.num_rows:
                        yield batch, weights, source.files[fragment.file].path


def _repeated(chunk: Chunk, weights: Integers | None) -> Iterator[Chunk]:
    if weights is None:
        yield chunk
    else:
        yield from map(chunk.rows, repeated(weights))
