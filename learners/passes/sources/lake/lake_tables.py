"""Finding the snapshot of a lake table, and what has changed since an earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line
from learners.passes.sources.file_sets import SourceFile, file_identity, of_store
from learners.passes.sources.lake import delta, iceberg
from learners.passes.sources.lake.finding import DELTA, ICEBERG, METADATA_END, kind_of_table, named
from learners.passes.sources.lake.snapshots import Snapshot, opened_snapshot

READERS = {DELTA: delta.read_snapshot, ICEBERG: iceberg.read_snapshot}
_ANEW = "Where the counts of those rows were not kept by themselves, the rows that remain are counted anew."


@dataclass(frozen=True)
class KnownSnapshot:
    """What somebody has noted of a snapshot that statistics were counted of."""

    # `kind`, `folder`, `version`: as of `Snapshot`.
    kind: str
    folder: str
    version: str
    identities: Mapping[str, str]  # key of each file -> its identity


class Changes(NamedTuple):
    """What a snapshot lacks that an earlier one had."""

    files: Sequence[SourceFile]  # that have left and are still there: their rows can be subtracted
    # Identities of files -> those of the files that hold the same rows now.
    rewrites: Sequence[tuple[frozenset[str], frozenset[str]]]
    hint: str  # what a user wants to know; else empty


def snapshot_at(filesystem: pafs.FileSystem, uri: str, path: str, at: str | None) -> Snapshot | None:
    """The snapshot that a path or URI means; None if it is no lake table.

    `uri`: as it was asked for.
    `path`: of its place on the file system.
    `at`: version or time, unless the URI says it.
    Raises SourceError if it cannot be read, or has no such version; or if it is no lake table and a version is asked for.
    """
    kind, place, own_at = named(uri)
    if at is not None and own_at is not None and at != own_at:
        raise SourceError(uri, f"names version {own_at}, and version {at} is asked for. Say one of them.")
    at = own_at if at is None else at
    try:
        info = filesystem.get_file_info(path)
        is_place = info.type == pafs.FileType.Directory or path.endswith(METADATA_END)
        found = kind_of_table(filesystem, path) if is_place else None
    except (OSError, pa.ArrowException) as error:
        raise SourceError(place, of_store(error) or f"cannot be listed ({one_line(error)}).") from error
    if found is None or (kind is not None and kind != found):
        if kind is not None:
            raise SourceError(place, f"is no {kind} table.")
        if at is not None:
            raise SourceError(uri, f"is no Delta Lake or Iceberg table, so it has no version {at}. Leave that out.")
        return None
    return READERS[found](filesystem, place, path, at)


def changes_since(
    filesystem: pafs.FileSystem, snapshot: Snapshot, files: Sequence[SourceFile], known: KnownSnapshot
) -> Changes:
    """What has left the table since a snapshot that statistics were counted of; nothing if that is of another table.

    `files`: those of the snapshot, in its order.
    """
    is_same = (known.kind, known.folder) == (snapshot.kind, snapshot.folder)
    if not is_same or known.version == snapshot.version:
        return Changes((), (), "")
    try:
        old = READERS[snapshot.kind](filesystem, snapshot.place, snapshot.path, known.version)
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
    gone = opened_snapshot(filesystem, snapshot, there)
    return Changes(gone, _rewrites(filesystem, old, snapshot, now, known), hint)


def _rewrites(
    filesystem: pafs.FileSystem, old: Snapshot, new: Snapshot, now: Mapping[str, str], known: KnownSnapshot
) -> list[tuple[frozenset[str], frozenset[str]]]:
    if new.kind != DELTA or int(old.version) > int(new.version):
        return []
    before = {file.path: known.identities.get(file.key) for file in old.files}
    after = {file.path: now[file.key] for file in new.files}
    found = []
    for rewrite in delta.rewrites(filesystem, new.path, old, new):
        removed = [before[path] for path in rewrite.removed]
        if all(identity is not None for identity in removed):
            pair = frozenset(str(identity) for identity in removed), frozenset(after[path] for path in rewrite.added)
            found.append(pair)
    return found
