"""Parquet files: footers first, then one row group after the other."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.errors import SourceError, one_line_error_text
from learners.passes.sources.file_formats import FORMATS, PARQUET, file_format_by_extension
from learners.passes.sources.guarded_files import is_local_filesystem
from learners.passes.sources.source_files import (
    BATCH_ROWS,
    Bounds,
    SourceFile,
    arrow_type_family,
    store_error_reason,
)

_MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
# A readable footer of encrypted columns ends in a signature. Arrow ends the process where it is asked about such a column.
_SIGNATURE_BYTES = 28
_NO_KEYS = "is encrypted, which fewpass cannot read. Write it without encryption."
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
INDEX_BYTES = 4  # of a word in its dictionary
GROUP_COLUMNS, READER_BYTES = 256, 512 << 10
# A file is known by this many of its blocks; one that is no longer is read as a whole.
SAMPLED_BLOCKS, BLOCK_BYTES = 32, 4096
_NOT_PARQUET = "is not a Parquet file, or is truncated."
_NO_END = f"Files of other formats must end in: {', '.join(end for each in FORMATS.values() for end in each.ends)}."


@dataclass(frozen=True)
class ParquetContent:
    """Footer of a Parquet file, and access to its row groups."""

    metadata: pq.FileMetaData

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the file."""
        return self.metadata.schema.to_arrow_schema()

    @property
    def types_sha256(self) -> str:
        """Empty, because the footer holds the types."""
        return ""

    @cached_property
    def _text(self) -> list[str]:
        """Text columns."""
        return [field.name for field in self.arrow_schema if arrow_type_family(field.type) == "text"]

    def _is_delta(self, column: str) -> bool:
        """Return whether a column has delta-encoded pages, which Arrow cannot read as a dictionary."""
        groups = range(self.metadata.num_row_groups)
        return any(
            encoding.startswith("DELTA")
            for leaf in self._leaves[column]
            for group in groups
            for encoding in self.metadata.row_group(group).column(leaf).encodings
        )

    @cached_property
    def _plain_text(self) -> frozenset[str]:
        """Text columns that are dictionary-encoded only after reading."""
        return frozenset(name for name in self._text if self._is_delta(name))

    def bounds(self, column: str) -> Bounds | None:
        """Return the minimum, maximum and number of nulls of a column of timestamps or dates.

        None if the footer lacks them, or the column has another type.
        """
        leaves = self._leaves.get(column, [])
        kind = self._time_type(leaves[0]) if len(leaves) == 1 else None
        if kind is None:
            return None
        groups = [self.metadata.row_group(group).column(leaves[0]) for group in range(self.metadata.num_row_groups)]
        lows, highs, n_null = list[int](), list[int](), 0
        for column_chunk in groups:
            statistics = column_chunk.statistics
            if statistics is None or not statistics.has_null_count:
                return None
            n_null += statistics.null_count
            if statistics.has_min_max:
                lows.append(statistics.min_raw)
                highs.append(statistics.max_raw)
            elif statistics.null_count < column_chunk.num_values:
                return None
        return Bounds(pa.scalar(min(lows, default=None), kind), pa.scalar(max(highs, default=None), kind), n_null)

    def may_equal(self, row_group: int, column: str, values: Sequence[int | str]) -> bool:
        """Return False if the bounds of a column in the footer exclude the given values from a row group.

        Bounds decide for whole numbers in a column of integers and for texts in a column of texts; anything else may be there.
        """
        leaves = self._leaves.get(column, [])
        if len(leaves) != 1:
            return True
        kind = self.arrow_schema.field(column).type
        statistics = self.metadata.row_group(row_group).column(leaves[0]).statistics
        if statistics is None or not statistics.has_min_max:
            return True
        low, high = statistics.min, statistics.max
        numbers = [value for value in values if isinstance(value, int)]
        if pa.types.is_integer(kind) and len(numbers) == len(values):
            return any(low <= value <= high for value in numbers)
        texts = [value.encode() for value in values if isinstance(value, str)]  # the file orders them by their bytes
        if arrow_type_family(kind) == "text" and len(texts) == len(values) and isinstance(low, str):
            return any(low.encode() <= value <= high.encode() for value in texts)
        return True

    def _time_type(self, leaf: int) -> pa.DataType | None:
        """Return the stored type of a column of timestamps or dates, whose unit may differ from Arrow's."""
        column = self.metadata.schema.column(leaf)
        logical = json.loads(column.logical_type.to_json())
        if column.physical_type == "INT32" and logical["Type"] == "Date":
            return pa.date32()
        if column.physical_type == "INT64" and logical["Type"] == "Timestamp" and logical["timeUnit"] in _UNITS:
            kind = self.arrow_schema.field(column.path).type
            return pa.timestamp(_UNITS[logical["timeUnit"]], kind.tz if pa.types.is_timestamp(kind) else None)
        return None

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """Leaf numbers of each column; a list or struct may have several."""
        leaves: dict[str, list[int]] = {name: [] for name in self.arrow_schema.names}
        for place in range(self.metadata.num_columns):
            name = self.metadata.schema.column(place).path
            while name not in leaves:
                name, dot, _ = name.rpartition(".")
                if not dot:
                    raise ValueError(f"Leaf {place} of the file belongs to no column.")
            leaves[name].append(place)
        return leaves

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group. Raises SourceError if a page is damaged."""
        with filesystem.open_input_file(file.path) as stream:
            parquet = pq.ParquetFile(
                stream,
                metadata=self.metadata,
                read_dictionary=[name for name in self._text if name not in self._plain_text],
                pre_buffer=not is_local_filesystem(filesystem),  # fewer and longer reads, for more memory
                page_checksum_verification=True,
            )
            rows = self._read(parquet, row_group, columns)
            for batch in rows:
                yield with_text_as_dictionaries(batch, self._plain_text) if self._plain_text else batch

    def _read(self, parquet: pq.ParquetFile, row_group: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group: all columns at once, or groups of columns one after the other if there are
        many.

        A column reader takes about half a megabyte until the last row is read, however few the rows are. So thousands
        of columns are read about a hundred at a time if all their rows take less than that.
        """

        def rows_of(names: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
            return parquet.iter_batches(BATCH_ROWS, row_groups=[row_group], columns=names, use_threads=False)

        names = self.arrow_schema.names if columns is None else list(columns)
        if len(names) <= GROUP_COLUMNS or not self._is_short(row_group, names):
            yield from rows_of(columns)
            return
        groups = [names[first : first + GROUP_COLUMNS] for first in range(0, len(names), GROUP_COLUMNS)]
        tables = [pa.Table.from_batches(rows_of(group)).select(group) for group in groups]
        whole = pa.Table.from_arrays(
            [column for table in tables for column in table.columns],
            schema=pa.schema([field for table in tables for field in table.schema]),
        )
        del tables
        yield from whole.to_batches(BATCH_ROWS)

    def _is_short(self, row_group: int, names: Sequence[str]) -> bool:
        """Return whether all rows of these columns, with text as dictionary indices, take less memory than the column
        readers and have fixed-size values.
        """
        kinds = (self.arrow_schema.field(name).type for name in names)
        row_bytes = sum(INDEX_BYTES if arrow_type_family(kind) == "text" else _bytes_of(kind) for kind in kinds)
        n_rows = self.metadata.row_group(row_group).num_rows
        is_short = n_rows <= BATCH_ROWS or n_rows * row_bytes <= len(names) * READER_BYTES
        return is_short and math.isfinite(row_bytes)


def with_text_as_dictionaries(batch: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    """Dictionary-encode some columns of a batch, as all text is read."""
    columns = [
        column.dictionary_encode() if name in names and not pa.types.is_dictionary(column.type) else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _bytes_of(kind: pa.DataType) -> float:
    """Return the bytes per value; infinite for variable-size types."""
    if pa.types.is_dictionary(kind):
        return INDEX_BYTES
    if pa.types.is_null(kind):
        return 0
    try:
        return kind.bit_width / 8
    except ValueError:
        return math.inf


def read_parquet_footer(filesystem: pafs.FileSystem, path: str) -> SourceFile:
    """Read a file's footer. Raises SourceError if it is not a Parquet file, or is damaged."""
    try:
        info = filesystem.get_file_info(path)
        size = require_file_size(path, info)
        if size < 12:
            raise SourceError(path, "is empty or too short: not a Parquet file.")
        with filesystem.open_input_file(path) as stream:
            stream.seek(size - 8)
            length, magic = struct.unpack("<I4s", stream.read(8))
            if magic == _ENCRYPTED:
                raise SourceError(path, _NO_KEYS)
            if magic != _MAGIC or length > size - 12:
                raise SourceError(path, _NOT_PARQUET if file_format_by_extension(path) else f"{_NOT_PARQUET} {_NO_END}")
            stream.seek(size - 8 - length)
            footer = stream.read(length)
            # In object stores the time of change is the server's own: a rewritten file cannot keep it.
            is_dated = not is_local_filesystem(filesystem) and info.mtime_ns is not None
            content = "" if is_dated else sampled_sha256(stream, size - 8 - length)
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer + struct.pack("<I4s", length, _MAGIC)))
        if length - metadata.serialized_size == _SIGNATURE_BYTES:
            raise SourceError(path, _NO_KEYS)
        metadata.schema.to_arrow_schema()
    except (OSError, ValueError, pa.ArrowException, UnicodeDecodeError) as error:  # names of columns may not be UTF-8
        if isinstance(error, SourceError):
            raise
        raise SourceError(
            path, store_error_reason(error) or f"cannot be read as Parquet ({one_line_error_text(error)})."
        ) from error
    rows = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
    if metadata.num_rows != sum(rows) or min(rows, default=0) < 0:
        raise SourceError(
            path,
            f"has {metadata.num_rows:,} rows by its footer, and its row groups have {sum(rows):,}. Restore the file from its source.",
        )
    digest, held = hashlib.sha256(footer).hexdigest(), ParquetContent(metadata)
    return SourceFile(path, size, info.mtime_ns, metadata.num_rows, rows, digest, held, PARQUET, content_sha256=content)


def sampled_sha256(stream: pa.NativeFile, size: int) -> str:
    """Return the SHA-256 of 32 blocks of 4 KiB, evenly spaced over the first `size` bytes; of all bytes if there are no
    more.
    """
    digest = hashlib.sha256()
    last = size - BLOCK_BYTES
    is_small = size <= SAMPLED_BLOCKS * BLOCK_BYTES
    places = [0] if is_small else [last * block // (SAMPLED_BLOCKS - 1) for block in range(SAMPLED_BLOCKS)]
    for place in places:
        stream.seek(place)
        digest.update(stream.read(size if is_small else BLOCK_BYTES))
    return digest.hexdigest()


def require_file_size(path: str, info: pafs.FileInfo) -> int:
    """Return the size of a file. Raises SourceError if it is missing, or its server does not report a size."""
    if info.type == pafs.FileType.NotFound:
        raise SourceError(
            path,
            "does not exist. If it was deleted by hand or by a vacuum, restore it, or read a version that still has it.",
        )
    if info.size is None:
        raise SourceError(
            path,
            "cannot be read in ranges, because its server sends no size or redirects. Use the final address, or download the file.",
        )
    return int(info.size)
