"""The slots of a workspace's workers: each holds the lock of one as long as it lives."""

import fcntl
from pathlib import Path
from typing import IO

MOST_LOOKS = 1000  # in a row; more, and a forked process keeps open what a look has opened


def take_slot(locks: Path) -> tuple[int, IO[bytes]]:
    """The lowest free slot of this workspace, and the open file that holds its lock until it is closed or the process dies."""
    locks.mkdir(parents=True, exist_ok=True)
    slot, looks = 0, 0
    while True:
        lock = _path(locks, slot).open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            looks += 1
            if is_taken(locks, slot) or looks > MOST_LOOKS:
                slot, looks = slot + 1, 0
        else:
            return slot, lock


def is_taken(locks: Path, slot: int) -> bool:
    """Whether a living worker holds the slot; to look is to share the lock for a moment."""
    try:
        with _path(locks, slot).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        pass
    return False


def _path(locks: Path, slot: int) -> Path:
    return locks / f"worker-{slot}.lock"
