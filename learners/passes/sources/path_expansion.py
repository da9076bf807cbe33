"""Expand paths, folders and globs to files; links are followed where the caller may read, without recursion into
cycles.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterator
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line_error_text
from learners.passes.sources.file_access import Look
from learners.passes.sources.file_formats import FORMAT_NAMES, PARQUET, file_format_by_extension
from learners.passes.sources.guarded_files import is_local_filesystem
from learners.passes.sources.lake.lake_tables import refuse_lake_table_part, refuse_nested_lake_tables
from learners.passes.sources.source_files import store_error_reason

WILDCARDS = "*?["
# Folders as Hive and Spark write them: `day=2026-01-01/part-0.parquet`.
FOLDER = re.compile(r"([\w%][^=]*)=(.*)", re.DOTALL)
NULL = "__HIVE_DEFAULT_PARTITION__"
HIDDEN = (".", "_")
# Folders that every workspace has: its tables are models, statistics and scratch files, not data.
OF_A_WORKSPACE = ("datasets", "models", "queries", "scratch")


class Found(NamedTuple):
    """Entry of a folder."""

    path: str
    is_file: bool

    @property
    def name(self) -> str:
        """Last part of the path."""
        return self.path.rpartition("/")[2]


def by_name_and_number(path: str) -> tuple[list[str | int], str]:
    """Return a key that orders paths by name, and the numbers in them by size: part-2 before part-10."""
    parts = re.split("([0-9]+)", path)  # text and numbers in turn
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], path


def expand_path_to_files(
    filesystem: pafs.FileSystem, path: str, look: Look | None = None
) -> tuple[list[str], str | None]:
    """Return the files that a path, folder or glob names, by name and number, and a description of the other files in the folder
    that are not read.

    In a folder these are its Parquet files, or else the files of its only other format. `look` holds the
    permissions, and counts the scanned entries.

    Raises SourceError if nothing is found, the files of a folder have several formats, or there is too much to
    scan; and the error of `look.access` if a path, or a link's target, may not be read.
    """
    look = look or Look()
    look.access.require(filesystem, [_fixed_folder(path) if _has_wildcards(path) else path])
    try:
        info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.NotFound and _has_wildcards(path):
            return _matching(filesystem, path, look), None
        look.access.require(filesystem, [path])
        if info.type == pafs.FileType.Directory:
            return _in_folder(filesystem, path, look)
    except SourceError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise SourceError(
            path, store_error_reason(error) or f"cannot be listed ({one_line_error_text(error)})."
        ) from error
    if info.type == pafs.FileType.Unknown:
        raise SourceError(path, "is a pipe, a socket or a device, not a file or folder.")
    if info.type != pafs.FileType.File:
        raise SourceError(path, "no such file or folder.")
    return [path], None


def first_match(path: str, look: Look) -> str | None:
    """Return the first local file or folder that a glob matches, if any. Raises as `expand_path_to_files`."""
    look.access.require(pafs.LocalFileSystem(), [_fixed_folder(path)])
    return next((found.path for found in _matches(path, look)), None)


def _has_wildcards(path: str) -> bool:
    return any(mark in path for mark in WILDCARDS)


def _fixed_folder(path: str) -> str:
    """Return the folder above the first part of a glob with a wildcard."""
    return str(PurePosixPath(re.split(r"[*?\[]", path, maxsplit=1)[0] + "x").parent)


def _matching(filesystem: pafs.FileSystem, path: str, look: Look) -> list[str]:
    """Return the files that a glob matches, by name and number."""
    is_hidden = HIDDEN if not PurePosixPath(path).name.startswith(HIDDEN) else ()
    if is_local_filesystem(filesystem):
        matches = [found for found in _matches(path, look) if found.is_file]
    else:
        base, n_parts = _fixed_folder(path), len(PurePosixPath(path).parts)
        is_deep = "**" in path or n_parts > len(PurePosixPath(base).parts) + 1
        infos = filesystem.get_file_info(pafs.FileSelector(base, recursive=is_deep, allow_not_found=True))
        look.count(path, len(infos))
        matches = [
            Found(info.path, True)
            for info in infos
            if info.type == pafs.FileType.File
            and (_matches_deep(info.path, path) if "**" in path else fnmatch(info.path, path))
            and ("**" in path or len(PurePosixPath(info.path).parts) == n_parts)
        ]
    paths = sorted((found.path for found in matches if not found.name.startswith(is_hidden)), key=by_name_and_number)
    if not paths:
        raise SourceError(path, "matches no file.")
    look.access.require(filesystem, paths)
    for folder in {str(PurePosixPath(entry).parent) for entry in paths}:
        refuse_lake_table_part(filesystem, folder)
    return paths


def _matches_deep(path: str, pattern: str) -> bool:
    """Return whether a path matches a glob with `**`, which stands for any number of folders, also for none."""
    parts, wild = PurePosixPath(path).parts, PurePosixPath(pattern).parts
    if any("**" in part and part != "**" for part in wild):  # as in `day-**.parquet`: any text, folders included
        return fnmatch(path, pattern)
    places = _with_skipped({0}, wild)
    for part in parts:
        inside = {at for at in places if at < len(wild)}
        places = {at if wild[at] == "**" else at + 1 for at in inside if wild[at] == "**" or fnmatch(part, wild[at])}
        places = _with_skipped(places, wild)
    return len(wild) in places


def _with_skipped(places: set[int], wild: tuple[str, ...]) -> set[int]:
    """Return places in a glob, and those behind each `**` at them, which may stand for no folder."""
    reached = set(places)
    for at, part in enumerate(wild):
        if at in reached and part == "**":
            reached.add(at + 1)
    return reached


def _matches(path: str, look: Look) -> Iterator[Found]:
    """Yield the local entries that a glob matches; only folders that can contain matches are scanned."""
    base = _fixed_folder(path)
    prefix = "" if base not in (".", "") or path.startswith(".") else "./"
    parts = PurePosixPath(prefix + path).parts
    wild = parts[len(PurePosixPath(base).parts) :]
    if ".." in wild:
        raise SourceError(path, 'has ".." after a wildcard. Write the folders out.')
    if "**" in path:
        yield from (found for found in local_entries(base, look) if _matches_deep(found.path, prefix + path))
        return

    def goes_into(name: str, depth: int) -> bool:
        return depth < len(wild) - 1 and fnmatch(name, wild[depth])

    for found in local_entries(base, look, goes_into):
        own = found.path.count("/") - (base.rstrip("/").count("/") if base == "/" else base.count("/"))
        if own == len(wild) and fnmatch(found.name, wild[-1]):
            yield found


def local_entries(
    base: str, look: Look, goes_into: Callable[[str, int], bool] = lambda _name, _depth: True
) -> Iterator[Found]:
    """Yield all entries below a local folder, in any order; none if it does not exist.

    `goes_into(name, depth)` returns whether to scan a folder, `depth` levels below `base`. A folder that is
    reached again from within itself is not entered, so each of its files is yielded once; nor is a workspace
    that lies below `base`. Raises the error of `look` before a link is followed.
    """
    try:
        top = os.stat(base)  # noqa: PTH116
    except (FileNotFoundError, NotADirectoryError):
        return
    left = [(base, 0, frozenset({(top.st_dev, top.st_ino)}))]
    local = pafs.LocalFileSystem()
    while left:
        folder, depth, above = left.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                look.count(base)
                path = f"{folder.rstrip('/')}/{entry.name}"
                is_entered = goes_into(entry.name, depth)
                if entry.is_symlink() and is_entered and not entry.name.startswith("."):
                    look.access.require(local, [path])
                is_folder = entry.is_dir()
                yield Found(path, not is_folder and entry.is_file())
                if is_folder and is_entered and not is_workspace(path):
                    own = entry.stat()
                    if (own.st_dev, own.st_ino) not in above:
                        left.append((path, depth + 1, above | {(own.st_dev, own.st_ino)}))


def is_workspace(folder: str) -> bool:
    """Return whether a local folder is a workspace of fewpass."""
    return all(os.path.isdir(f"{folder}/{name}") for name in OF_A_WORKSPACE)  # noqa: PTH112


def file_place(filesystem: pafs.FileSystem, path: str) -> Hashable:
    """Return what distinguishes a file from others: its real path, and the columns from its folders.

    `x.csv`, `./x.csv` and a link to it are one file, whose rows count once; a link `day=2` to `day=1` gives
    different rows.
    """
    if not is_local_filesystem(filesystem):
        return path
    # Where a link leads elsewhere, ".." behind it does not undo it.
    return os.path.realpath(path), tuple(hive_partition_values(os.path.abspath(path)).items())  # noqa: PTH100


def hive_partition_values(path: str) -> dict[str, str | None]:
    """Return the names and values in the folders directly above a file, outermost first.

    Folders further up, separated by other folders, are not part of the table's partitioning.
    """
    values: list[tuple[str, str | None]] = []
    for folder in reversed(PurePosixPath(path).parent.parts):
        match = FOLDER.fullmatch(folder)
        if match is None:
            break
        name, value = (_decoded(text) for text in match.groups())
        values.append((name, None if value == NULL else value))
    return dict(reversed(values))


def _decoded(text: str) -> str:
    """Decode percent escapes; text that does not decode to UTF-8 is unchanged, so that different texts stay different."""
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text


def _below(filesystem: pafs.FileSystem, path: str, look: Look) -> list[Found]:
    """Return all entries below a folder."""
    if is_local_filesystem(filesystem):
        return list(local_entries(path, look))
    infos = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
    look.count(path, len(infos))
    return [Found(info.path, info.type == pafs.FileType.File) for info in infos]


def _in_folder(filesystem: pafs.FileSystem, path: str, look: Look) -> tuple[list[str], str | None]:
    paths: dict[str, list[str]] = {}
    below = _below(filesystem, path, look)
    refuse_nested_lake_tables(path, [entry.path for entry in below])
    refuse_lake_table_part(filesystem, path, takes_itself=False)
    for entry in below:
        kind = file_format_by_extension(entry.path)
        if entry.is_file and kind is not None and not entry.name.startswith(HIDDEN):
            paths.setdefault(kind, []).append(entry.path)
    if not paths:
        raise SourceError(path, f"is a folder without files of a known format ({FORMAT_NAMES}).")
    if PARQUET not in paths and len(paths) > 1:
        raise SourceError(
            path, f"is a folder with {' and '.join(sorted(paths))} files. Choose one format, as in *.csv."
        )
    read = sorted(paths.get(PARQUET) or next(iter(paths.values())), key=by_name_and_number)
    look.access.require(filesystem, read)
    others = sorted({path for own in paths.values() for path in own} - set(read))
    if not others:
        return read, None
    names = ", ".join(PurePosixPath(each).name for each in others[:3]) + (", …" if len(others) > 3 else "")
    return read, f"{path}: reading only the Parquet files, not {names}. Name all files to read them as one table."
