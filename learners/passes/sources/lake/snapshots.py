"""A lake table at one moment: the files with its rows, and how to open them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError
from learners.kernels.arrays import Integers
from learners.passes.sources.adapted_files import Adapted
from learners.passes.sources.file_access import ANYWHERE, FileAccess
from learners.passes.sources.parquet import read_parquet_footer
from learners.passes.sources.source_files import NO_ROWS, SourceFile, arrow_type_family, file_with_digest, stamped_file

DELTA, ICEBERG = "Delta Lake", "Iceberg"
LOG, METADATA, METADATA_END = "_delta_log", "metadata", ".metadata.json"
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True)
class LakeFile:
    """A file of a snapshot."""

    path: str  # on the file system of the table
    values: Mapping[str, pa.Scalar]  # of columns that the file may lack, as the log has them: those of its partition
    # (n_deleted,) int64: positions of its deleted rows, ascending.
    deleted: Integers = field(default_factory=lambda: NO_ROWS)

    @property
    def key(self) -> str:
        """Path and hash of the deleted rows, which distinguish the file from others of the table."""
        if not self.deleted.size:
            return self.path
        positions = np.ascontiguousarray(self.deleted, "<i8").tobytes()
        return f"{self.path}|{hashlib.sha256(positions).hexdigest()[:32]}"


@dataclass(frozen=True)
class Snapshot:
    """A lake table at one moment."""

    kind: str  # "Delta Lake" or "Iceberg"
    place: str  # the table, as it was asked for
    path: str  # the same on its file system
    version: str  # version number, or snapshot id
    time: str  # when it was committed, as ISO 8601; empty if nobody knows
    columns: pa.Schema  # of the table, in its order
    physical: Mapping[str, str]  # names of columns in the files, where the log tells them
    ids: Mapping[str, int]  # numbers by which the columns are found in the files, where the table goes by them
    files: tuple[LakeFile, ...]  # by path

    @property
    def folder(self) -> str:
        """Folder of the table, even if a metadata file was named."""
        is_file = self.path.endswith(METADATA_END)
        return self.path.rpartition("/")[0].rpartition("/")[0] if is_file else self.path.rstrip("/")

    def facts(self, files: Sequence[SourceFile]) -> dict[str, object]:
        """Return the facts about the snapshot that are stored with a model."""
        facts = {"format": self.kind, "table": self.place, "version": self.version, "time": self.time}
        return facts | {"n_files": len(self.files), "n_rows": sum(file.n_rows for file in files)}


def open_snapshot_files(
    filesystem: pafs.FileSystem, snapshot: Snapshot, files: Sequence[LakeFile], access: FileAccess = ANYWHERE
) -> list[SourceFile]:
    """Open files with the columns of the table.

    `snapshot`: whose columns count.
    `files`: of this or another snapshot of the table.
    `access`: what may be read; all files are looked at before the first of them is opened.
    Raises SourceError if a file is gone, or is not of Parquet; and what `access` raises.
    """
    access.require_regular(filesystem, [file.path for file in files])
    return [_opened(filesystem, snapshot, file) for file in files]


def _opened(filesystem: pafs.FileSystem, snapshot: Snapshot, lake_file: LakeFile) -> SourceFile:
    parquet = stamped_file(filesystem, lake_file.path, partial(read_parquet_footer, filesystem, lake_file.path))
    own, deleted = _names_in_file(snapshot, parquet.arrow_schema), lake_file.deleted
    if deleted.size and deleted[-1] >= parquet.n_rows:
        raise SourceError(
            lake_file.path, f"has {parquet.n_rows} rows, and the log of its table deletes row {deleted[-1]}."
        )
    absent = [one for one in snapshot.columns if one.name not in own]
    added = {one.name: lake_file.values.get(one.name, _null(one.type)) for one in absent}
    content = Adapted(parquet.content, own, added, parquet.row_groups, deleted)
    file = replace(parquet, content=content, n_rows=sum(content.live), row_groups=content.live)
    # By itself the file has other columns: what was counted of it then is of another table.
    is_whole = added.keys() <= lake_file.values.keys() and len(own) == len(parquet.arrow_schema.names)
    return replace(file_with_digest(file), columns=() if is_whole else tuple(snapshot.columns.names))


def _names_in_file(snapshot: Snapshot, own: pa.Schema) -> dict[str, str]:
    """Map the table's columns to their names in a file."""
    by_id = {int(one.metadata[_FIELD_ID]): one.name for one in own if _FIELD_ID in (one.metadata or {})}
    goes_by_id = bool(snapshot.ids and by_id)  # a name may be that of a column that was dropped
    names, physical_names = set(own.names), dict[str, str]()
    for name in snapshot.columns.names:
        physical = by_id.get(snapshot.ids[name]) if goes_by_id else snapshot.physical.get(name, name)
        if physical is not None and physical in names:
            physical_names[name] = physical
    return physical_names


def _null(kind: pa.DataType) -> pa.Scalar:
    is_known = not arrow_type_family(kind).startswith("unsupported")
    return pa.scalar(None, kind if is_known else pa.null())


def parse_snapshot_time(uri: str, at: str) -> datetime:
    """Parse a time given by the user; without a zone it is UTC. Raises SourceError if invalid."""
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        raise SourceError(
            uri, f"has no version {at!r}. Give a number, or a time such as 2026-01-31T12:00:00."
        ) from None
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
