"""A local file system that checks each file against the data roots once more after opening it.

Between the check of a path and its opening, another user of the machine may replace the file by a link. An open file
cannot be replaced, so the path of the open file decides.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import NoReturn

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError

OPEN_FILES = ("/proc/self/fd", "/dev/fd")  # list the open files of the process; only the first shows their paths
LOCAL = pafs.LocalFileSystem()


class GuardedFiles(pafs.FileSystemHandler):
    """Opens local files, and passes the real path of each open file to `check`, which raises if the caller may not read it.

    Pickled copies check nothing, because the same files may have other paths on other machines.
    """

    def __init__(self, check: Callable[[str], object] | None) -> None:
        self.check = check

    def __reduce__(self) -> tuple[type[GuardedFiles], tuple[None]]:
        return GuardedFiles, (None,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GuardedFiles) and self.check == other.check

    def get_type_name(self) -> str:
        """Return the name of this kind of file system."""
        return "guarded"

    def normalize_path(self, path: str) -> str:
        """Return the path as Arrow's local file system writes it."""
        return str(LOCAL.normalize_path(path))

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """Return the type, size and time of each path."""
        return list(LOCAL.get_file_info(paths))

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return the entries of a folder."""
        return list(LOCAL.get_file_info(selector))

    def open_input_file(self, path: str) -> pa.NativeFile:
        """Open a regular file. Raises SourceError for any other, or one that was replaced meanwhile, and what `check` raises."""
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would wait for who writes
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise SourceError(path, "is not a regular file. Replace it by one.")
            if self.check is not None:
                self.check(_path_of_open_file(path, descriptor))
            return pa.OSFile(f"{_open_files()}/{descriptor}")
        finally:
            os.close(descriptor)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        """Open a file as `open_input_file` does."""
        return self.open_input_file(path)

    def _refuse(self, *args: object, **options: object) -> NoReturn:
        """Raise OSError, as a file system that is mounted read-only does."""
        del args, options
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    # Data sets are only read.
    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _refuse
    delete_file = move = copy_file = open_output_stream = open_append_stream = _refuse


def is_local_filesystem(filesystem: pafs.FileSystem) -> bool:
    """Return whether a file system holds the files of this machine."""
    if isinstance(filesystem, pafs.PyFileSystem):
        return isinstance(filesystem.handler, GuardedFiles)
    return isinstance(filesystem, pafs.LocalFileSystem)


def _open_files() -> str:
    """Return the folder in which this system lists the open files of the process."""
    return next(folder for folder in OPEN_FILES if os.path.isdir(folder))  # noqa: PTH112


def _path_of_open_file(path: str, descriptor: int) -> str:
    """Return the real path of an open file.

    Raises SourceError if the system does not show it, and `path` leads to another file by now.
    """
    if _open_files() == OPEN_FILES[0]:
        return os.readlink(f"{OPEN_FILES[0]}/{descriptor}")  # noqa: PTH115
    real, own = os.path.realpath(path), os.fstat(descriptor)
    try:
        there = os.lstat(real)
        is_same = (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino) and os.path.realpath(path) == real
    except OSError:
        is_same = False
    if not is_same:
        raise SourceError(path, "was replaced while it was being opened. Run the command again.")
    return real
