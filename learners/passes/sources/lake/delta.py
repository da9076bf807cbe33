"""Delta Lake: snapshots by delta-rs, and the changes between them from the log."""

from __future__ import annotations

import json
import posixpath
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line_error_text
from learners.passes.sources.file_access import ANYWHERE, FileAccess
from learners.passes.sources.guarded_files import is_local_filesystem
from learners.passes.sources.lake.deletion_vectors import named_log_files
from learners.passes.sources.lake.snapshots import DELTA, LOG, LakeFile, Snapshot, parse_snapshot_time
from learners.passes.sources.source_files import store_error_reason

# What a table may ask of its readers; each other feature is refused by its name.
FEATURES = {
    "columnMapping",
    "deletionVectors",
    "timestampNtz",
    "typeWidening",
    "typeWidening-preview",
    "v2Checkpoint",
    "vacuumProtocolCheck",
    "appendOnly",
    "invariants",
}
_VERSIONED = re.compile(r"(\d{20})\.(json|checkpoint\..*parquet|checkpoint\..*json)")
_INSTALL = "is a Delta Lake table, which needs one more library: pip install 'fewpass[lake]'."
_VECTOR = re.compile(r"deletion_vector_.*\.bin")


class Rewrite(NamedTuple):
    """Files that replaced others with the same rows, as by compaction."""

    removed: frozenset[str]
    added: frozenset[str]


def read_delta_snapshot(
    filesystem: pafs.FileSystem, place: str, path: str, at: str | None, access: FileAccess = ANYWHERE
) -> Snapshot:
    """Read the table at a version or time.

    `place`: the table as requested, for messages. `path`: the same on the file system. `at`: a version, or a time as
    ISO 8601: the last version that was committed by then. None: the newest one. `access`: what may be read, asked of
    each file of the log before it is opened, and of all vectors of deleted rows. Raises SourceError if the library is
    not there, the table has no such version, or asks its readers for what we do not know.
    """
    try:
        from deltalake import DeltaTable
    except ImportError as error:
        raise SourceError(place, _INSTALL) from error
    path = path.rstrip("/")
    access.require(filesystem, [f"{path}/{LOG}"])
    commits = _commits(filesystem, path)
    version = None if at is None else _version(place, at, commits)
    try:
        with _local(filesystem, path, version) as folder:
            _check_log(place, folder, access if is_local_filesystem(filesystem) else ANYWHERE)
            return _snapshot(DeltaTable(folder, version=version), place, path, commits)
    except (SourceError, MemoryError):
        raise
    except Exception as error:  # of a log that anybody may have written, its decoders raise whatever they like
        if version is not None and version < min(commits, default=0):
            raise SourceError(
                place, f"no longer has version {version}: its log begins with version {min(commits)}."
            ) from error
        raise SourceError(
            place, store_error_reason(error) or f"cannot be read as a Delta Lake table ({one_line_error_text(error)})."
        ) from error


def delta_file_rewrites(filesystem: pafs.FileSystem, path: str, old: Snapshot, new: Snapshot) -> list[Rewrite]:
    """Return the rewrites that replaced files of a snapshot with files of a later one, from the commits between them.

    These are the commits whose changes all declare `dataChange: false`. A file that any other commit touched is
    excluded.
    """
    before, after = {file.path for file in old.files}, {file.path for file in new.files}
    groups: list[tuple[set[str], set[str]]] = []
    changed: set[str] = set()
    for version in range(int(old.version) + 1, int(new.version) + 1):
        removed, added, is_change = _actions(filesystem, path.rstrip("/"), version)
        if is_change is None:  # or columns may have been renamed
            return []
        if is_change:
            changed |= removed | added
            continue
        touched = [group for group in groups if group[1] & removed]
        groups = [group for group in groups if group not in touched]
        sources = removed.difference(*(group[1] for group in touched)).union(*(group[0] for group in touched))
        still_there = set().union(*(group[1] for group in touched)) - removed
        if removed:
            groups.append((sources, still_there | added))
    return [
        Rewrite(frozenset(removed), frozenset(added))
        for removed, added in groups
        if removed <= before and added <= after and not removed & changed and not added & changed
    ]


