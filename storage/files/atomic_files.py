"""Atomic creation of files in a workspace, and checksums that reveal a changed byte."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import xxhash

from storage.errors import Conflict, CorruptFile, Unwritable, disk_remedy

_PARTIAL = ".partial"
_DRAFT = re.compile(r"\.[0-9a-f]{16}\.partial")
_READ_ONLY = 0o444
_REFUSALS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EIO,
    errno.ENOTDIR,
    errno.EEXIST,
} | {errno.EFBIG}
_SUM = "xxh3_128"


@contextmanager
def draft_file_path(directory: Path, name: str) -> Iterator[Path]:
    """Provide the path of a draft in a private folder inside `directory`, for a file that is not yet complete.

    The folder is removed at the end, with whatever is still in it (also a write-ahead log or spilled blocks). While it
    lives it is locked; the kernel drops the lock when the writer dies, however it dies, and so `delete_abandoned_drafts` knows the
    abandoned ones without asking about process ids or ages. A missing directory is created, the file is not.
    """
    with disk_errors_as_unwritable(directory):
        _make_directory(directory)
        folder, lock = _locked_folder(directory)
    try:
        with disk_errors_as_unwritable(directory):
            yield folder / name
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def draft_path_beside(path: Path) -> Iterator[Path]:
    """Provide a private path beside `path`, from which one rename publishes a folder or a file; removed later if this
    process dies.

    What killed processes have left beside it is removed first. Only folders with the names of our drafts are touched, and
    only those whose lock the kernel has dropped: the place may be anybody's.
    """
    with draft_file_path(path.parent, path.name) as draft:
        for folder in path.parent.iterdir():
            if _DRAFT.fullmatch(folder.name) and folder != draft.parent:
                delete_abandoned_draft(folder)
        yield draft


@contextmanager
def exclusive_file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file among all processes, for read-modify-write; the lock is a hidden file beside it."""
    with disk_errors_as_unwritable(path):
        _make_directory(path.parent)
        with path.with_name(f".{path.name}.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def is_file_locked(path: Path) -> bool:
    """Return whether a live process holds the exclusive lock of a file; the check itself shares the lock for a moment."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def create_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and its parents durably (Unwritable); `mode` applies to the folder alone, and only if it is new."""
    with disk_errors_as_unwritable(folder):
        _make_directory(folder, mode)


def _make_directory(directory: Path, mode: int = 0o777) -> None:
    if not directory.is_dir():
        _make_directory(directory.parent)
        try:
            directory.mkdir(mode, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise Unwritable(directory, "it is a file, not a folder. Choose another place.") from error
        except FileNotFoundError as error:
            raise Unwritable(directory, "its file system does not support folders. Choose another place.") from error
        fsync_directory(directory.parent)


def _locked_folder(directory: Path) -> tuple[Path, int]:
    while True:
        folder = directory / f".{secrets.token_hex(8)}{_PARTIAL}"
        folder.mkdir(mode=0o700)
        # Until it is locked, a sweep of another process may take the folder for an abandoned one; then make another.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


@contextmanager
def disk_errors_as_unwritable(path: Path, then: str = "then try again.") -> Iterator[None]:
    """Translate disk errors to Unwritable of this path, with the remedy."""
    try:
        yield
    except OSError as error:
        if error.errno not in _REFUSALS:
            raise
        reason = f"{os.strerror(error.errno or 0)}. {disk_remedy(error)}, or give this user write permission, {then}"
        raise Unwritable(path, reason) from error


def delete_abandoned_drafts(directory: Path) -> tuple[Path, ...]:
    """Remove and return drafts below `directory` whose writer is dead; those of live writers, in any process, stay."""
    removed = []
    # os.walk and not Path.rglob, which raises when a folder vanishes under it.
    for parent, names, _ in os.walk(directory):
        drafts = [name for name in names if name.startswith(".") and name.endswith(_PARTIAL)]
        names[:] = sorted(set(names) - set(drafts))
        removed += [folder for name in drafts if delete_abandoned_draft(folder := Path(parent, name))]
    return tuple(removed)


@contextmanager
def held_folder(folder: Path) -> Iterator[None]:
    """Make a folder that `delete_abandoned_draft` leaves alone as long as this process lives or stays in here (Unwritable)."""
    lock = -1
    try:
        with disk_errors_as_unwritable(folder):
            while lock < 0:
                _make_directory(folder)
                with suppress(FileNotFoundError):  # removed before it was locked
                    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    if os.fstat(lock).st_nlink == 0 or not os.path.samestat(os.fstat(lock), folder.stat()):
                        os.close(lock)
                        lock = -1
        yield
    finally:
        if lock >= 0:
            os.close(lock)


def delete_abandoned_draft(folder: Path) -> bool:
    """Remove a draft if its writer is dead; return whether it was removed."""
    with suppress(OSError):  # locked by its writer, gone meanwhile, or not ours to remove
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
            return True
        finally:
            os.close(lock)
    return False


def visible_files_below(directory: Path) -> Iterator[Path]:
    """Yield the files below a directory by name, without drafts and other hidden files.

    Skips a folder that vanishes meanwhile; a yielded file may also have vanished. Raises Unwritable if a folder
    cannot be read, since its files would be missing silently.
    """

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise Unwritable(Path(error.filename or directory), f"it cannot be read ({error.strerror}).") from error

    for parent, names, files in os.walk(directory, onerror=refuse):
        names[:] = sorted(name for name in names if not name.startswith("."))
        yield from (Path(parent, name) for name in sorted(files) if not name.startswith("."))


def publish_draft_file(draft: Path, path: Path, mode: int | None = _READ_ONLY) -> None:
    """Publish a complete draft: fsync, set its mode, rename, fsync the folder; mode None keeps the draft's mode.

    Raises Unwritable if the disk refuses; the name is then not taken, or taken by the whole file.
    """
    with disk_errors_as_unwritable(path):
        with draft.open("rb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        draft.rename(path)
        fsync_directory(path.parent)


def publish_draft_folder(draft: Path, path: Path) -> None:
    """Publish a complete folder: fsync every file and folder, rename, fsync the parent folder.

    The draft is on the same file system; the path may be an empty folder, which is replaced. Raises OSError if the disk
    refuses; `draft_path_beside` says it as Unwritable.
    """
    for parent, _, names in os.walk(draft, topdown=False):
        for name in names:
            with Path(parent, name).open("rb") as file:
                os.fsync(file.fileno())
        fsync_directory(Path(parent))
    draft.rename(path)
    fsync_directory(path.parent)


def fsync_directory(directory: Path) -> None:
    """Sync a folder's entries to disk."""
    # Without this a power cut may forget the rename although the file's blocks are safe.
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def write_file_atomically(path: Path | str, *, replace: bool = False, mode: int | None = _READ_ONLY) -> Iterator[Path]:
    """Write a file that others see completely or not at all; its folder is created if missing.

    Yields a temporary path on the same file system, to be written and closed by the caller; removed if the caller raises.
    `mode` is that of the file; None follows the umask. `replace` allows an existing file of that name.
    Only for files that readers map: DuckDB, given a path that it has open, silently continues to read the former
    file. Raises Conflict if the name is taken and `replace` is false; Unwritable if the disk refuses.
    """
    path = Path(path)
    _check_free(path, replace)
    with draft_file_path(path.parent, path.name) as draft:
        yield draft
        _check_free(path, replace)
        publish_draft_file(draft, path, mode)


def read_or_create_secret(path: Path, make: Callable[[], bytes]) -> bytes:
    """Return the bytes of a secret file, which `make` provides on first use; only its owner may read it (mode 0600)."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(make())
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(draft, path)  # of several that make one, the first counts
        draft.unlink()
    return path.read_bytes()


def _check_free(path: Path, replace: bool) -> None:
    if not replace and path.exists():
        raise Conflict("file", str(path), "already exists, and published files never change. Use a new name.")


def sha256_of_file(path: Path | str) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal digits."""
    with Path(path).open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(path: Path | str, files: dict[str, str]) -> None:
    """Publish file name -> SHA-256 at `path`, in the format that ``sha256sum --check`` reads."""
    with write_file_atomically(path, replace=True) as draft:
        draft.write_text("".join(f"{sha256}  {name}\n" for name, sha256 in sorted(files.items())), encoding="utf-8")


def read_manifest(path: Path | str) -> dict[str, str]:
    """Read file name -> SHA-256 from a manifest; CorruptFile if it is missing or not a manifest."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptFile(path, f"the manifest cannot be read ({error}). Restore it from a backup.") from error
    files = {}
    for line in lines:
        sha256, separator, name = line.partition("  ")
        if not separator or len(sha256) != 64:
            raise CorruptFile(path, f"{line!r} is not a valid line of a manifest. Restore it from a backup.")
        files[name] = sha256
    return files


def verify_file_sha256(path: Path | str, sha256: str) -> None:
    """Verify the bytes of a file; CorruptFile if it is missing or its SHA-256 differs."""
    path = Path(path)
    try:
        actual = sha256_of_file(path)
    except OSError as error:
        raise CorruptFile(path, f"it cannot be read ({error.strerror}). Restore it from a backup.") from error
    if actual != sha256:
        raise CorruptFile(path, f"its SHA-256 is {actual[:16]}…, not {sha256[:16]}…. Restore it from a backup.")


def json_with_checksum(document: Mapping[str, object]) -> str:
    """Return a JSON object as text, with a checksum of all its other members."""
    return json.dumps({_SUM: _sum_of(document), **document}, indent=1)


def parse_checked_json(path: Path, text: str | bytes) -> dict[str, object]:
    """Parse an object written by `json_with_checksum`; one without a checksum, from earlier releases, is not checked.

    Raises CorruptFile if the sum is another one, ValueError or TypeError if the text is not a JSON object.
    """
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError("It holds no JSON object")
    digest = document.pop(_SUM, None)
    if digest is not None and digest != _sum_of(document):
        raise CorruptFile(path, "its content has changed since it was written. Restore it from a backup.")
    return document


def _sum_of(document: Mapping[str, object]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(canonical.encode())
