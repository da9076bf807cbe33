"""Detect lake tables, resolve the snapshot of a path, and find changes since an earlier snapshot."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line_error_text
from learners.passes.sources.file_access import ANYWHERE, FileAccess
from learners.passes.sources.lake import delta, iceberg
from learners.passes.sources.lake.iceberg import iceberg_metadata_files
from learners.passes.sources.lake.snapshots import (
    DELTA,
    ICEBERG,
    LOG,
    METADATA,
    METADATA_END,
    Snapshot,
    open_snapshot_files,
)
from learners.passes.sources.source_files import SourceFile, file_identity, store_error_reason

SCHEMES = {"delta": DELTA, "iceberg": ICEBERG}
# A table of a catalog is a place by its whole address.
_URI = re.compile(r"(?:(delta|iceberg)://|(?=catalog://.))(.+?)(?:@([^@/]+))?", re.IGNORECASE)
_FOLDER = re.compile(r"[^/]+=[^/]*")
READERS = {DELTA: delta.read_delta_snapshot, ICEBERG: iceberg.read_iceberg_snapshot}
_ANEW = "If the counts of those rows were not stored separately, the remaining rows are counted again."


class Named(NamedTuple):
    """Parsed path or URI of a table: its format, if given, its location and the snapshot."""

    kind: str | None
    place: str
    at: str | None


def parse_lake_table_uri(uri: str) -> Named:
    """Parse `delta://PLACE@VERSION`, `iceberg://PLACE@SNAPSHOT` and `catalog://NAME/TABLE@SNAPSHOT`; any other path is
    a location without a snapshot.
    """
    match = _URI.fullmatch(uri)
    if match is None:
        return Named(None, uri, None)
    return Named(SCHEMES[(match[1] or "iceberg").lower()], match[2], match[3])


def lake_table_format(filesystem: pafs.FileSystem, path: str) -> str | None:
    """Return the format of a lake table; None if the path is not one."""
    if path.endswith(METADATA_END):
        return ICEBERG
    folder = path.rstrip("/")
    log, metadata = filesystem.get_file_info([f"{folder}/{LOG}", f"{folder}/{METADATA}"])
    if log.type == pafs.FileType.Directory:
        return DELTA
    is_iceberg = metadata.type == pafs.FileType.Directory and bool(iceberg_metadata_files(filesystem, folder))
    return ICEBERG if is_iceberg else None


def refuse_lake_table_part(filesystem: pafs.FileSystem, folder: str, *, takes_itself: bool = True) -> None:
    """Refuse a folder inside a lake table, such as a partition: its files alone do not show which rows are deleted.

    `takes_itself`: whether to check the folder itself, which the caller may already have done.

    Raises SourceError.
    """
    place = PurePosixPath(folder)
    while _FOLDER.fullmatch(place.name):
        place = place.parent
    for table in (place, place.parent) if place.name == "data" else (place,):
        if not takes_itself and table == PurePosixPath(folder):
            continue
        if (kind := lake_table_format(filesystem, str(table))) is not None:
            raise SourceError(
                folder,
                f"lies in the {kind} table {table}, whose log decides which rows are valid. Name that folder instead.",
            )


def refuse_lake_table_files(filesystem: pafs.FileSystem, paths: Iterable[str]) -> None:
    """Refuse files inside a lake table, such as a shell's expansion of `table/*.parquet`. Raises SourceError."""
    if "http" in filesystem.type_name:  # servers of files list no folders
        return
    for folder in sorted({str(PurePosixPath(path).parent) for path in paths}):
        with suppress(OSError):  # a store may give files and tell nothing of what is beside them
            refuse_lake_table_part(filesystem, folder)


def refuse_nested_lake_tables(path: str, below: list[str]) -> None:
    """Refuse a folder with lake tables below it, given the paths of its entries. Raises SourceError."""
    for entry in below:
        parts = PurePosixPath(entry).parts
        if LOG in parts:
            table = str(PurePosixPath(*parts[: parts.index(LOG)]))
            raise SourceError(path, f"holds the Delta Lake table {table}. Name only that table.")
        if entry.endswith(METADATA_END) and parts[-2:-1] == (METADATA,):
            raise SourceError(path, f"holds the Iceberg table {PurePosixPath(*parts[:-2])}. Name only that table.")


