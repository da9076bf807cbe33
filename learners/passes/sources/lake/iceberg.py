"""Iceberg: snapshots by pyiceberg, from a metadata file or a table's folder."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line_error_text
from learners.kernels.arrays import Integers
from learners.passes.sources.file_access import ANYWHERE, FileAccess
from learners.passes.sources.lake.snapshots import (
    ICEBERG,
    METADATA,
    METADATA_END,
    LakeFile,
    Snapshot,
    parse_snapshot_time,
)
from learners.passes.sources.source_files import NO_ROWS, store_error_reason

_INSTALL = "is an Iceberg table, which needs one more library: pip install 'fewpass[lake]'."
_NUMBER = re.compile(r"v?(\d+)")


def read_iceberg_snapshot(
    filesystem: pafs.FileSystem, place: str, path: str, at: str | None, access: FileAccess = ANYWHERE
) -> Snapshot:
    """Read the table at a snapshot or time.

    `place`: the table as requested, for messages.
    `path`: its folder or a metadata file, on the file system.
    `at`: the id of a snapshot, or a time as ISO 8601: the last one by then. None: that of the metadata file, or of the
    newest one.
    `access`: what may be read, asked before a file is opened.
    Raises SourceError if the library is not there, the table has no such snapshot, or has equality deletes.
    """
    try:
        import pyiceberg  # noqa: F401
    except ImportError as error:
        raise SourceError(place, _INSTALL) from error
    metadata = path if path.endswith(METADATA_END) else _newest_metadata(filesystem, path.rstrip("/"), access)
    try:
        return _snapshot(filesystem, place, path, metadata, at, access)
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # of a file that anybody may have written, its decoders raise whatever they like
        if "equality delete" in str(error):
            reason = "has equality deletes, which are not read. Rewrite its data files without them first."
            raise SourceError(place, reason) from error
        raise SourceError(
            place, store_error_reason(error) or f"cannot be read as an Iceberg table ({one_line_error_text(error)})."
        ) from error


def _newest_metadata(filesystem: pafs.FileSystem, folder: str, access: FileAccess) -> str:
    """Return the metadata file named by the version hint, or the one with the greatest number."""
    paths = {path.rpartition("/")[2]: path for path in iceberg_metadata_files(filesystem, folder)}
    hint_path = f"{folder}/{METADATA}/version-hint.text"
    access.require(filesystem, [f"{folder}/{METADATA}"])
    access.require_regular(filesystem, [hint_path])
    try:
        with filesystem.open_input_stream(hint_path) as stream:
            hint = stream.read().decode().strip()
    except (OSError, UnicodeDecodeError):
        hint = ""
    for name in (hint, f"v{hint}{METADATA_END}", f"{hint}{METADATA_END}"):
        if name in paths:
            return paths[name]
    return max(paths.items(), key=lambda item: (_number(item[0]), item[0]))[1]


def _number(name: str) -> int:
    match = _NUMBER.match(name)
    return -1 if match is None else int(match[1])


def _snapshot(
    filesystem: pafs.FileSystem, place: str, path: str, metadata: str, at: str | None, access: FileAccess
) -> Snapshot:
    from learners.passes.sources.lake.iceberg_files import open_iceberg_table

    table, paths = open_iceberg_table(filesystem, place, metadata, access)
    chosen = _chosen(place, table, at)
    is_newest = (
        chosen.snapshot_id == table.metadata.current_snapshot_id
    )  # columns may have changed since without a snapshot
    schema = table.schema() if is_newest or chosen.schema_id is None else table.schemas()[chosen.schema_id]
    columns = pa.schema([pa.field(one.name, _plain(one.type)) for one in schema.as_arrow()])
    return Snapshot(
        kind=ICEBERG,
        place=place,
        path=path,
        version=str(chosen.snapshot_id),
        time=datetime.fromtimestamp(chosen.timestamp_ms / 1000, UTC).isoformat(),
        columns=columns,
        physical={},
        ids={one.name: one.field_id for one in schema.fields},
        files=_files(table, place, paths, chosen.snapshot_id, schema, columns),
    )


def _chosen(place: str, table: Any, at: str | None) -> Any:
    """Resolve a snapshot id or time to a snapshot."""
    if at is None:
        snapshot = table.current_snapshot()
        if snapshot is None:
            raise SourceError(place, "has no rows: nothing was written to it yet.")
        return snapshot
    if at.isdecimal():
        snapshot = table.snapshot_by_id(int(at))
        newest = table.current_snapshot()
        known = "" if newest is None else f": its newest is {newest.snapshot_id}"
    else:
        as_of = parse_snapshot_time(place, at)
        snapshot = table.snapshot_as_of_timestamp(int(as_of.timestamp() * 1000))
        at, known = f"of {as_of.isoformat()} or before", ""
    if snapshot is None:
        raise SourceError(place, f"has no snapshot {at}{known}.")
    return snapshot


def _files(
    table: Any, place: str, paths: Any, snapshot_id: int, schema: Any, columns: pa.Schema
) -> tuple[LakeFile, ...]:
    files = []
    defaults = {
        one.name: pa.scalar(one.initial_default, columns.field(one.name).type)
        for one in schema.fields
        if one.initial_default is not None
    }
    deleted = _Deleted(table.io)
    for task in table.scan(snapshot_id=snapshot_id).plan_files():
        if str(task.file.file_format.value).upper() != "PARQUET":
            raise SourceError(place, f"has files of {task.file.file_format.value}; only Parquet is read.")
        values = defaults | _partition_values(table, task.file, schema, columns)
        rows = deleted.of(task.file.file_path, list(task.delete_files))
        files.append(LakeFile(paths.path(task.file.file_path), values, rows))
    return tuple(sorted(files, key=lambda file: file.path))


def _partition_values(table: Any, file: Any, schema: Any, columns: pa.Schema) -> dict[str, pa.Scalar]:
    """Return the partition values of columns that the file may lack, such as columns of a file added in place."""
    from pyiceberg.transforms import IdentityTransform

    values = {}
    for index, one in enumerate(table.specs()[file.spec_id].fields):
        name = schema.find_column_name(one.source_id)
        if isinstance(one.transform, IdentityTransform) and name in columns.names:
            kind, value = columns.field(name).type, file.partition[index]
            is_counted = isinstance(value, int) and pa.types.is_temporal(kind)
            values[name] = pa.scalar(value, _counts_of(kind)).cast(kind) if is_counted else pa.scalar(value, kind)
    return values


def _counts_of(kind: pa.DataType) -> pa.DataType:
    """Return the integer type that stores a date or time type."""
    return pa.int32() if kind.bit_width == 32 else pa.int64()


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_large_string(kind) else kind


class _Deleted:
    """Positions of deleted rows; a delete file may cover many data files and is read once."""

    def __init__(self, io: Any) -> None:
        self.io = io
        self.read: dict[str, Mapping[str, pa.ChunkedArray]] = {}

    def of(self, path: str, files: Sequence[Any]) -> Integers:
        from pyiceberg.io.pyarrow import _read_deletes

        parts = []
        for file in files:
            if file.file_path not in self.read:
                self.read[file.file_path] = _read_deletes(self.io, file)
            positions = self.read[file.file_path].get(path)
            if positions is not None:
                parts.append(np.asarray(positions.to_numpy(), np.int64))
        return np.unique(np.concatenate(parts)) if parts else NO_ROWS


def iceberg_metadata_files(filesystem: pafs.FileSystem, folder: str) -> list[str]:
    """Return the metadata files of an Iceberg table."""
    below = filesystem.get_file_info(pafs.FileSelector(f"{folder}/{METADATA}", allow_not_found=True))
    return [info.path for info in below if info.base_name.endswith(METADATA_END)]
