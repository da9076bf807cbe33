"""The rows themselves, for the few learners that no statistic can serve."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from learners.passes.cluster import Cluster
from learners.passes.source import Source
from learners.schema import Chunk, Schema
from learners.schema.encode import Encoder


class Rows:
    """All rows of some sources, encoded; every iteration reads them again, in the same order.

    Parameters
    ----------
    schema : Schema
    sources : sequence of Source
    cluster : Cluster, optional
        Whose workers may read the rows instead.

    Attributes
    ----------
    n_rows : int
        At most; a filtered source has fewer.
    """

    def __init__(self, schema: Schema, sources: Sequence[Source], cluster: Cluster | None = None) -> None:
        self.schema, self.sources, self.cluster = schema, tuple(sources), cluster
        self.n_rows = sum(source.n_rows for source in sources)

    def __iter__(self) -> Iterator[Chunk]:
        """Chunk by chunk, with a memory of one chunk.

        Raises
        ------
        SourceError, SchemaError, UnknownColumn
            As the data gives reason.
        """
        encoder = Encoder(self.schema)
        for source in self.sources:
            for fragment in source.fragments:
                for batch in source.read(fragment, self.schema.columns):
                    if batch.num_rows:
                        yield encoder.training_chunk(batch, source.files[fragment.file].path)
