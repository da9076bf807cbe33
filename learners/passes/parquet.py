"""Parquet files: footers first, then one row group after the other."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.errors import SourceError, one_line
from learners.memory import memory_limit
from learners.passes.content import BATCH_ROWS, Bounds
from learners.passes.files import SourceFile, type_family
from learners.passes.footers import ColumnChunk, column_chunks
from learners.passes.formats import FORMATS, format_of
from learners.passes.parquet_sizes import Taken, column_sizes

_MAGIC = b"PAR1"
_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
WIDEST = 64  # bytes of a number
INDEX_BYTES = 4  # of a word in its dictionary
GROUP_COLUMNS, READER_BYTES = 256, 512 << 10
# A file is known by this many of its blocks; one that is no longer is read as a whole.
SAMPLED_BLOCKS, BLOCK_BYTES = 32, 4096
_NOT_PARQUET = "is not a Parquet file, or its end is cut off."
_NO_END = f"Of other formats the name must end so: {', '.join(end for ends in FORMATS.values() for end in ends)}."


@dataclass(frozen=True)
class ParquetContent:
    """What the footer of a Parquet file says, and the rows of its row groups.

    Parameters
    ----------
    metadata : pyarrow.parquet.FileMetaData
    footer : bytes
        The same as it is in the file.
    """

    metadata: pq.FileMetaData
    footer: bytes
    kind: ClassVar[str] = "Parquet"

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The columns."""
        return self.metadata.schema.to_arrow_schema()

    @property
    def types_sha256(self) -> str:
        """Nothing: the footer holds the types."""
        return ""

    @cached_property
    def _text(self) -> list[str]:
        """The columns to read as dictionaries."""
        return [field.name for field in self.arrow_schema if type_family(field.type) == "text"]

    def piece(self, row_group: int) -> str:
        """A row group in words."""
        return f"row group {row_group}"

    def bounds(self, column: str) -> Bounds | None:
        """Least and greatest value and number of nulls of a column of timestamps or dates.

        None if the footer lacks them, or the column holds something else.
        """
        leaves = self._leaves.get(column, [])
        kind = self._time_type(leaves[0]) if len(leaves) == 1 else None
        if kind is None:
            return None
        try:
            found = [self._chunks(g)[leaves[0]].integers() for g in range(self.metadata.num_row_groups)]
        except ValueError:  # a damaged footer; whoever reads the rows says so
            return None
        known = [each for each in found if each is not None]
        if len(known) < len(found):
            return None
        n_null = sum(each.n_null for each in known)
        lows = [each.least for each in known if each.least is not None]
        highs = [each.greatest for each in known if each.greatest is not None]
        return Bounds(pa.scalar(min(lows, default=None), kind), pa.scalar(max(highs, default=None), kind), n_null)

    def _time_type(self, leaf: int) -> pa.DataType | None:
        """What the numbers of a column of timestamps or dates count; not always the unit that Arrow gives them."""
        column = self.metadata.schema.column(leaf)
        told = json.loads(column.logical_type.to_json())
        if column.physical_type == "INT32" and told["Type"] == "Date":
            return pa.date32()
        if column.physical_type == "INT64" and told["Type"] == "Timestamp" and told["timeUnit"] in _UNITS:
            kind = self.arrow_schema.field(column.path).type
            return pa.timestamp(_UNITS[told["timeUnit"]], kind.tz if pa.types.is_timestamp(kind) else None)
        return None

    @cached_property
    def _leaves(self) -> dict[str, list[int]]:
        """The numbers of the leaves of each column; a list or a struct may have several."""
        found: dict[str, list[int]] = {name: [] for name in self.arrow_schema.names}
        for place in range(self.metadata.num_columns):
            name = self.metadata.schema.column(place).path
            while name not in found:
                name, dot, _ = name.rpartition(".")
                if not dot:
                    raise ValueError(f"Leaf {place} of the file belongs to no column.")
            found[name].append(place)
        return found

    def taken(self, stream: pa.NativeFile, row_group: int, columns: Sequence[str] | None) -> dict[str, Taken]:
        """What reading each of these columns of a row group takes; what is known is not looked up again.

        Raises
        ------
        ValueError
            If the pages are damaged.
        """
        n_rows = self.metadata.row_group(row_group).num_rows
        size_of = column_sizes(
            self.metadata, self._chunks(row_group), n_rows, stream.read_at, set(self._text), memory_limit().n_bytes
        )
        found: dict[str, Taken] = {}
        for name in self.arrow_schema.names if columns is None else columns:
            if (row_group, name) not in self._taken:
                parts = [size_of(place) for place in self._leaves[name]]
                self._taken[row_group, name] = Taken(
                    sum(part.n_bytes for part in parts), all(part.is_bounded for part in parts)
                )
            found[name] = self._taken[row_group, name]
        return found

    def _chunks(self, row_group: int) -> list[ColumnChunk]:
        found = self._all_chunks
        if len(found) != self.metadata.num_row_groups or len(found[row_group]) != self.metadata.num_columns:
            raise ValueError("The footer has another number of columns than its schema.")
        return found[row_group]

    @cached_property
    def _all_chunks(self) -> list[list[ColumnChunk]]:
        return column_chunks(self.footer)

    @cached_property
    def _taken(self) -> dict[tuple[int, str], Taken]:
        return {}

    def decoded_bytes(self, filesystem: pafs.FileSystem, file: SourceFile, columns: Sequence[str]) -> int | None:
        """The most that reading any row group takes at once; None if the pages do not say.

        Raises
        ------
        SourceError
        """
        most = 0
        try:
            with filesystem.open_input_file(file.path) as stream:
                for row_group in range(self.metadata.num_row_groups):
                    taken = self.taken(stream, row_group, columns).values()
                    if not all(each.is_bounded for each in taken):
                        return None
                    most = max(most, sum(each.n_bytes for each in taken))
        except (OSError, ValueError, pa.ArrowException) as error:
            raise SourceError(file.path, f"its pages are damaged ({one_line(error)}).") from error
        return most

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a row group.

        Raises
        ------
        SourceError
            If a page is damaged.
        """
        with filesystem.open_input_file(file.path) as stream:
            self._require_modest(filesystem, stream, file, row_group, columns)
            parquet = pq.ParquetFile(
                stream,
                metadata=self.metadata,
                read_dictionary=self._text,
                pre_buffer=not isinstance(filesystem, pafs.LocalFileSystem),  # fewer and longer reads, for more memory
                page_checksum_verification=True,
            )
            yield from self._read(parquet, row_group, columns)

    def _read(self, parquet: pq.ParquetFile, row_group: int, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        """Rows of a row group: all columns at a time, or of many columns one group of them after the other.

        Whoever reads a column takes about half a megabyte, however few its rows are, until the last row is read. So thousands of
        columns are read some hundred at a time, where all their rows take less than that.
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
        """Whether all rows of these columns, text as indices of words, take less than their readers, and do not depend on values."""
        kinds = (self.arrow_schema.field(name).type for name in names)
        row_bytes = sum(INDEX_BYTES if type_family(kind) == "text" else _bytes_of(kind) for kind in kinds)
        n_rows = self.metadata.row_group(row_group).num_rows
        is_short = n_rows <= BATCH_ROWS or n_rows * row_bytes <= len(names) * READER_BYTES
        return is_short and math.isfinite(row_bytes)

    def _require_modest(
        self,
        filesystem: pafs.FileSystem,
        stream: pa.NativeFile,
        file: SourceFile,
        row_group: int,
        columns: Sequence[str] | None,
    ) -> None:
        """Refuse a column whose pages take more than the counts of a training may, before any is unpacked."""
        limit = memory_limit().n_bytes
        is_far = not isinstance(filesystem, pafs.LocalFileSystem)  # where each look at a page would take its time
        if is_far and self._most_told(row_group) <= limit:
            return
        for name, taken in self.taken(stream, row_group, columns).items():
            if taken.n_bytes > limit:
                raise SourceError(
                    file.path,
                    f"row group {row_group} takes {taken.n_bytes:,} bytes to read column {name!r}, and at most {limit:,} are "
                    "allowed (FEWPASS_MEMORY, or an eighth of a job's memory_limit). Write the file with smaller pages, drop "
                    "the column, or raise the limit.",
                )

    def _most_told(self, row_group: int) -> float:
        """What the largest column takes by the footer; infinite where the footer does not bound it."""
        most = 0.0
        for place, chunk in enumerate(self._chunks(row_group)):
            kind = self.metadata.schema.column(place)
            if kind.max_repetition_level or kind.length > WIDEST:
                return math.inf
            most = max(most, 2 * chunk.unpacked_bytes + BATCH_ROWS * 2 * WIDEST)
        return most