def _actions(filesystem: pafs.FileSystem, path: str, version: int) -> tuple[set[str], set[str], bool | None]:
    """Return the files that a commit removes and adds, and whether it changes rows; None if the commit is missing, is not
    understood, or changes columns.
    """
    removed, added, is_change = set[str](), set[str](), False
    try:
        with filesystem.open_input_stream(f"{path}/{LOG}/{version:020}.json", compression=None) as stream:
            lines = stream.read().splitlines()
    except (OSError, pa.ArrowException):
        return removed, added, None
    try:
        actions = [json.loads(line) for line in lines if line.strip()]
        for action in actions:
            for name, places in (("remove", removed), ("add", added)):
                if action.get(name) is not None:
                    places.add(f"{path}/{unquote(action[name]['path'])}")
                    is_change = is_change or bool(action[name].get("dataChange", True))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return removed, added, None
    return removed, added, None if any("metaData" in action for action in actions) else is_change


def _check_log(place: str, folder: str, access: FileAccess) -> None:
    """Check all files of a log, and the files that they reference, before the library opens them. Raises as
    `read_delta_snapshot`.
    """
    here = pafs.LocalFileSystem()
    infos = here.get_file_info(pafs.FileSelector(f"{folder}/{LOG}", allow_not_found=True))
    infos += here.get_file_info(pafs.FileSelector(f"{folder}/{LOG}/_sidecars", allow_not_found=True))
    logs = [info.path for info in infos if info.type != pafs.FileType.Directory]
    access.require_regular(here, logs)
    logs = [log for log in logs if _VERSIONED.fullmatch(log.rpartition("/")[2]) or "/_sidecars/" in log]
    access.require_regular(here, named_log_files(here, place, folder, logs))


def _commits(filesystem: pafs.FileSystem, path: str) -> dict[int, datetime | None]:
    """Return the versions whose commits are in the log, with their modification times."""
    commits = {}
    for info in filesystem.get_file_info(pafs.FileSelector(f"{path}/{LOG}", allow_not_found=True)):
        match = _VERSIONED.fullmatch(info.base_name)
        if match is not None and match[2] == "json":
            commits[int(match[1])] = None if info.mtime is None else info.mtime.astimezone(UTC)
    return dict(sorted(commits.items()))


def _version(place: str, at: str, commits: Mapping[int, datetime | None]) -> int:
    """Resolve a version number or time to a version."""
    if at.isdecimal():
        if commits and int(at) > max(commits):
            raise SourceError(place, f"has no version {at}: its newest is {max(commits)}.")
        return int(at)
    as_of = parse_snapshot_time(place, at)
    before = [version for version, time in commits.items() if time is not None and time <= as_of]
    if not before:
        first = next(((version, time) for version, time in commits.items() if time is not None), None)
        known = "" if first is None else f": the first that its log holds is {first[0]}, of {first[1].isoformat()}"
        raise SourceError(place, f"has no version of {as_of.isoformat()} or before{known}.")
    return max(before)


@contextmanager
def _local(filesystem: pafs.FileSystem, path: str, version: int | None) -> Iterator[str]:
    """Yield a local folder with the table's log: the table itself, or a copy.

    The log is read through the same file system, with the same credentials, as the data.
    """
    if is_local_filesystem(filesystem):
        yield str(Path(path).absolute())
        return
    with tempfile.TemporaryDirectory(prefix="fewpass-") as folder:
        (Path(folder) / LOG).mkdir()
        has_vectors = False
        for name in _needed(filesystem, path, version):
            has_vectors |= b"deletionVector" in _copied(filesystem, path, name, Path(folder))
        infos = filesystem.get_file_info(pafs.FileSelector(path, recursive=True)) if has_vectors else ()
        for info in infos:
            if _VECTOR.fullmatch(info.base_name):
                _copied(filesystem, path, info.path.removeprefix(f"{path}/"), Path(folder))
        yield folder


