"""Disk cache of compiled kernels, named by a hash of their sources.

The name covers the text of a kernel's file and of all project files that it imports. So a new checkout,
another folder or an unrelated change does not recompile anything, and a kernel never uses an outdated version
of one that it calls.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
import warnings
from functools import cache
from pathlib import Path

import platformdirs

IMPORT = re.compile(r"^from (learners[\w.]*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
OUTDATED_S = 30 * 86_400.0  # what another release or branch has compiled may still serve


def kernel_cache_folder() -> Path:
    """Return NUMBA_CACHE_DIR, or a folder in the user's cache."""
    given = os.environ.get("NUMBA_CACHE_DIR")
    return Path(given) if given else platformdirs.user_cache_path("fewpass") / "kernels"


def untrusted_cache_reason(folder: Path) -> str | None:
    """Return the reason not to load from a cache folder; None if only this user and root can write to it.

    Compiled kernels are pickles and machine code: whoever writes them can run code as this user.
    """
    for path in dict.fromkeys((folder, *folder.absolute().parents, *folder.resolve().parents)):
        found = path.stat()
        if found.st_uid not in (os.getuid(), 0):
            return f"{path} belongs to the user {found.st_uid}"
        # Whoever may write in a folder may put another in the place of one inside, except where it is sticky, like /tmp.
        is_sticky = bool(found.st_mode & stat.S_ISVTX) and path != folder
        if _others_may_write(found) and not is_sticky:
            return f"other users may write in {path}"
    return None


def _others_may_write(found: os.stat_result) -> bool:
    """Return whether others may write, including a group unless it is the user's own, which usually has the same
    number.
    """
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and found.st_gid != found.st_uid))


@cache
def is_trusted_cache_folder(folder: Path) -> bool:
    """Return whether kernels may be loaded from and saved to an existing folder; otherwise warns."""
    why = untrusted_cache_reason(folder)
    if why is not None:
        remedy = "Remove the folder, or set NUMBA_CACHE_DIR to one that only this user may write."
        message = f"Each process compiles the kernels again, because {why}. {remedy}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return why is None


@cache
def kernel_source_hash(file: Path) -> str:
    """Hash a file and the files below its package that it imports, directly or indirectly: 16 hexadecimal digits."""
    found: dict[Path, bytes] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found[path], imported = _digest_and_imports(path)
            waiting += imported
    return hashlib.sha256(b"".join(sorted(found.values()))).hexdigest()[:16]


@cache
def _digest_and_imports(path: Path) -> tuple[bytes, list[Path]]:
    content = path.read_bytes()
    return hashlib.sha256(content).digest(), _imported(content.decode(), _root_of(path))


def _root_of(file: Path) -> Path:
    """Return the folder that contains the package `learners`: the file's own, or this one for a kernel elsewhere."""
    return next((folder.parent for folder in file.parents if folder.name == "learners"), Path(__file__).parents[2])


def _imported(text: str, root: Path) -> list[Path]:
    """Return the files that `from learners.… import …` may refer to: modules, packages, and modules of packages."""
    files = []
    for module, names in IMPORT.findall(text):
        folder = root.joinpath(*module.split("."))
        members = [name.split()[0] for name in names.strip("()").replace("\n", " ").split(",") if name.strip()]
        files += [folder.with_suffix(".py"), folder / "__init__.py", *(folder / f"{name}.py" for name in members)]
    return [file for file in files if file.is_file()]


def delete_outdated_kernels(folder: Path, prefix: str, current: str) -> None:
    """Delete files compiled long ago from other versions of a kernel.

    The files of the kernel begin with `prefix`, those of its current version with `current`.
    """
    oldest = time.time() - OUTDATED_S
    for path in folder.glob(f"{prefix}*"):
        if not path.name.startswith(current) and path.stat().st_mtime < oldest:
            path.unlink(missing_ok=True)
