"""Files of lake tables: their columns under the names of the table, and without the rows that were deleted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.kernels.arrays import Integers
from learners.passes.sources.file_sets import Bounds, Content, SourceFile


@dataclass(frozen=True)
class Renamed:
    """Some columns of a file, under the names that the table gives them."""

    inner: Content
    names: Mapping[str, str]  # name in the table -> name in the file

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the table that the file has, in the table's order."""
        own = self.inner.arrow_schema
        return pa.schema([pa.field(name, own.field(physical).type) for name, physical in self.names.items()])

    @property
    def types_sha256(self) -> str:
        """Of the names that differ; nothing if none does."""
        changed = {name: physical for name, physical in self.names.items() if name != physical}
        text = json.dumps([changed, self.inner.types_sha256], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest() if changed else self.inner.types_sha256

    def bounds(self, column: str) -> Bounds | None:
        """Those of the file."""
        return self.inner.bounds(self.names[column])

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a row group."""
        names = {self.names[name]: name for name in (self.names if columns is None else columns)}
        for batch in self.inner.batches(filesystem, file, row_group, list(names)):
            yield batch.rename_columns([names[physical] for physical in batch.schema.names])


@dataclass(frozen=True)
class WithoutRows:
    """A file of which some rows were deleted."""

    inner: Content
    deleted: Integers  # (n_deleted,) int64: positions of these rows in the file, ascending
    row_groups: tuple[int, ...]  # rows of the row groups in the file, the deleted ones included

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the file."""
        return self.inner.arrow_schema

    @property
    def types_sha256(self) -> str:
        """Of the positions, too: with other rows deleted it is another file."""
        positions = np.ascontiguousarray(self.deleted, "<i8").tobytes()
        return hashlib.sha256(self.inner.types_sha256.encode() + b" " + positions).hexdigest()

    def bounds(self, column: str) -> Bounds | None:
        """Not known: the least or the greatest value may be that of a deleted row."""
        del column
        return None

    def live(self, file: SourceFile) -> SourceFile:
        """The file with the rows that are left."""
        return replace(
            file,
            content=self,
            n_rows=sum(self.row_groups) - self.deleted.size,
            row_groups=tuple(
                n - within.size for n, within in zip(self.row_groups, self._deleted_by_group(), strict=True)
            ),
        )

    def batches(
        self, filesystem: pafs.FileSystem, file: SourceFile, row_group: int, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        """Rows of a row group that are left."""
        within = self._deleted_by_group()[row_group]
        first = 0
        for batch in self.inner.batches(filesystem, file, row_group, columns):
            is_live = np.ones(batch.num_rows, bool)
            start, end = np.searchsorted(within, [first, first + batch.num_rows])
            is_live[within[start:end] - first] = False
            first += batch.num_rows
            yield batch if start == end else batch.filter(pa.array(is_live))

    def _deleted_by_group(self) -> list[Integers]:
        """Positions of the deleted rows in each row group, from its first row."""
        starts = [0, *accumulate(self.row_groups)]
        cuts = np.searchsorted(self.deleted, starts)
        return [self.deleted[a:b] - start for a, b, start in zip(cuts[:-1], cuts[1:], starts[:-1], strict=True)]
