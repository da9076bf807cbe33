"""Storage errors: each names the offending item and a remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from difflib import get_close_matches

MOST_COMPARED = 100  # characters: looking for similar names takes time that grows with their square


class StorageError(Exception):
    """Base of all errors that storage raises deliberately."""


class NotFound(StorageError, KeyError):
    """No item of that kind has that name; similar names are suggested from `known`."""

    def __init__(self, kind: str, name: str, known: Iterable[str] = ()) -> None:
        near = get_close_matches(name[:MOST_COMPARED], known)
        similar = f" (similar: {', '.join(near)})" if near else ""
        super().__init__(
            f"There is no {kind} {name!r}{similar}. List the {kind}{'es' if kind[-1] == 's' else 's'} to see which exist."
        )
        self.kind = kind
        self.name = name

    __str__ = Exception.__str__  # KeyError would print the message in quotes


class Conflict(StorageError, ValueError):
    """The request is valid but conflicts with what is already stored."""

    def __init__(self, kind: str, name: str, reason: str) -> None:
        super().__init__(f"{kind.capitalize()} {name!r} {reason}")
        self.kind = kind
        self.name = name
        self.reason = reason


class InvalidName(StorageError, ValueError):
    """A name is not allowed, since it becomes part of a path and of a URL."""

    def __init__(self, kind: str, name: object, allowed: str) -> None:
        super().__init__(
            f"{name!r} is not a valid name for {'an' if kind[0] in 'aeiou' else 'a'} {kind}: use {allowed}."
        )
        self.kind = kind
        self.name = name


class InvalidReceipt(StorageError, ValueError):
    """A receipt of forgotten rows does not hold: it was altered, or another workspace signed it."""


class AlteredReceipt(InvalidReceipt):
    """A receipt, or the key that it names, was altered or reformatted after it was signed."""


class ForeignReceipt(InvalidReceipt):
    """A receipt is unaltered, but another key than the given one signed it."""


class InvalidCursor(StorageError, ValueError):
    """A cursor is from another list."""

    def __init__(self, cursor: str) -> None:
        super().__init__(
            f"Cursor {cursor!r} does not belong to this list. Pass next_cursor of the previous page unchanged."
        )
        self.cursor = cursor


class InvalidKey(StorageError, PermissionError):
    """An API key is unknown, revoked or expired. The message never says which, nor repeats the token."""

    def __init__(self) -> None:
        super().__init__("The API key is not valid. Ask an administrator for a new one.")


class InvalidPredicate(StorageError, ValueError):
    """A condition on rows cannot be parsed, or contains more than a condition."""

    def __init__(self, text: str, reason: str) -> None:
        super().__init__(
            f"The condition {text!r} cannot be used: {reason}. Example: user_id = 7 AND day < '2024-01-01'."
        )
        self.text = text


class _OfFile(StorageError, OSError):
    """Base of errors about a file, described by `words` and a reason."""

    words = ""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"{os.fspath(path)} {self.words}: {reason}")
        self.path, self.reason = os.fspath(path), reason


class CorruptFile(_OfFile):
    """A file is damaged, incomplete or not what its name says; none of it was used."""

    words = "is damaged"


class OutdatedModel(CorruptFile):
    """The files of a version are intact, but this release cannot load a model from them."""

    def __init__(self, version: str, reason: str, command: str) -> None:
        StorageError.__init__(
            self,
            f"{version} was made by an older release of fewpass, and this one cannot use it ({reason}). "
            f"Train it again with {command}",
        )
        self.path, self.reason = version, reason


class Unwritable(_OfFile):
    """The workspace cannot be written: the disk is full or read-only, or permissions are missing."""

    words = "cannot be written"


class OutcomeUnknown(Unwritable):
    """The disk refused to sync a commit already written: it is unknown whether the change was stored."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(
            path,
            "the disk failed during the commit, so the change may or may not be stored. Free or remount the disk, check, and repeat the "
            "change if necessary.",
        )


# Not EACCES and EPERM: of files that are not ours they say something else.
_OF_THE_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}
_WORDS_OF_THE_DISK = tuple(os.strerror(number) for number in sorted(_OF_THE_DISK))


def is_disk_write_refusal(error: BaseException) -> bool:
    """Return whether the cause is a full or read-only disk; libraries report it by error number, or only in words."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in _OF_THE_DISK
    return any(words in str(error) for words in _WORDS_OF_THE_DISK)


def disk_remedy(error: OSError) -> str:
    """Return what lets a file be written that the system refused."""
    return "Raise the limit on file sizes (ulimit -f)" if error.errno == errno.EFBIG else "Free or remount the disk"


class Unstorable(StorageError, TypeError):
    """An array, table or header has a type that cannot be stored unchanged."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} cannot be stored: {reason}")
        self.what = what


class ControlUnavailable(StorageError):
    """The control database cannot be opened or does not answer; the request may be repeated."""


class NewerDatabase(StorageError):
    """The control database was written by a later release of fewpass."""

    def __init__(self, url: str, revision: str, known: str) -> None:
        super().__init__(
            f"The control database {url} is at revision {revision!r}, and this release of fewpass supports up to {known!r}. "
            "Run the release that wrote it, or a later one."
        )
        self.revision = revision


class LeaseLost(StorageError):
    """The worker was paused for longer than its lease: others have taken over its jobs, and it may write nothing."""

    def __init__(self, worker: str) -> None:
        super().__init__(
            f"The worker {worker} did not renew its lease in time, and its jobs were given to others. It wrote nothing and restarts. If "
            "it was not stopped on purpose, raise FEWPASS_LEASE_S or reduce the load of the machine."
        )
        self.worker = worker
