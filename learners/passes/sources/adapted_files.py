"""Files adapted to their table: folder columns added, columns renamed, deleted rows removed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as slot
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.kernels.arrays import Integers
from learners.passes.sources.source_files import BATCH_ROWS, NO_ROWS, Bounds, Content, SourceFile


def file_with_constant_columns(file: SourceFile, values: Mapping[str, pa.Scalar]) -> SourceFile:
    """Add constant columns to a file."""
    return replace(file, content=Adapted(file.content, None, values, file.row_groups)) if values else file


@dataclass(frozen=True)
class Adapted:
    """A file adapted to its table: columns renamed, constant columns added, deleted rows removed."""

    inner: Content  # of the file itself
    names: Mapping[str, str] | None  # of its columns: name in the table -> name in the file; None: all as they are
    values: Mapping[str, pa.Scalar]  # of other columns, such as those of its folders: the value that all rows have
    row_groups: tuple[int, ...]  # rows of the row groups in the file, the deleted ones included
    # (n_deleted,) int64: positions of these rows in the file, ascending.
    deleted: Integers = slot(default_factory=lambda: NO_ROWS)

    @property
    def arrow_schema(self) -> pa.Schema:
        """Columns of the table that the file has, in the table's order, followed by the constant columns."""
        own = self.inner.arrow_schema
        names = self.names or {}
        fields = [*own] if self.names is None else [pa.field(name, own.field(names[name]).type) for name in names]
        return pa.schema([*fields, *(pa.field(name, value.type) for name, value in self.values.items())])

    @property
    def types_sha256(self) -> str:
        """Hash of the adaptations: renamed columns, positions of deleted rows, and constant values with their types."""
        digest = self.inner.types_sha256
        renamed = {name: physical for name, physical in (self.names or {}).items() if name != physical}
        if renamed:
            digest = hashlib.sha256(json.dumps([renamed, digest], sort_keys=True).encode()).hexdigest()
        if self.deleted.size:
            positions = np.ascontiguousarray(self.deleted, "<i8").tobytes()
            digest = hashlib.sha256(digest.encode() + b" " + positions).hexdigest()
        if self.values:
            values = [(name, str(value.type), str(value.as_py())) for name, value in self.values.items()]
            digest = hashlib.sha256(json.dumps([values, digest]).encode()).hexdigest()
        return digest

    @cached_property
    def live(self) -> tuple[int, ...]:
        """Number of remaining rows in each row group."""
        return tuple(n - gone.size for n, gone in zip(self.row_groups, self._deleted, strict=True))

    @cached_property
    def _deleted(self) -> list[Integers]:
        """Positions of the deleted rows within each row group."""
        starts = np.cumsum([0, *self.row_groups])
        cuts = np.searchsorted(self.deleted, starts)
        return [self.deleted[a:b] - start for a, b, start in zip(cuts, cuts[1:], starts, strict=False)]

    def stored_rows(self, row_group: int, rows: Integers) -> Integers:
        """Convert positions among the remaining rows of a row group to positions in the stored row group."""
        gone = self._deleted[row_group]
        stored = rows + np.searchsorted(gone - np.arange(gone.size), rows, side="right")
        return self.inner.stored_rows(row_group, stored) if isinstance(self.inner, Adapted) else stored

    def bounds(self, column: str) -> Bounds | None:
        """Return the file's bounds of a column, or the constant value; None if rows are deleted."""
        if column in self.values:
            value = self.values[column]
            return Bounds(value, value, 0 if value.is_valid else sum(self.live))
        return None if self.deleted.size else self.inner.bounds(column if self.names is None else self.names[column])

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows of a row group."""
        outputs = self.arrow_schema.names if columns is None else list(columns)
        added = [name for name in outputs if name in self.values]
        own = [name for name in outputs if name not in self.values]
        if added and not own:
            for first in range(0, self.live[row_group], BATCH_ROWS):
                n = min(BATCH_ROWS, self.live[row_group] - first)
                yield pa.RecordBatch.from_arrays([constant_column(self.values[name], n) for name in added], added)
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
            arrays = [*left.columns, *(constant_column(self.values[name], left.num_rows) for name in added)]
            yield pa.RecordBatch.from_arrays(arrays, [*left.schema.names, *added])


def constant_column(value: pa.Scalar, n_rows: int) -> pa.Array:
    """Create a column of one repeated value; text is dictionary-encoded, as in text files."""
    if pa.types.is_string(value.type):
        return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), n_rows), pa.array([value]))
    return pa.repeat(value, n_rows)


def stored_row_numbers(file: SourceFile, row_group: int, first: int, n_rows: int) -> Integers:
    """Return the positions of remaining rows in the stored row group, (n_rows,) int64, from 0, counting deleted rows."""
    rows = np.arange(first, first + n_rows, dtype=np.int64)
    return file.content.stored_rows(row_group, rows) if isinstance(file.content, Adapted) else rows
