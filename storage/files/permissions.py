"""Who may read a workspace: its user alone, and its group where the folder lets the group write. Nobody else."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# The folders right below the workspace that hold rows, models, or what requests have said.
PRIVATE_FOLDERS = ("models", "datasets", "scratch", "outputs", "monitoring", "logs", "workers", "queries")
SECRETS = ("control.sqlite*", "monitoring/secret", "monitoring/.records/*.json")


def private_mode(folder: Path, mode: int) -> int:
    """A mode without rights of others, and of the group only where it may write in `folder`: so a workspace is shared."""
    return mode & (0o770 if folder.stat().st_mode & stat.S_IWGRP else 0o700)


def create_private(path: Path) -> None:
    """Make an empty file for this user, unless there is one; a disk that refuses is left to whoever writes the file."""
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, private_mode(path.parent, 0o660)))


def open_to_others(root: Path) -> Iterator[Path]:
    """The workspace if others may enter it, and the secrets in it that they could then read."""
    places = [root, *(path for pattern in SECRETS for path in sorted(root.glob(pattern)))]
    for path in places:
        with suppress(FileNotFoundError):  # SQLite removes its log
            if path.stat().st_mode & stat.S_IRWXO:
                yield path