def _bytes_of(kind: pa.DataType) -> float:
    """Bytes of one value; infinite where they depend on it."""
    if pa.types.is_dictionary(kind):
        return INDEX_BYTES
    if pa.types.is_null(kind):
        return 0
    try:
        return kind.bit_width / 8
    except ValueError:
        return math.inf


def read_footer(filesystem: pafs.FileSystem, path: str) -> tuple[SourceFile, ParquetContent]:
    """What a file's footer says.

    Raises
    ------
    SourceError
        If it is no Parquet file, or is damaged.
    """
    try:
        info = filesystem.get_file_info(path)
        size = file_size(path, info)
        if size < 12:
            raise SourceError(path, "is empty or too short: not a Parquet file.")
        with filesystem.open_input_file(path) as stream:
            stream.seek(size - 8)
            length, magic = struct.unpack("<I4s", stream.read(8))
            if magic != _MAGIC or length > size - 12:
                raise SourceError(path, _NOT_PARQUET if format_of(path) else f"{_NOT_PARQUET} {_NO_END}")
            stream.seek(size - 8 - length)
            footer = stream.read(length)
            content = "" if _cannot_be_backdated(filesystem, info) else sampled_sha256(stream, size - 8 - length)
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer + struct.pack("<I4s", length, _MAGIC)))
        metadata.schema.to_arrow_schema()
    except (OSError, ValueError, pa.ArrowException, UnicodeDecodeError) as error:  # names of columns may not be UTF-8
        if isinstance(error, SourceError):
            raise
        raise SourceError(path, f"cannot be read as Parquet ({one_line(error)}).") from error
    rows = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
    digest = hashlib.sha256(footer).hexdigest()
    file = SourceFile(path, size, info.mtime_ns, metadata.num_rows, rows, digest, content_sha256=content)
    return file, ParquetContent(metadata, footer)


