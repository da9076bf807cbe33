"""Where rows come from: Parquet files on any file system, or a table in memory, read row group by row group."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.errors import SourceError, UnknownColumn
from learners.passes.files import (
    Path,
    SourceFile,
    common_schema,
    expanded,
    file_identity,
    filesystem_of,
    one_line,
    read_footer,
    type_family,
)

__all__ = ["Condition", "Fragment", "Mask", "Source", "SourceFile", "file_identity", "type_family"]

BATCH_ROWS = 65_536


@dataclass(frozen=True)
class Fragment:
    """A piece of work: one row group, or a slice of a table in memory."""

    file: int
    row_group: int
    n_rows: int


Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Condition(Protocol):
    """What rows must fulfil to be read."""

    @property
    def text(self) -> str:
        """The condition in words; equal words mean equal rows."""

    @property
    def columns(self) -> Sequence[str]:
        """Columns that the condition reads."""

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """(n_rows,) bool; `rows` begin at row `offset` of the fragment, of which none is missing."""

    def implies(self, text: str) -> Condition | None:
        """The condition with that text, if this one implies it."""


class Source:
    """A table that can be walked several times.

    Make one by `Source.open` or `Source.of_table`.

    Attributes
    ----------
    files : tuple of SourceFile
    arrow_schema : pyarrow.Schema
        Of the first file in which each column is not all null.
    n_rows : int
        Of the files: conditions do not change it.
    fragments : tuple of Fragment
        In file order.
    is_identified : bool
        Whether the content can be told by its files: then statistics of it can be stored and found again.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        arrow_schema: pa.Schema,
        filesystem: pafs.FileSystem | None,
        table: pa.Table | None = None,
        metadata: Sequence[pq.FileMetaData] = (),
    ) -> None:
        self.files = tuple(files)
        self.arrow_schema = arrow_schema
        self.n_rows = sum(file.n_rows for file in files)
        self.fragments = tuple(
            Fragment(f, g, n_rows) for f, file in enumerate(files) for g, n_rows in enumerate(file.row_groups) if n_rows
        )
        # Whether the content can be told by its files: then statistics of it can be stored and found again.
        self.is_identified = table is None
        self._filesystem, self._table, self._metadata = filesystem, table, tuple(metadata)
        self._conditions: Mapping[int, Sequence[Condition]] = {}
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
            place, path = (filesystem, uri) if filesystem is not None else filesystem_of(uri)
            if found is not None and not place.equals(found):
                raise SourceError(uri, "is on another file system than the first path; register them separately.")
            found = place
            paths += [entry for entry in expanded(place, path) if entry not in paths]
        assert found is not None
        read = [read_footer(found, path) for path in paths]
        arrow_schema = common_schema([(file.path, metadata.schema.to_arrow_schema()) for file, metadata in read])
        return cls([file for file, _ in read], arrow_schema, found, metadata=[metadata for _, metadata in read])

    @classmethod
    def of_table(cls, table: pa.Table, identity: str = "") -> Source:
        """A table that is in memory already; `identity` is the key under which a store may keep its statistics.

        Raises
        ------
        SourceError
            If two columns have the same name.
        """
        common_schema([("(table)", table.schema)])
        table = table.combine_chunks() if table.num_rows else table
        n_slices = -(-table.num_rows // BATCH_ROWS)
        sizes = tuple(min(BATCH_ROWS, table.num_rows - i * BATCH_ROWS) for i in range(n_slices))
        return cls(
            [SourceFile("(table)", table.nbytes, None, table.num_rows, sizes, identity)], table.schema, None, table
        )

    def carved(self, fragments: Sequence[int]) -> Source:
        """Some fragments, by their positions, with nothing but their files: a source small enough to be sent away."""
        chosen = [self.fragments[index] for index in fragments]
        places = {file: place for place, file in enumerate(dict.fromkeys(fragment.file for fragment in chosen))}
        source = copy(self)
        source.files = tuple(self.files[file] for file in places)
        source._metadata = tuple(self._metadata[file] for file in places) if self._metadata else ()
        source._conditions = {places[file]: own for file, own in self._conditions.items() if file in places}
        source._text = {}
        source.fragments = tuple(replace(fragment, file=places[fragment.file]) for fragment in chosen)
        source.n_rows = sum(fragment.n_rows for fragment in chosen)
        return source

    def thinned(self, max_rows: int) -> Source:
        """Evenly spaced fragments of at most about this many rows together, at least one."""
        step = -(-self.n_rows // max(1, max_rows))
        source = copy(self)
        source.fragments = self.fragments[::step] if step > 1 else self.fragments
        source.n_rows = sum(fragment.n_rows for fragment in source.fragments)
        return source

    def restricted(self, conditions: Mapping[int, Sequence[Condition]]) -> Source:
        """Some files, each with the rows that fulfil all its conditions.

        Parameters
        ----------
        conditions : mapping
            Position of the file in `files` -> its conditions. Their words become part of the file's identity, so
            statistics of a part of the rows can be stored and found again.
        """
        source = self.only(conditions)
        source.files = tuple(
            replace(file, part=tuple(condition.text for condition in conditions[index]))
            if conditions.get(index)
            else file
            for index, file in enumerate(self.files)
        )
        source._conditions = {index: tuple(own) for index, own in conditions.items() if own}
        for own in source._conditions.values():
            for name in [name for condition in own for name in condition.columns]:
                if name not in self.arrow_schema.names:
                    raise UnknownColumn(name, self.arrow_schema.names)
        return source

    def footer_bounds(self, file: int, column: str) -> tuple[Any, Any, int] | None:
        """Least value, greatest value (None without any) and number of nulls of a column.

        None if the footer lacks them, or Python has no such value: a time in nanoseconds, or beyond the year 9999.
        """
        if self._table is not None:
            return None
        metadata = self._metadata[file]
        lows, highs, n_null = [], [], 0
        for g in range(metadata.num_row_groups):
            group = metadata.row_group(g)
            place = next((c for c in range(group.num_columns) if group.column(c).path_in_schema == column), None)
            known = None if place is None else group.column(place).statistics
            if known is None or not known.has_null_count or (not known.has_min_max and known.num_values):
                return None
            n_null += known.null_count
            if known.has_min_max:
                try:
                    lows.append(known.min)
                    highs.append(known.max)
                except (ValueError, OverflowError):
                    return None
        return (min(lows), max(highs), n_null) if lows else (None, None, n_null)

    def column_type(self, file: int, column: str) -> pa.DataType:
        """The type of a column in one file; types of one family may differ from file to file."""
        schema = self.arrow_schema if self._table is not None else self._metadata[file].schema.to_arrow_schema()
        return schema.field(column).type

    def only(self, files: Collection[int]) -> Source:
        """Just the files at these positions of `files`."""
        source = copy(self)
        source.fragments = tuple(fragment for fragment in self.fragments if fragment.file in files)
        source.n_rows = sum(fragment.n_rows for fragment in source.fragments)
        return source

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
        conditions = self._conditions.get(fragment.file, ())
        needed = [name for condition in conditions for name in condition.columns]
        asked = None if columns is None else list(dict.fromkeys([*columns, *needed]))
        offset = 0
        for batch in self._raw(fragment, asked):
            if not conditions:
                yield batch
                continue
            kept = np.ones(batch.num_rows, bool)
            for condition in conditions:
                kept &= condition.mask(batch, self.files[fragment.file], fragment, offset)
            offset += batch.num_rows
            wanted = batch if columns is None else batch.select(list(columns))
            yield wanted if kept.all() else wanted.filter(pa.array(kept))

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
                f"row group {fragment.row_group} cannot be read ({one_line(error)}). Restore the file from its source."
            )
            raise SourceError(file.path, where) from error


def _require_sound(column: pa.Array, name: str, path: str) -> None:
    """Refuse indices beyond their dictionary: a damaged page has them, and reading on would count whatever is in memory."""
    bounds = pc.min_max(column.indices)
    if bounds["min"].is_valid and not 0 <= bounds["min"].as_py() <= bounds["max"].as_py() < len(column.dictionary):
        raise SourceError(path, f"column {name!r} is damaged. Restore the file from its source.")
