"""Which paths are lake tables, or lie in one: told by the folders of their logs, without any library."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import PurePosixPath
from typing import NamedTuple

import pyarrow.fs as pafs

from learners.errors import SourceError

DELTA, ICEBERG = "Delta Lake", "Iceberg"
SCHEMES = {"delta": DELTA, "iceberg": ICEBERG}
LOG, METADATA, METADATA_END = "_delta_log", "metadata", ".metadata.json"
# A table of a catalog is a place by its whole address.
_URI = re.compile(r"(?:(delta|iceberg)://|(?=catalog://.))(.+?)(?:@([^@/]+))?", re.IGNORECASE)
_FOLDER = re.compile(r"[^/]+=[^/]*")


class Named(NamedTuple):
    """What a path or URI says of a table: its format, if it is told, its place, and the snapshot."""

    kind: str | None
    place: str
    at: str | None


def named(uri: str) -> Named:
    """The parts of `delta://PLACE@VERSION`, `iceberg://PLACE@SNAPSHOT` and `catalog://NAME/TABLE@SNAPSHOT`; any other path is a place by itself."""
    match = _URI.fullmatch(uri)
    if match is None:
        return Named(None, uri, None)
    return Named(SCHEMES[(match[1] or "iceberg").lower()], match[2], match[3])


def kind_of_table(filesystem: pafs.FileSystem, path: str) -> str | None:
    """The format of a lake table; None if the path is none."""
    if path.endswith(METADATA_END):
        return ICEBERG
    folder = path.rstrip("/")
    log, metadata = filesystem.get_file_info([f"{folder}/{LOG}", f"{folder}/{METADATA}"])
    if log.type == pafs.FileType.Directory:
        return DELTA
    is_iceberg = metadata.type == pafs.FileType.Directory and bool(metadata_files(filesystem, folder))
    return ICEBERG if is_iceberg else None


def metadata_files(filesystem: pafs.FileSystem, folder: str) -> list[str]:
    """The metadata files of an Iceberg table."""
    below = filesystem.get_file_info(pafs.FileSelector(f"{folder}/{METADATA}", allow_not_found=True))
    return [info.path for info in below if info.base_name.endswith(METADATA_END)]


def refuse_part_of_table(filesystem: pafs.FileSystem, folder: str, *, takes_itself: bool = True) -> None:
    """Refuse a folder of a lake table, such as one of a partition: its files alone do not tell which rows are deleted.

    `takes_itself` says whether the folder may be the table, which a caller that has looked there knows.

    Raises SourceError.
    """
    place = PurePosixPath(folder)
    while _FOLDER.fullmatch(place.name):
        place = place.parent
    for table in (place, place.parent) if place.name == "data" else (place,):
        if not takes_itself and table == PurePosixPath(folder):
            continue
        if (kind := kind_of_table(filesystem, str(table))) is not None:
            raise SourceError(
                folder, f"lies in the {kind} table {table}, whose log tells which rows count. Name that folder."
            )


def refuse_files_of_tables(filesystem: pafs.FileSystem, paths: Iterable[str]) -> None:
    """Refuse files that lie in a lake table, as a shell names them for `table/*.parquet`. Raises SourceError."""
    if "http" in filesystem.type_name:  # servers of files list no folders
        return
    for folder in sorted({str(PurePosixPath(path).parent) for path in paths}):
        with suppress(OSError):  # a store may give files and tell nothing of what is beside them
            refuse_part_of_table(filesystem, folder)


def refuse_tables_below(path: str, below: list[str]) -> None:
    """Refuse a folder with lake tables somewhere below it, by the paths of all that lies there. Raises SourceError."""
    for entry in below:
        parts = PurePosixPath(entry).parts
        if LOG in parts:
            table = str(PurePosixPath(*parts[: parts.index(LOG)]))
            raise SourceError(path, f"holds the Delta Lake table {table}. Name that table by itself.")
        if entry.endswith(METADATA_END) and parts[-2:-1] == (METADATA,):
            raise SourceError(path, f"holds the Iceberg table {PurePosixPath(*parts[:-2])}. Name that table by itself.")
