"""The files of this machine for whoever may not read all of them: each is looked at once more when it is open.

Between the check of a path and its opening, somebody with an account on the machine may put a link in its place. What is open
cannot be swapped any more, so its own path decides.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError

OPEN_FILES = ("/proc/self/fd", "/dev/fd")  # where a system shows what a process has open; only the first tells its path
LOCAL = pafs.LocalFileSystem()
READ_ONLY = "Data sets are only read."


class GuardedFiles(pafs.FileSystemHandler):
    """Opens the files of this machine, and gives the path of each open one to `check`, which raises where it may not be read.

    Copies that are sent to other machines check nothing: there the same files may have other paths.
    """

    def __init__(self, check: Callable[[str], object] | None) -> None:
        self.check = check

    def __reduce__(self) -> tuple[type[GuardedFiles], tuple[None]]:
        return GuardedFiles, (None,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GuardedFiles) and self.check == other.check

    __hash__ = None  # type: ignore[assignment]

    def get_type_name(self) -> str:
        """For Arrow."""
        return "guarded"

    def normalize_path(self, path: str) -> str:
        """For Arrow."""
        return str(LOCAL.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """What is at the paths."""
        return list(LOCAL.get_file_info(paths))

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """What is in a folder."""
        return list(LOCAL.get_file_info(selector))

    def open_input_file(self, path: str) -> pa.NativeFile:
        """An open file. Raises SourceError if it is no regular one, or was replaced meanwhile; and what `check` raises."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for who writes
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SourceError(path, "is no regular file. Put one in its place.")
            if self.check is not None:
                self.check(_path_of_open_file(path, descriptor))
            return pa.OSFile(f"{_open_files()}/{descriptor}")
        finally:
            os.close(descriptor)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """As `open_input_file`."""
        return self.open_input_file(path)

    def create_dir(self, path: str, recursive: bool) -> None:
        """Raises NotImplementedError, as all that would write."""
        raise NotImplementedError(READ_ONLY)

    def delete_dir(self, path: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)

    def delete_root_dir_contents(self) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)

    def delete_file(self, path: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)

    def move(self, src: str, dest: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)

    def copy_file(self, src: str, dest: str) -> None:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)

    def open_output_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)

    def open_append_stream(self, path: str, metadata: object) -> pa.NativeFile:
        """Raises NotImplementedError."""
        raise NotImplementedError(READ_ONLY)


def is_local_filesystem(filesystem: pafs.FileSystem) -> bool:
    """Whether its paths are those of this machine."""
    if isinstance(filesystem, pafs.PyFileSystem):
        return isinstance(filesystem.handler, GuardedFiles)
    return isinstance(filesystem, pafs.LocalFileSystem)


def _open_files() -> str:
    """Where this system shows what this process has open."""
    return next(folder for folder in OPEN_FILES if os.path.isdir(folder))  # noqa: PTH112


def _path_of_open_file(path: str, descriptor: int) -> str:
    """The real path of an open file. Raises SourceError where the system does not tell it, and `path` leads elsewhere by now."""
    if _open_files() == OPEN_FILES[0]:
        return os.readlink(f"{OPEN_FILES[0]}/{descriptor}")  # noqa: PTH115
    real, own = os.path.realpath(path), os.fstat(descriptor)
    try:
        there = os.lstat(real)
        is_same = (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino) and os.path.realpath(path) == real
    except OSError:
        is_same = False
    if not is_same:
        raise SourceError(path, "was replaced while it was opened. Start again to read it as it is now.")
    return real
