"""Sources: files on any file system, or a table in memory, read in fragments."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Self

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import ALL_AT_ONCE, SourceError, UnknownColumn, columns_setting
from learners.kernels.arrays import Integers, Mask
from learners.passes.sources.file_access import ANYWHERE, FileAccess, Look
from learners.passes.sources.file_formats import PARQUET
from learners.passes.sources.file_opening import (
    align_file_columns,
    common_file_schema,
    dropped_columns,
    open_source_files,
    uri_filesystem,
)
from learners.passes.sources.lake.lake_tables import (
    KnownSnapshot,
    lake_table_changes,
    lake_table_snapshot,
    parse_lake_table_uri,
    refuse_lake_table_files,
)
from learners.passes.sources.lake.snapshots import Snapshot, open_snapshot_files
from learners.passes.sources.mixed_numbers import mixed_number_columns, with_common_numbers
from learners.passes.sources.parquet import ParquetContent
from learners.passes.sources.path_expansion import expand_path_to_files, file_place
from learners.passes.sources.source_files import (
    BATCH_ROWS,
    IN_MEMORY,
    Condition,
    Fragment,
    InMemory,
    Path,
    RowWeight,
    SourceFile,
    arrow_type_family,
    file_identity,
    fragment_rows,
    source_file_sha256,
)
from learners.schema.encoding.batches import IndexCheck
from learners.schema.reading import Reading
from learners.schema.schema_inference import column_kind_by_type

MOST_HELD_CELLS = 1 << 22  # of rows that are read once for all passes

__all__ = ["Condition", "Fragment", "Mask", "RowWeight", "Source", "SourceFile", "arrow_type_family", "file_identity"]


class Source:
    """A table that can be read several times.

    Create it with `Source.open` or `Source.of_table`.

    Attributes
    ----------
    files : tuple of SourceFile
    arrow_schema : pyarrow.Schema
        Types are of the first file in which each column is not all null; columns are in the order that most files have.
    n_rows : int
        Rows of the files; conditions do not change it.
    fragments : tuple of Fragment
        In file order.
    is_identified : bool
        True if the files identify the content: then statistics of it can be stored and found again.
    weight : RowWeight or None
        How often each row counts.
    snapshot : Snapshot or None
        Of a lake table.
    earlier, rewrites
        What `since` found: a source of the files that have left; and identities of files -> files that now hold their
        rows.
    """

    def __init__(self, files: Sequence[SourceFile], arrow_schema: pa.Schema, filesystem: pafs.FileSystem) -> None:
        self.files = tuple(files)
        self.arrow_schema = arrow_schema
        self.n_rows = sum(file.n_rows for file in files)
        self.fragments = tuple(
            Fragment(f, g, n_rows) for f, file in enumerate(files) for g, n_rows in enumerate(file.row_groups) if n_rows
        )
        self.is_identified = True
        # What must live as long as the source: the folder of a temporary file.
        self.keeps: object = None
        self.snapshot: Snapshot | None = None
        self.earlier: Source | None = None
        self.rewrites: Sequence[tuple[frozenset[str], frozenset[str]]] = ()
        self._filesystem, self._access = filesystem, ANYWHERE
        self._conditions: Mapping[int, Sequence[Condition]] = {}
        self._completion: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
        self._indices = IndexCheck()
        self.weight: RowWeight | None = None
        self._few: _FewRows | None = None
        self._hint = ""

    @classmethod
    def open(
        cls,
        uris: Path | Sequence[Path],
        filesystem: pafs.FileSystem | None = None,
        types: Mapping[str, pa.DataType | Reading] | None = None,
        at: str | None = None,
        access: FileAccess = ANYWHERE,
    ) -> Source:
        """Find the files and read their metadata.

        For Parquet this is the footer. Other files are read completely once: CSV and JSON Lines to infer the types of
        their columns, and all of them for their SHA-256, by which a refresh recognizes them. Folders named
        `column=value` directly above the files add columns. A lake table contributes only the files of one snapshot,
        without deleted rows.

        Parameters
        ----------
        uris : str, path, or sequence of them
            Files, directories, globs, or URIs such as s3://bucket/folder; a file that several of them name counts once.
            The extensions determine the formats: Parquet (and any other end), .csv, .tsv, .jsonl, .ndjson, .json,
            .feather, .arrow, .ipc, .orc; text also with .gz, .bz2, .zst or .lz4.
        filesystem : pyarrow.fs.FileSystem, optional
            On which `uris` are paths; by default it follows from the URI.
        types : mapping of str to pyarrow.DataType or Reading, optional
            Types of columns of CSV and JSON lines that are known, or how their values are written; the others are found.
        at : str, optional
            Version of a lake table, or a time as ISO 8601: the last snapshot by then. By default the newest one.
        access : FileAccess, optional
            What may be read, asked before the first byte of each file, and how much may be looked through. By default all.

        Raises
        ------
        SourceError
            Naming the path: nothing found, not of the format, or columns that disagree between files.
        """
        addresses = [os.fspath(uris)] if isinstance(uris, str | os.PathLike) else [os.fspath(uri) for uri in uris]
        if not addresses:
            raise SourceError("(no path)", "name at least one file, folder or glob.")
        paths, files_named, hints = dict[Hashable, str](), list[str](), list[str]()
        common_filesystem: pafs.FileSystem | None = filesystem
        look = Look(access)
        for uri in addresses:
            bare = parse_lake_table_uri(uri).place
            place, path = (filesystem, bare) if filesystem is not None else uri_filesystem(bare)
            place = access.guarded(place)
            if len(addresses) == 1 and (snapshot := lake_table_snapshot(place, uri, path, at, access)) is not None:
                return cls.of_snapshot(place, snapshot, access)
            if bare != uri or at is not None:
                raise SourceError(uri, "name only the lake table, without other paths.")
            if common_filesystem is not None and not place.equals(common_filesystem):
                raise SourceError(uri, "is on a different file system from the first path; register it separately.")
            common_filesystem = place
            entries, hint = expand_path_to_files(place, path, look)
            for entry in entries:
                paths.setdefault(file_place(place, entry), entry)
            hints += [hint] if hint else []
            files_named += [path] if entries == [path] else []
        assert common_filesystem is not None
        refuse_lake_table_files(common_filesystem, files_named)
        files, names = align_file_columns(
            open_source_files(common_filesystem, list(paths.values()), types or {}), types or {}
        )
        schemas = [file.arrow_schema for file in files]
        plain = [s if len(s) == len(names) else pa.schema([f for f in s if f.name in set(names)]) for s in schemas]
        arrow_schema = common_file_schema(
            [(file.path, schema) for file, schema in zip(files, plain, strict=True)], dropped_columns(types or {})
        )
        source = cls(files, arrow_schema, common_filesystem)
        source._hint = " ".join(hints)
        return source

    @classmethod
    def of_snapshot(cls, filesystem: pafs.FileSystem, snapshot: Snapshot, access: FileAccess = ANYWHERE) -> Source:
        """Open the rows of a lake table's snapshot. Raises SourceError if it has none."""
        if not snapshot.files:
            raise SourceError(snapshot.place, f"has no rows in version {snapshot.version}.")
        files = open_snapshot_files(filesystem, snapshot, snapshot.files, access)
        arrow_schema = common_file_schema([(file.path, file.arrow_schema) for file in files])
        source = cls(files, arrow_schema, filesystem).ordered(snapshot.columns.names)
        source.snapshot, source._access = snapshot, access
        return source

    def since(self, known: KnownSnapshot) -> Source:
        """Add the files that left the lake table since a snapshot, as `earlier`."""
        if self.snapshot is None:
            return self
        changes = lake_table_changes(self._filesystem, self.snapshot, self.files, known, self._access)
        source = copy(self)
        source.rewrites, source._hint = changes.rewrites, changes.hint
        if changes.files:
            source.earlier = Source(changes.files, self.arrow_schema, self._filesystem)
            source.earlier._completion = self._completion
        return source

    @classmethod
    def of_table(cls, table: pa.Table, identity: str = "") -> Source:
        """Create a source from a table in memory; `identity` is the key under which a store may keep its statistics.

        Raises SourceError if two columns have the same name.
        """
        common_file_schema([("(table)", table.schema)])
        table = table.combine_chunks() if table.num_rows else table
        n_slices = -(-table.num_rows // BATCH_ROWS)
        sizes = tuple(min(BATCH_ROWS, table.num_rows - i * BATCH_ROWS) for i in range(n_slices))
        file = SourceFile("(table)", table.nbytes, None, table.num_rows, sizes, identity, InMemory(table), IN_MEMORY)
        source = cls([file], table.schema, pafs.LocalFileSystem())
        source.is_identified = False
        return source

    def carved(self, fragments: Sequence[int]) -> Source:
        """Return a source of some fragments, by position, with only their files, small enough to send to a worker."""
        chosen = [self.fragments[index] for index in fragments]
        places = {file: place for place, file in enumerate(dict.fromkeys(fragment.file for fragment in chosen))}
        source = self._with_fragments([replace(fragment, file=places[fragment.file]) for fragment in chosen])
        source.snapshot, source.earlier = None, None
        source.files = tuple(self.files[file] for file in places)
        source._conditions = {places[file]: own for file, own in self._conditions.items() if file in places}
        if self._few is not None:
            source._few = _FewRows(self._few.source.carved(self._few.places_of(chosen)))
        return source

    def thinned(self, max_rows: int) -> Source:
        """Select evenly spaced fragments with about `max_rows` rows in total, at least one."""
        step = -(-self.n_rows // max(1, max_rows))
        return self._with_fragments(self.fragments[:: max(1, step)])

    def restricted(self, conditions: Mapping[int, Sequence[Condition]]) -> Source:
        """Select some files, each with the rows that meet all its conditions.

        `conditions`: position of the file in `files` -> its conditions. Their texts become part of the file's
        identity, so that statistics of these rows can be stored and found again.
        """
        if self._few is not None:  # which has been read by its own conditions
            return self._few.source.restricted(conditions)
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
                if name not in self.arrow_schema.names and (self.weight is None or name != self.weight.column):
                    raise UnknownColumn(name, self.arrow_schema.names)
        return source

    def narrowed(self, conditions: Mapping[int, Sequence[Condition]]) -> Source:
        """Select files, each with the rows that meet these conditions in addition to its existing ones."""
        return self.restricted({index: (*self._conditions.get(index, ()), *own) for index, own in conditions.items()})

    def of_few_rows(self, most: Mapping[int, Mapping[int, int]]) -> Source:
        """Select the row groups that have rows; if all these rows fit in memory, they are read once and kept.

        `most`: position of each file -> its row groups with rows that meet the conditions, and at most how many.
        """
        fragments = [fragment for fragment in self.fragments if most[fragment.file].get(fragment.row_group)]
        held = [replace(fragment, n_rows=most[fragment.file][fragment.row_group]) for fragment in fragments]
        if sum(fragment.n_rows for fragment in held) * max(1, len(self.arrow_schema)) > MOST_HELD_CELLS:
            return self._with_fragments(fragments)
        source = self._with_fragments(held)
        source._few = _FewRows(self._with_fragments(fragments))
        return source

    def may_equal(self, fragment: Fragment, column: str, values: Sequence[int | str]) -> bool:
        """Return False if the footer excludes the given whole numbers or texts from a column of a fragment."""
        content = self.files[fragment.file].content
        if self._completion is not None or not isinstance(content, ParquetContent):
            return True
        return content.may_equal(fragment.row_group, column, values)

    def weighted(self, weight: RowWeight, *, is_hidden: bool = False) -> Source:
        """Weight the rows; `is_hidden` hides the weight column from readers.

        Callers also restrict the rows by the weight, so that these statistics are not mistaken for those of
        unweighted rows.

        Raises UnknownColumn.
        """
        if weight.column not in self.arrow_schema.names:
            raise UnknownColumn(weight.column, self.arrow_schema.names)
        source = copy(self)
        source.weight = weight
        source.earlier = None if self.earlier is None else self.earlier.weighted(weight, is_hidden=is_hidden)
        if is_hidden:
            source.arrow_schema = pa.schema([field for field in self.arrow_schema if field.name != weight.column])
        return source

    def completed(self, completion: Callable[[pa.RecordBatch], pa.RecordBatch]) -> Source:
        """Change some values of the rows by a function; callers also restrict them by a condition that records the
        change.
        """
        source = copy(self)
        source._completion = completion
        source.earlier = None if self.earlier is None else self.earlier.completed(completion)
        return source

    def ordered(self, names: Sequence[str]) -> Source:
        """Order the columns by these names; the others follow in their previous order."""
        own = self.arrow_schema.names
        order = [*(name for name in dict.fromkeys(names) if name in own), *(name for name in own if name not in names)]
        if order == own:
            return self
        source = copy(self)
        source.arrow_schema = pa.schema([self.arrow_schema.field(name) for name in order])
        source.earlier = None if self.earlier is None else self.earlier.ordered(order)
        return source

    def known_by(self, contents: Mapping[int, str]) -> Source:
        """Set the SHA-256 of all bytes of files, by position."""
        source = copy(self)
        source.files = tuple(
            replace(file, content_sha256=contents.get(index, file.content_sha256))
            for index, file in enumerate(self.files)
        )
        return source

    def content_sha256(self, file: int, read: Callable[[int], object] = lambda _: None) -> str:
        """Return the SHA-256 of all bytes of a file; `read` is called with the number of bytes just read, and may
        raise.

        Raises SourceError if the file cannot be read, or has changed since it was opened.
        """
        return source_file_sha256(self._filesystem, self.files[file], read)

    @property
    def hints(self) -> list[str]:
        """Return hints for the user: files that left or are not read, and text that looks numeric."""
        own = [self._hint] if self._hint else []
        return own + [f"{file.path}: {hint.text}" for file in self.files for hint in file.hints.values()]

    def all_settings(self, *given: Mapping[str, object]) -> list[str]:
        """Return one sentence with the options that the hints suggest and those `given` for columns; none without
        hints, or for one column.
        """
        hints = [hint for file in self.files for hint in file.hints.values() if hint.columns]
        offered: dict[str, dict[str, object]] = {}
        for name, fields in [item for hint in hints for item in hint.columns.items()]:
            offered.setdefault(name, dict(fields))
        if not offered:
            return []
        for name, options in [item for columns in given for item in columns.items()]:
            known = dict(options) if isinstance(options, Mapping) else {"kind": options}
            offered[name] = offered.get(name, {}) | known
        if len(offered) < 2:
            return []
        unsure = dict.fromkeys(name for hint in hints if hint.is_unsure for name in hint.columns)
        check = f" Check {', '.join(map(repr, unsure))}, which can be read in two ways." if unsure else ""
        return [f"{ALL_AT_ONCE}{columns_setting(offered)}.{check}"]

    def only(self, files: Collection[int]) -> Source:
        """Select the files at these positions."""
        return self._with_fragments([fragment for fragment in self.fragments if fragment.file in files])

    def _with_fragments(self, fragments: Sequence[Fragment]) -> Source:
        source = copy(self)
        source.fragments = tuple(fragments)
        source.n_rows = sum(fragment.n_rows for fragment in fragments)
        return source

    def learnable(self) -> list[str]:
        """Return the columns whose type can be learned from; of the others only the type is needed."""
        return [
            field.name
            for field in self.arrow_schema
            if pa.types.is_null(field.type) or column_kind_by_type(field.type, None) != "unsupported"
        ]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows in file order, in record batches of at most 65,536 rows, with columns ordered as in
        `arrow_schema`.
        """
        for fragment in self.fragments:
            yield from self.read(fragment, columns)

    def has_columns_apart(self, fragment: Fragment) -> bool:
        """Return whether the columns of a fragment can be read separately, as in Parquet."""
        return self.files[fragment.file].kind == PARQUET

    def read(
        self, fragment: Fragment, columns: Sequence[str] | None = None, check_indices: bool = True
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one fragment.

        Parameters
        ----------
        columns : sequence of str, optional
            By default all.
        check_indices : bool
            False for whoever looks at every index into a dictionary, as `Encoder` does: damaged pages hold such as are beyond
            it, and Arrow would read what is in memory there.

        Raises
        ------
        UnknownColumn
            If a column is not in the data.
        SourceError
            If the file has vanished, has changed since it was opened, or is damaged.
        """
        return (batch for batch, _ in self.read_weighted(fragment, columns, check_indices))

    def read_weighted(
        self, fragment: Fragment, columns: Sequence[str] | None = None, check_indices: bool = True
    ) -> Iterator[tuple[pa.RecordBatch, Integers | None]]:
        """Yield the rows of one fragment as `read` does, with (n_rows,) int64 weights, or None without weights."""
        names = self.arrow_schema.names  # which Arrow makes anew each time it is asked
        known = set(names)
        for name in columns or ():
            if name not in known:
                raise UnknownColumn(name, names)
        if self._few is not None:
            for batch, weights in self._few.rows(fragment):
                yield batch if columns is None else batch.select(list(columns)), weights
            return
        conditions, weight = self._conditions.get(fragment.file, ()), self.weight
        needed = [name for condition in conditions for name in condition.columns]
        needed += [] if weight is None else [weight.column]
        outputs = names if columns is None else list(columns)
        inputs = None if columns is None and known.issuperset(needed) else list(dict.fromkeys([*outputs, *needed]))
        offset = 0
        for raw in self._raw(fragment, inputs):
            if (check_indices or conditions) and self.has_columns_apart(fragment):
                self._indices.require_sound(raw, self.files[fragment.file].path)
            batch = raw if self._completion is None else self._completion(raw)
            if not conditions and weight is None:
                yield batch, None
                continue
            is_chosen = np.ones(batch.num_rows, bool)
            for condition in conditions:
                is_chosen &= condition.mask(batch, self.files[fragment.file], fragment, offset)
            offset += batch.num_rows
            chosen = batch if is_chosen.all() else batch.filter(pa.array(is_chosen))
            weights = None if weight is None else weight.counts(chosen)
            yield chosen if inputs is None else chosen.select(outputs), weights

    def _raw(self, fragment: Fragment, columns: Sequence[str] | None) -> Iterator[pa.RecordBatch]:
        # Files may order their columns differently; and to pyarrow, column "a" includes column "a.b".
        names = self.arrow_schema.names if columns is None else list(columns)
        for batch in fragment_rows(self._filesystem, self.files[fragment.file], fragment, columns):
            own = batch if batch.schema.names == names else batch.select(names)
            yield with_common_numbers(own, self._mixed_numbers, self.arrow_schema) if self._mixed_numbers else own

    @cached_property
    def _mixed_numbers(self) -> frozenset[str]:
        """Columns that are numbers in some files, and small integers or booleans in others."""
        return mixed_number_columns({file.arrow_schema for file in self.files}, self.arrow_schema)


class _FewRows:
    """The rows of a source that has few of them, each fragment read once, on first use."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._fragments = {(one.file, one.row_group): one for one in source.fragments}
        self._read: dict[tuple[int, int], list[tuple[pa.RecordBatch, Integers | None]]] = {}
        self._lock = threading.Lock()

    def rows(self, fragment: Fragment) -> list[tuple[pa.RecordBatch, Integers | None]]:
        """Return the rows of a fragment with their weights; columns that cannot be learned from are null."""
        place = (fragment.file, fragment.row_group)
        with self._lock:
            known = self._read.get(place)
        if known is None:
            names = self.source.learnable()
            read = self.source.read_weighted(self._fragments[place], names)
            known = [(self._whole(batch), weights) for batch, weights in read if batch.num_rows]
            with self._lock:
                self._read[place] = known
        return known

    def places_of(self, fragments: Sequence[Fragment]) -> list[int]:
        """Return the positions of some fragments in the source."""
        places = {(one.file, one.row_group): place for place, one in enumerate(self.source.fragments)}
        return [places[fragment.file, fragment.row_group] for fragment in fragments]

    def _whole(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = set(batch.schema.names)
        columns = [
            batch.column(field.name) if field.name in names else pa.nulls(batch.num_rows, field.type)
            for field in self.source.arrow_schema
        ]
        return pa.RecordBatch.from_arrays(columns, self.source.arrow_schema.names)

    def __reduce__(self) -> tuple[type[Self], tuple[Source]]:
        """Pickle only the parts to be read."""
        return type(self), (self.source,)