def _copied(filesystem: pafs.FileSystem, path: str, name: str, folder: Path) -> bytes:
    """Copy a file of the table and return its content."""
    with filesystem.open_input_stream(f"{path}/{name}", compression=None) as stream:
        content: bytes = stream.read()
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return content


def _needed(filesystem: pafs.FileSystem, path: str, version: int | None) -> list[str]:
    """Return the log files that a version needs: the last checkpoint before it, and later commits."""
    infos = filesystem.get_file_info(pafs.FileSelector(f"{path}/{LOG}", recursive=True))
    entries = [(match, info) for info in infos if (match := _VERSIONED.fullmatch(info.base_name))]
    within = [(int(match[1]), match[2], info) for match, info in entries if version is None or int(match[1]) <= version]
    first = max((number for number, kind, _ in within if kind != "json"), default=0)
    sidecars = [f"{LOG}/_sidecars/{info.base_name}" for info in infos if "/_sidecars/" in info.path]
    return [f"{LOG}/{info.base_name}" for number, _, info in within if number >= first] + sidecars


def _snapshot(table: Any, place: str, path: str, commits: Mapping[int, datetime | None]) -> Snapshot:
    features = set(table.protocol().reader_features or ())
    if unknown := sorted(features - FEATURES):
        raise SourceError(
            place,
            f"requires the reader features {', '.join(unknown)}, which are not supported. Write the table without them.",
        )
    fields = json.loads(table.schema().to_json())["fields"]
    mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
    physical, ids = {}, {}
    for one in fields if mode != "none" else ():
        metadata = one.get("metadata", {})
        physical[one["name"]] = str(metadata.get("delta.columnMapping.physicalName", one["name"]))
        if mode == "id" and "delta.columnMapping.id" in metadata:
            ids[one["name"]] = int(metadata["delta.columnMapping.id"])
    version = int(table.version())
    time = commits.get(version)
    return Snapshot(
        kind=DELTA,
        place=place,
        path=path,
        version=str(version),
        time="" if time is None else time.isoformat(),
        columns=pa.schema(table.schema().to_arrow()),
        physical=physical,
        ids=ids,
        files=_files(table, place, path, "deletionVectors" in features),
    )


def _files(table: Any, place: str, path: str, has_vectors: bool) -> tuple[LakeFile, ...]:
    added = pa.table(table.get_add_actions(flatten=True))
    deleted = _deleted_rows(table) if has_vectors else {}
    partitions = {
        name.removeprefix("partition."): _plain(added[name])
        for name in added.column_names
        if name.startswith("partition.")
    }
    files = []
    for index, name in enumerate(added["path"].to_pylist()):
        own_path = unquote(name)
        if "://" in name or name.startswith("/") or ".." in PurePosixPath(own_path).parts or "\0" in own_path:
            raise SourceError(place, f"has a file outside its folder ({name}), as a shallow clone has. Copy the table.")
        values = {column: scalars[index] for column, scalars in partitions.items()}
        rows = deleted.pop(posixpath.normpath(own_path), None)
        files.append(LakeFile(f"{path}/{own_path}", values, *(() if rows is None else (rows,))))
    if deleted:  # or rows would be read that are deleted
        raise SourceError(place, f"has deleted rows of a file that its log does not name ({min(deleted)[:200]}).")
    return tuple(sorted(files, key=lambda file: file.path))


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    is_text = pa.types.is_large_string(column.type) or pa.types.is_string_view(column.type)
    return column.cast(pa.string()) if is_text else column


def _deleted_rows(table: Any) -> dict[str, np.ndarray[Any, np.dtype[np.int64]]]:
    """Return the positions of the deleted rows by the decoded path of the file; the library names files by URLs."""
    root = str(table.table_uri).rstrip("/") + "/"
    positions = {}
    for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors()):
        for uri, live in zip(batch.column("filepath"), batch.column("selection_vector"), strict=True):
            is_live = np.asarray(live.values.to_numpy(zero_copy_only=False), bool)
            name = posixpath.normpath(unquote(uri.as_py().removeprefix(root)))
            positions[name] = np.flatnonzero(~is_live).astype(np.int64)
    return positions
