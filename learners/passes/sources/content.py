"""What a file holds, whatever its format."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as slot
from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line
from learners.kernels.arrays import Integers, frozen
from learners.passes.sources.file_sets import Bounds, Content, Fragment, SourceFile, of_store

BATCH_ROWS = 65_536
NO_ROWS = frozen(np.empty(0, np.int64))
IN_MEMORY = "table"  # the kind of a file that is none
_READ_BYTES = 4 << 20


def types_digest(schema: pa.Schema) -> str:
    """SHA-256 of names and types."""
    return hashlib.sha256(json.dumps([(field.name, str(field.type)) for field in schema]).encode()).hexdigest()


def identified(file: SourceFile) -> SourceFile:
    """The file with a digest of all that its values depend on."""
    if not file.content.types_sha256:
        return file
    digest = hashlib.sha256(f"{file.footer_sha256} {file.content.types_sha256}".encode()).hexdigest()
    return replace(file, footer_sha256=digest)


def content_sha256(filesystem: pafs.FileSystem, file: SourceFile, read: Callable[[int], object]) -> str:
    """SHA-256 of all bytes of a file; `read` is told how many more were read, and may raise.

    Raises SourceError if the file cannot be read, or has changed since it was opened.
    """
    digest = hashlib.sha256()
    try:
        require_unchanged(filesystem, file)
        with filesystem.open_input_stream(file.path, compression=None) as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
                read(len(block))
        require_unchanged(filesystem, file)
    except SourceError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(file.path, of_store(error) or f"cannot be read ({one_line(error)}).") from error
    return digest.hexdigest()


def fragment_rows(
    filesystem: pafs.FileSystem, file: SourceFile, fragment: Fragment, columns: Sequence[str] | None
) -> Iterator[pa.RecordBatch]:
    """The rows of one fragment of a file; the columns may come in another order.

    Raises SourceError if the file has vanished, has changed since it was opened, or is damaged.
    """
    if file.kind == IN_MEMORY:
        yield from file.content.batches(filesystem, file, fragment.row_group, columns)
        return
    n_rows, piece = 0, f"row group {fragment.row_group}" if file.kind == "Parquet" else "it"
    try:
        require_unchanged(filesystem, file)
        for batch in file.content.batches(filesystem, file, fragment.row_group, columns):
            n_rows += batch.num_rows
            yield batch
    except SourceError:
        raise
    except (OSError, ValueError, pa.ArrowException) as error:
        where = f"{piece} cannot be read ({one_line(error)})"
        raise SourceError(file.path, of_store(error) or f"{where}. Restore the file from its source.") from error
    if n_rows != fragment.n_rows:
        raise SourceError(
            file.path, f"{piece} holds {n_rows} rows instead of {fragment.n_rows}. Restore the file from its source."
        )


def require_unchanged(filesystem: pafs.FileSystem, file: SourceFile) -> None:
    """Refuse a file that is not as it was when it was opened. Raises SourceError."""
    now = filesystem.get_file_info(file.path)
    if now.type != pafs.FileType.File:
        raise SourceError(file.path, "was removed while it was being read. Put it back, or register the data again.")
    if now.size != file.size or (file.mtime_ns is not None and now.mtime_ns != file.mtime_ns):
        raise SourceError(file.path, "has changed since it was opened. Start again to read it as it is now.")


@dataclass(frozen=True)
class InMemory:
    """A table that is in memory already, in pieces."""

    table: pa.Table
    types_sha256: ClassVar[str] = ""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns."""
        return self.table.schema

    def bounds(self, column: str) -> Bounds | None:
        """Not known before the rows are read."""
        del column
        return None

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a piece."""
        del filesystem
        rows = self.table.slice(sum(file.row_groups[:row_group]), file.row_groups[row_group])
        rows = rows if columns is None else rows.select(list(columns))
        if rows.column_names:
            yield from rows.combine_chunks().to_batches()


def with_values(file: SourceFile, values: Mapping[str, pa.Scalar]) -> SourceFile:
    """The file with more columns, in each of which all its rows have one value."""
    return replace(file, content=Adapted(file.content, None, values, file.row_groups)) if values else file


@dataclass(frozen=True)
class Adapted:
    """A file as its table has it: with other names, columns that it does not hold, and without rows that were deleted."""

    inner: Content  # of the file itself
    names: Mapping[str, str] | None  # of its columns: name in the table -> name in the file; None: all as they are
    values: Mapping[str, pa.Scalar]  # of other columns, such as those of its folders: the value that all rows have
    row_groups: tuple[int, ...]  # rows of the row groups in the file, the deleted ones included
    # (n_deleted,) int64: positions of these rows in the file, ascending.
    deleted: Integers = slot(default_factory=lambda: NO_ROWS)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the table that the file has, in the table's order, then the others."""
        own = self.inner.arrow_schema
        names = self.names or {}
        fields = [*own] if self.names is None else [pa.field(name, own.field(names[name]).type) for name in names]
        return pa.schema([*fields, *(pa.field(name, value.type) for name, value in self.values.items())])

    @property
    def types_sha256(self) -> str:
        """Of all that makes it another file: names that differ, positions of deleted rows, values with their types."""
        found = self.inner.types_sha256
        renamed = {name: physical for name, physical in (self.names or {}).items() if name != physical}
        if renamed:
            found = hashlib.sha256(json.dumps([renamed, found], sort_keys=True).encode()).hexdigest()
        if self.deleted.size:
            positions = np.ascontiguousarray(self.deleted, "<i8").tobytes()
            found = hashlib.sha256(found.encode() + b" " + positions).hexdigest()
        if self.values:
            values = [(name, str(value.type), str(value.as_py())) for name, value in self.values.items()]
            found = hashlib.sha256(json.dumps([values, found]).encode()).hexdigest()
        return found

    @cached_property
    def live(self) -> tuple[int, ...]:
        """Rows of each row group that are left."""
        return tuple(n - gone.size for n, gone in zip(self.row_groups, self._deleted, strict=True))

    @cached_property
    def _deleted(self) -> list[Integers]:
        """Positions of the deleted rows in each row group, from its first row."""
        starts = np.cumsum([0, *self.row_groups])
        cuts = np.searchsorted(self.deleted, starts)
        return [self.deleted[a:b] - start for a, b, start in zip(cuts, cuts[1:], starts, strict=False)]

    def bounds(self, column: str) -> Bounds | None:
        """Those of the file, where no row is deleted, or the one value."""
        if column in self.values:
            value = self.values[column]
            return Bounds(value, value, 0 if value.is_valid else sum(self.live))
        return None if self.deleted.size else self.inner.bounds(column if self.names is None else self.names[column])

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a row group that are left."""
        outputs = self.arrow_schema.names if columns is None else list(columns)
        added = [name for name in outputs if name in self.values]
        own = [name for name in outputs if name not in self.values]
        if added and not own:
            for first in range(0, self.live[row_group], BATCH_ROWS):
                n = min(BATCH_ROWS, self.live[row_group] - first)
                yield pa.RecordBatch.from_arrays([repeated(self.values[name], n) for name in added], added)
            return
        names = {name if self.names is None else self.names[name]: name for name in own}
        gone, first = self._deleted[row_group], 0
        for batch in self.inner.batches(filesystem, file, row_group, list(names)):
            start, end = np.searchsorted(gone, [first, first + batch.num_rows])
            is_live = np.ones(batch.num_rows, bool)
            is_live[gone[start:end] - first] = False
            first += batch.num_rows
            left = batch if start == end else batch.filter(pa.array(is_live))
            left = left.rename_columns([names[name] for name in left.schema.names])
            if not added:
                yield left  # without any column, too, it knows how many rows it has
                continue
            arrays = [*left.columns, *(repeated(self.values[name], left.num_rows) for name in added)]
            yield pa.RecordBatch.from_arrays(arrays, [*left.schema.names, *added])


def repeated(value: pa.Scalar, n_rows: int) -> pa.Array:
    """A column of one value; text as a dictionary, as the text of files is read."""
    if pa.types.is_string(value.type):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), n_rows), pa.array([value]))
    return pa.repeat(value, n_rows)