@dataclass(frozen=True)
class KnownSnapshot:
    """Recorded snapshot from which statistics were counted."""

    # `kind`, `folder`, `version`: as of `Snapshot`.
    kind: str
    folder: str
    version: str
    identities: Mapping[str, str]  # key of each file -> its identity


class Changes(NamedTuple):
    """Changes of a table since an earlier snapshot."""

    files: Sequence[SourceFile]  # that have left and are still there: their rows can be subtracted
    # Identities of files -> those of the files that hold the same rows now.
    rewrites: Sequence[tuple[frozenset[str], frozenset[str]]]
    hint: str  # what a user wants to know; else empty


def lake_table_snapshot(
    filesystem: pafs.FileSystem, uri: str, path: str, at: str | None, access: FileAccess = ANYWHERE
) -> Snapshot | None:
    """Return the snapshot of a path or URI; None if it is not a lake table.

    `uri`: the URI as requested.
    `path`: of its place on the file system.
    `at`: version or time, unless the URI has it.
    `access`: what may be read, asked of the log, of vectors of deleted rows and of all files before they are opened.
    Raises SourceError if it cannot be read, or has no such version; or if a version is requested and it is not a lake
    table.
    """
    kind, place, own_at = parse_lake_table_uri(uri)
    if at is not None and own_at is not None and at != own_at:
        raise SourceError(uri, f"names version {own_at}, but version {at} was requested. Give only one.")
    at = own_at if at is None else at
    access.require(filesystem, [path])
    try:
        info = filesystem.get_file_info(path)
        is_place = info.type == pafs.FileType.Directory or path.endswith(METADATA_END)
        table_kind = lake_table_format(filesystem, path) if is_place else None
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            place, store_error_reason(error) or f"cannot be listed ({one_line_error_text(error)})."
        ) from error
    if table_kind is None or (kind is not None and kind != table_kind):
        if kind is not None:
            raise SourceError(place, f"is not {'an' if kind == 'Iceberg' else 'a'} {kind} table.")
        if at is not None:
            raise SourceError(
                uri, f"is not a Delta Lake or Iceberg table, so it has no version {at}. Leave the version out."
            )
        return None
    return READERS[table_kind](filesystem, place, path, at, access)


def lake_table_changes(
    filesystem: pafs.FileSystem,
    snapshot: Snapshot,
    files: Sequence[SourceFile],
    known: KnownSnapshot,
    access: FileAccess = ANYWHERE,
) -> Changes:
    """Find the files that left the table since a snapshot with counted statistics; empty for a snapshot of another
    table.

    `files`: the files of the snapshot, in its order.
    """
    is_same = (known.kind, known.folder) == (snapshot.kind, snapshot.folder)
    if not is_same or known.version == snapshot.version:
        return Changes((), (), "")
    try:
        old = READERS[snapshot.kind](filesystem, snapshot.place, snapshot.path, known.version, access)
    except SourceError:
        return Changes((), (), f"{snapshot.place}: its log no longer has version {known.version}. {_ANEW}")
    now = {own.key: file_identity(file) for own, file in zip(snapshot.files, files, strict=True)}
    left = [file for file in old.files if file.key not in now]
    infos = filesystem.get_file_info([file.path for file in left]) if left else []
    there = [file for file, info in zip(left, infos, strict=True) if info.type == pafs.FileType.File]
    hint = ""
    if len(there) < len(left):
        n = len(left) - len(there)
        hint = (
            f"{snapshot.place}: {n} {'file' if n == 1 else 'files'} of version {known.version} left the table and can no "
            f"longer be read. {_ANEW}"
        )
    gone = open_snapshot_files(filesystem, snapshot, there, access)
    return Changes(gone, _rewrites(filesystem, old, snapshot, now, known), hint)


def _rewrites(
    filesystem: pafs.FileSystem, old: Snapshot, new: Snapshot, now: Mapping[str, str], known: KnownSnapshot
) -> list[tuple[frozenset[str], frozenset[str]]]:
    if new.kind != DELTA or int(old.version) > int(new.version):
        return []
    before = {file.path: known.identities.get(file.key) for file in old.files}
    after = {file.path: now[file.key] for file in new.files}
    rewrites = []
    for rewrite in delta.delta_file_rewrites(filesystem, new.path, old, new):
        removed = [before[path] for path in rewrite.removed]
        if all(identity is not None for identity in removed):
            pair = frozenset(str(identity) for identity in removed), frozenset(after[path] for path in rewrite.added)
            rewrites.append(pair)
    return rewrites
