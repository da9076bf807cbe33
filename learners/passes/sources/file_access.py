"""Access control for readers: which files may be opened, and how many entries of a file system may be scanned."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow.fs as pafs

from learners.errors import SourceError
from learners.passes.sources.guarded_files import GuardedFiles, is_local_filesystem


@dataclass(frozen=True)
class FileAccess:
    """Permissions of the caller.

    `check` receives the path of each local file and folder before it is opened or listed, and raises a
    SourceError if its real path, after links, may not be read. `most_entries` and `most_s` limit the search for
    files.
    """

    check: Callable[[str], object] | None = None
    most_entries: int = 10_000_000
    most_s: float = float("inf")
    pause: Callable[[], object] | None = None  # called every few hundred entries; what it raises ends the look

    def require(self, filesystem: pafs.FileSystem, paths: Iterable[str]) -> None:
        """Raise the error of `check` if any path may not be read; object stores have no links."""
        if self.check is not None and is_local_filesystem(filesystem):
            for path in paths:
                self.check(path)

    def guarded(self, filesystem: pafs.FileSystem) -> pafs.FileSystem:
        """The file system, where files of this machine are looked at once more when they are open: a link may have taken their place."""
        if self.check is None or not isinstance(filesystem, pafs.LocalFileSystem):
            return filesystem
        return pafs.PyFileSystem(GuardedFiles(self.check))

    def require_regular(self, filesystem: pafs.FileSystem, paths: Iterable[str]) -> None:
        """Check as `require`, and raise SourceError for pipes, sockets and devices, on which a library would block."""
        paths = list(paths)
        self.require(filesystem, paths)
        for path in paths if is_local_filesystem(filesystem) else ():
            if os.path.lexists(path) and os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):  # noqa: PTH110, PTH116
                raise SourceError(path, "is not a regular file. Replace it by one.")


ANYWHERE = FileAccess()


class TooMuchToLookThrough(SourceError):
    """Raised if the folders of a path or pattern have too many entries to scan, or scanning takes too long."""


@dataclass
class Look:
    """Number of entries scanned so far by one opening."""

    access: FileAccess = ANYWHERE
    n_entries: int = 0
    started: float = field(default_factory=time.monotonic)

    def count(self, path: str, n_entries: int = 1) -> None:
        """Count folder entries. Raises SourceError if there are too many, or scanning takes too long."""
        self.n_entries += n_entries
        if self.n_entries > self.access.most_entries:
            raise TooMuchToLookThrough(
                path,
                f"matches more than {self.access.most_entries:,} directory entries. Use a more specific path.",
            )
        if self.n_entries % 256 and n_entries == 1:
            return
        if self.access.pause is not None:
            self.access.pause()
        if time.monotonic() - self.started > self.access.most_s:
            raise TooMuchToLookThrough(
                path, f"takes longer than {self.access.most_s:g} s to list. Use a more specific path."
            )
