"""Where rows come from: Parquet files on any file system, or a table in memory, read row group by row group."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.errors import SourceError, UnknownColumn

BATCH_ROWS = 65_536
_MAGIC = b"PAR1"
Path = str | os.PathLike[str]


@dataclass(frozen=True)
class SourceFile:
    """A file and what identifies its content."""

    path: str
    size: int
    mtime_ns: int | None
    n_rows: int
    row_groups: tuple[int, ...]
    footer_sha256: str


@dataclass(frozen=True)
class Fragment:
    """A piece of work: one row group, or a slice of a table in memory."""

    file: int
    row_group: int
    n_rows: int


def type_family(arrow_type: pa.DataType) -> str:
    """Types of one family may differ from file to file (int32 and double, string and dictionary of string)."""
    if pa.types.is_dictionary(arrow_type):
        family = type_family(arrow_type.value_type)
        return family if family in ("text", "bool") else f"dictionary of {family}"  # nominal, unlike its plain form
    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type) or pa.types.is_string_view(arrow_type):
        return "text"
    if pa.types.is_boolean(arrow_type):
        return "bool"
    if arrow_type in (pa.int8(), pa.uint8()):
        return "small integer"
    if pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type):
        return "number"
    if pa.types.is_temporal(arrow_type):
        return "time"
    if pa.types.is_null(arrow_type):
        return "null"
    return f"unsupported ({arrow_type})"


class Source:
    """A table that can be walked several times.

    Make one by `Source.open` or `Source.of_table`.

    Attributes
    ----------
    files : tuple of SourceFile
    arrow_schema : pyarrow.Schema
        Of the first file in which each column is not all null.
    n_rows : int
    fragments : tuple of Fragment
        In file order.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        arrow_schema: pa.Schema,
        filesystem: pafs.FileSystem | None,
        table: pa.Table | None = None,
        metadata: Sequence[pq.FileMetaData] = (),
        keep: Callable[[pa.RecordBatch, Fragment, int], pa.RecordBatch] | None = None,
    ) -> None:
        self.files = tuple(files)
        self.arrow_schema = arrow_schema
        self.n_rows = sum(file.n_rows for file in files)
        self.fragments = tuple(
            Fragment(f, g, n_rows) for f, file in enumerate(files) for g, n_rows in enumerate(file.row_groups) if n_rows
        )
        self._filesystem, self._table, self._metadata, self._keep = filesystem, table, tuple(metadata), keep
        self._text: dict[int, tuple[list[str], set[str]]] = {}

    @classmethod
    def open(cls, uris: Path | Sequence[Path], filesystem: pafs.FileSystem | None = None) -> Source:
        """Find the files and read their footers.

        Parameters
        ----------
        uris : str, path, or sequence of them
            Files, directories (every *.parquet below), globs, or URIs such as s3://bucket/folder.
        filesystem : pyarrow.fs.FileSystem, optional
            On which `uris` are paths; by default it follows from the URI.

        Raises
        ------
        SourceError
            Naming the path: nothing found, not Parquet, or columns that disagree between files.
        """
        wanted = [os.fspath(uris)] if isinstance(uris, str | os.PathLike) else [os.fspath(uri) for uri in uris]
        if not wanted:
            raise SourceError("(no path)", "give at least one file, folder or glob.")
        paths: list[str] = []
        found: pafs.FileSystem | None = filesystem
        for uri in wanted:
            place, path = (filesystem, uri) if filesystem is not None else _filesystem_of(uri)
            if found is not None and not place.equals(found):
                raise SourceError(uri, "is on another file system than the first path; register them separately.")
            found = place
            paths += [entry for entry in _expand(place, path) if entry not in paths]
        assert found is not None
        read = [_read_footer(found, path) for path in paths]
        arrow_schema = _common_schema([(file.path, metadata.schema.to_arrow_schema()) for file, metadata in read])
        return cls([file for file, _ in read], arrow_schema, found, metadata=[metadata for _, metadata in read])

    @classmethod
    def of_table(cls, table: pa.Table, identity: str = "") -> Source:
        """A table that is in memory already; `identity` is the key under which a store may keep its statistics.

        Raises
        ------
        SourceError
            If two columns have the same name.
        """
        _common_schema([("(table)", table.schema)])
        table = table.combine_chunks() if table.num_rows else table
        n_slices = -(-table.num_rows // BATCH_ROWS)
        sizes = tuple(min(BATCH_ROWS, table.num_rows - i * BATCH_ROWS) for i in range(n_slices))
        return cls(
            [SourceFile("(table)", table.nbytes, None, table.num_rows, sizes, identity)], table.schema, None, table
        )

    def filtered(self, keep: Callable[[pa.RecordBatch, Fragment, int], pa.RecordBatch]) -> Source:
        """The same files with `keep(batch, fragment, row offset in the fragment)` applied to every batch.

        `n_rows` stays that of the files: it only serves progress.
        """
        source = Source(self.files, self.arrow_schema, self._filesystem, self._table, self._metadata, keep)
        return source

    @property
    def is_identified(self) -> bool:
        """Whether the content can be told by its files: then statistics of it can be stored and found again."""
        return self._table is None and self._keep is None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """All rows in file order, as record batches of at most 65,536 rows, with the columns of `arrow_schema` in order."""
        for fragment in self.fragments:
            yield from self.read(fragment, columns)

    def read(self, fragment: Fragment, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one fragment.

        Raises
        ------
        UnknownColumn
            If a column is not in the data.
        SourceError
            If the file has vanished, has changed since it was opened, or is damaged.
        """
        for name in columns or ():
            if name not in self.arrow_schema.names:
                raise UnknownColumn(name, self.arrow_schema.names)
        offset = 0
        for batch in self._raw(fragment, columns):
            yield batch if self._keep is None else self._keep(batch, fragment, offset)
            offset += batch.num_rows

    def _text_columns(self, file: int, columns: Sequence[str] | None) -> tuple[list[str], list[str]]:
        """The columns of a file to read as dictionaries, and those of `columns` that then are."""
        if file not in self._text:
            fields = list(self._metadata[file].schema.to_arrow_schema())
            text = [field.name for field in fields if type_family(field.type) == "text"]
            self._text[file] = text, {*text, *(field.name for field in fields if pa.types.is_dictionary(field.type))}
        text, indexed = self._text[file]
        return text, [
            name for name in self.arrow_schema.names if name in indexed and (columns is None or name in columns)
        ]

    def _raw(self, fragment: Fragment, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        if self._table is not None:
            rows = self._table.slice(fragment.row_group * BATCH_ROWS, fragment.n_rows)
            rows = rows if columns is None else rows.select(list(columns))
            if not rows.column_names:
                return
            yield from rows.combine_chunks().to_batches()
            return
        file = self.files[fragment.file]
        assert self._filesystem is not None
        try:
            now = self._filesystem.get_file_info(file.path)
            if now.type != pafs.FileType.File:
                raise SourceError(
                    file.path, "has vanished since the pass began. Put it back, or register the data again."
                )
            if now.size != file.size or (file.mtime_ns is not None and now.mtime_ns != file.mtime_ns):
                raise SourceError(file.path, "has changed since it was opened. Start again to read it as it is now.")
            with self._filesystem.open_input_file(file.path) as stream:
                metadata = self._metadata[fragment.file]
                text, indexed = self._text_columns(fragment.file, columns)
                parquet = pq.ParquetFile(
                    stream, metadata=metadata, read_dictionary=text, page_checksum_verification=True
                )
                # Files may order their columns differently; and to pyarrow, column "a" includes column "a.b".
                wanted = self.arrow_schema.names if columns is None else list(columns)
                n_rows = 0
                for batch in parquet.iter_batches(
                    BATCH_ROWS, row_groups=[fragment.row_group], columns=columns, use_threads=False
                ):
                    n_rows += batch.num_rows
                    for name in indexed:
                        _require_sound(batch.column(name), name, file.path)
                    yield batch if batch.schema.names == wanted else batch.select(wanted)
                if n_rows != fragment.n_rows:
                    raise SourceError(
                        file.path,
                        f"row group {fragment.row_group} holds {n_rows} rows instead of {fragment.n_rows}. "
                        "Restore the file from its source.",
                    )
        except (OSError, pa.ArrowException) as error:
            where = (
                f"row group {fragment.row_group} cannot be read ({_one_line(error)}). Restore the file from its source."
            )
            raise SourceError(file.path, where) from error


def _require_sound(column: pa.Array, name: str, path: str) -> None:
    """Refuse indices beyond their dictionary: a damaged page has them, and reading on would count whatever is in memory."""
    bounds = pc.min_max(column.indices)
    if bounds["min"].is_valid and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < len(column.dictionary):
        raise SourceError(path, f"column {name!r} is damaged. Restore the file from its source.")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def _filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    if "://" not in uri:
        return pafs.LocalFileSystem(), uri
    # A glob is no valid URI everywhere: resolve its fixed part and put the rest back.
    fixed = uri.split("*")[0].rsplit("/", 1)[0] if "*" in uri else uri
    try:
        place, path = pafs.FileSystem.from_uri(fixed)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise SourceError(uri, f"is not a usable URI ({_one_line(error)}).") from error
    return place, path + uri[len(fixed) :]


def _expand(filesystem: pafs.FileSystem, path: str) -> list[str]:
    """The Parquet files that a path, folder or glob names, sorted."""
    try:
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.NotFound and any(mark in path for mark in "*?["):
            base = str(PurePosixPath(path.split("*")[0].split("?")[0].split("[")[0] + "x").parent)
            below = filesystem.get_file_info(pafs.FileSelector(base, recursive=True, allow_not_found=True))
            is_hidden = (".", "_") if not PurePosixPath(path).name.startswith((".", "_")) else ()
            prefix = "" if base not in (".", "") or path.startswith(".") else "./"
            n_parts = len(PurePosixPath(path).parts)
            found = sorted(
                info.path
                for info in below
                if info.type == pafs.FileType.File
                and not info.base_name.startswith(is_hidden)
                and fnmatch(info.path, prefix + path)
                and ("**" in path or len(PurePosixPath(info.path).parts) == n_parts)
            )
            if not found:
                raise SourceError(path, "matches no file.")
            return found
        if info.type == pafs.FileType.Directory:
            below = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
            found = sorted(
                entry.path
                for entry in below
                if entry.type == pafs.FileType.File
                and entry.base_name.endswith((".parquet", ".pq"))
                and not entry.base_name.startswith((".", "_"))
            )
            if not found:
                raise SourceError(path, "is a folder without Parquet files (*.parquet).")
            return found
    except (OSError, pa.ArrowException) as error:
        raise SourceError(path, f"cannot be listed ({_one_line(error)}).") from error
    if info.type != pafs.FileType.File:
        raise SourceError(path, "no such file or folder.")
    return [path]


def _read_footer(filesystem: pafs.FileSystem, path: str) -> tuple[SourceFile, pq.FileMetaData]:
    try:
        info = filesystem.get_file_info(path)
        if info.size < 12:
            raise SourceError(path, "is empty or too short: not a Parquet file.")
        with filesystem.open_input_file(path) as stream:
            stream.seek(info.size - 8)
            length, magic = struct.unpack("<I4s", stream.read(8))
            if magic != _MAGIC or length > info.size - 12:
                raise SourceError(path, "is not a Parquet file, or its end is cut off.")
            stream.seek(info.size - 8 - length)
            footer = stream.read(length)
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + footer + struct.pack("<I4s", length, _MAGIC)))
        metadata.schema.to_arrow_schema()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:  # names of columns may not be UTF-8
        raise SourceError(path, f"cannot be read as Parquet ({_one_line(error)}).") from error
    rows = tuple(metadata.row_group(g).num_rows for g in range(metadata.num_row_groups))
    digest = hashlib.sha256(footer).hexdigest()
    return SourceFile(path, info.size, info.mtime_ns, metadata.num_rows, rows, digest), metadata


def _common_schema(schemas: Sequence[tuple[str, pa.Schema]]) -> pa.Schema:
    """The columns of all files, which must agree in names and type families."""
    _, first = schemas[0]
    if len(set(first.names)) < len(first.names):
        name = next(name for name in first.names if first.names.count(name) > 1)
        raise SourceError(schemas[0][0], f"has two columns named {name!r}. Rename one.")
    fields: dict[str, Any] = {field.name: field for field in first}
    origin = dict.fromkeys(first.names, schemas[0][0])
    for path, schema in schemas[1:]:
        if set(schema.names) != set(first.names):
            name = sorted(set(schema.names) ^ set(first.names))[0]
            absent = path if name not in schema.names else schemas[0][0]
            raise SourceError(absent, f"has no column {name!r}, which other files of the data set have.")
        for field in schema:
            known, new = type_family(fields[field.name].type), type_family(field.type)
            if known == "null":
                fields[field.name], origin[field.name] = field, path
            elif new not in ("null", known):
                raise SourceError(
                    path,
                    f"column {field.name!r} is {field.type} here but {fields[field.name].type} in {origin[field.name]}. "
                    "Make the types agree.",
                )
    return pa.schema([fields[name] for name in first.names])
