"""Rows that can be read once, stored for repeated passes: in memory, or in a file beyond a limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from learners.errors import SourceError, one_line_error_text
from learners.passes.memory import TemporaryFolder, memory_limit
from learners.passes.sources.source import Source

SHARE = 4  # of the memory limit: the other three parts are for what passes count


def source_from_row_stream(
    arrow_schema: pa.Schema, batches: Iterable[pa.RecordBatch], identity: str, held_bytes: int | None = None
) -> Source:
    """Create a source from rows that can be read once.

    `identity`: the key under which a store may keep statistics of the rows.
    `held_bytes`: more than that goes to a temporary Parquet file, which is removed with the source; by default a quarter of
    the memory limit.
    Raises SourceError if two columns have one name, or the disk does not take the file.
    """
    bound = memory_limit().n_bytes // SHARE if held_bytes is None else held_bytes
    held: list[pa.RecordBatch] = []
    n_bytes = 0
    coming = iter(batches)
    for batch in coming:
        held.append(batch)
        n_bytes += batch.nbytes
        if n_bytes > bound:
            return _written(arrow_schema, chain(held, coming))
    return Source.of_table(pa.Table.from_batches(held, arrow_schema), identity)


def _written(arrow_schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Source:
    folder = TemporaryFolder(memory_limit().directory)
    path = folder.path / "stream.parquet"
    try:
        with pq.ParquetWriter(path, arrow_schema, compression="zstd", compression_level=1) as writer:
            for batch in batches:
                writer.write_batch(batch)
        source = Source.open(str(path))
    except BaseException as error:
        folder.remove()
        if not isinstance(error, OSError | pa.ArrowException):
            raise
        raise SourceError(
            str(path), f"the rows of the stream cannot be kept there ({one_line_error_text(error)})"
        ) from error
    source.is_identified = False
    source.keeps = folder
    return source
