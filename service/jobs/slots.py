"""The slots of a workspace's workers: each holds the lock of one as long as it lives, and the number is its identity."""

import fcntl
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

from storage.files import locked


def take_slot(locks: Path) -> tuple[int, IO[bytes]]:
    """The lowest free slot of this workspace, held until the file is closed or the process dies.

    Returns
    -------
    (int, open file)
        The file holds the lock: keep it.
    """
    slot = 0
    with _alone(locks):
        while True:
            lock = _path(locks, slot).open("wb")
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.close()
                slot += 1
            else:
                return slot, lock


def is_taken(locks: Path, slot: int) -> bool:
    """Whether a living worker holds the slot."""
    try:
        with _alone(locks), _path(locks, slot).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def slots_of(locks: Path) -> list[int]:
    """All slots that were ever taken."""
    return sorted(int(path.stem.removeprefix("worker-")) for path in locks.glob("worker-*.lock"))


def _path(locks: Path, slot: int) -> Path:
    return locks / f"worker-{slot}.lock"


def _alone(locks: Path) -> AbstractContextManager[None]:
    # To look is to take the lock for a moment, and a worker that starts in that moment would get another slot.
    return locked(locks / "slots")
