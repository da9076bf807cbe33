"""Whole folders that appear at once, durably: those of backups and restores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from storage.files.workspace_layout import drafting, fsync_directory, sweep_one

_DRAFT = re.compile(r"\.[0-9a-f]{16}\.partial")


@contextmanager
def drafting_beside(path: Path) -> Iterator[Path]:
    """A private place beside `path`, from where one rename brings a folder or a file there; swept away should this process die.

    What killed processes have left beside it is removed first. Only folders with the names of our drafts are touched, and
    only those whose lock the kernel has dropped: the place may be anybody's.
    """
    with drafting(path.parent, path.name) as draft:
        for folder in path.parent.iterdir():
            if _DRAFT.fullmatch(folder.name) and folder != draft.parent:
                sweep_one(folder)
        yield draft


def settle_tree(draft: Path, path: Path) -> None:
    """Give a complete folder its name: fsync of every file, of every folder, rename, fsync of the folder above.

    The draft is on the same file system; the path may be an empty folder, which is replaced. Raises OSError if the disk
    refuses; `drafting_beside` says it as Unwritable.
    """
    for parent, _, names in os.walk(draft, topdown=False):
        for name in names:
            with Path(parent, name).open("rb") as file:
                os.fsync(file.fileno())
        fsync_directory(Path(parent))
    draft.rename(path)
    fsync_directory(path.parent)