def _cannot_be_backdated(filesystem: pafs.FileSystem, info: pafs.FileInfo) -> bool:
    """Whether the time of change is the server's own, as in object stores: then a rewritten file cannot keep it."""
    return not isinstance(filesystem, pafs.LocalFileSystem) and info.mtime_ns is not None


def sampled_sha256(stream: pa.NativeFile, size: int) -> str:
    """SHA-256 of 32 blocks of 4 KiB, evenly spaced over the first `size` bytes; of all of them if they are no more."""
    digest = hashlib.sha256()
    last = size - BLOCK_BYTES
    is_small = size <= SAMPLED_BLOCKS * BLOCK_BYTES
    places = [0] if is_small else [last * block // (SAMPLED_BLOCKS - 1) for block in range(SAMPLED_BLOCKS)]
    for place in places:
        stream.seek(place)
        digest.update(stream.read(size if is_small else BLOCK_BYTES))
    return digest.hexdigest()


def file_size(path: str, info: pafs.FileInfo) -> int:
    """The size of a file.

    Raises
    ------
    SourceError
        If its server does not tell.
    """
    if info.size is None:
        raise SourceError(
            path,
            "cannot be read by ranges: its server does not send a size, or redirects. Name the new address, or download the file.",
        )
    return int(info.size)
