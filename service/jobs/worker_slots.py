"""Resources shared by the workers of one machine: slots, each held by a lock, and one memory budget for their jobs."""

import fcntl
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import structlog

from service.requests.json_values import JSONObject
from storage.errors import Unwritable
from storage.files.atomic_files import exclusive_file_lock, is_file_locked

MOST_LOOKS = 1000  # in a row; more, and a forked process keeps open what a look has opened
POLL_S = 0.2


def acquire_worker_slot(locks: Path) -> tuple[int, IO[bytes]]:
    """Return the lowest free slot of this workspace, and the open file that holds its lock until it is closed or the
    process dies.
    """
    locks.mkdir(parents=True, exist_ok=True)
    slot, looks = 0, 0
    while True:
        lock = _path(locks, slot).open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            looks += 1
            if is_worker_slot_taken(locks, slot) or looks > MOST_LOOKS:
                slot, looks = slot + 1, 0
        else:
            return slot, lock


def is_worker_slot_taken(locks: Path, slot: int) -> bool:
    """Return whether a live worker holds the slot."""
    return is_file_locked(_path(locks, slot))


def _path(locks: Path, slot: int) -> Path:
    return locks / f"worker-{slot}.lock"


class Budget:
    """Memory claims of jobs on the budget, in one small file beside the workers' locks, which show who is alive.

    What a dead worker held in this one's slot is given back. All may hold `n_bytes` together; None is without an end.
    """

    def __init__(self, directory: Path, slot: int, n_bytes: int | None) -> None:
        self.directory, self.slot, self.n_bytes = directory, slot, n_bytes
        self.path = directory / f"memory-{platform.node() or 'here'}.json"  # memory is one machine's
        self._jobs: set[str] = set()  # of this process
        if n_bytes is not None:
            with self._claims():
                pass  # what a dead worker held in this slot is given back

    def take(self, job_id: str, n_bytes: int | None, wait: Callable[[], None]) -> None:
        """Claim `n_bytes` for a job, in the order of requests; calls `wait`, which may raise, until they fit."""
        if self.n_bytes is None:
            return
        share = min(n_bytes or self.n_bytes, self.n_bytes)
        try:
            while not self._fits(job_id, share):
                wait()
                time.sleep(POLL_S)
        except BaseException:
            self.give_back(job_id)
            raise

    def give_back(self, job_id: str) -> None:
        """Release the memory that a job holds or waits for."""
        self._jobs.discard(job_id)
        if self.n_bytes is None:
            return
        try:
            with self._claims() as claims:
                claims[:] = [claim for claim in claims if claim["job"] != job_id]
        except Unwritable as error:  # the disk is full; the next claim of this worker ends this one as well
            structlog.get_logger("jobs").warning("a job's share of memory is not given back yet", reason=str(error))

    def _fits(self, job_id: str, n_bytes: int) -> bool:
        assert self.n_bytes is not None
        self._jobs.add(job_id)
        with self._claims() as claims:
            if not any(claim["job"] == job_id for claim in claims):
                claims.append({"slot": self.slot, "job": job_id, "bytes": n_bytes, "is_held": False})
            claims[:] = [
                one for one in claims if one["slot"] == self.slot or is_worker_slot_taken(self.directory, one["slot"])
            ]
            free = self.n_bytes - sum(claim["bytes"] for claim in claims if claim["is_held"])
            first = next((claim for claim in claims if not claim["is_held"]), None)
            if first is not None and first["job"] == job_id and n_bytes <= free:
                first["is_held"] = True
            return any(claim["job"] == job_id and claim["is_held"] for claim in claims)

    @contextmanager
    def _claims(self) -> Iterator[list[JSONObject]]:
        """Provide the claims for changes in place, under an exclusive lock.

        The file is replaced whole, so a worker that dies in here takes back what it has changed and nothing else. One that
        cannot be read was torn by a machine that died, and all claims with it.
        """
        with exclusive_file_lock(self.path):
            try:
                before = self.path.read_text()
                claims = json.loads(before)
            except (FileNotFoundError, ValueError):
                before, claims = "", []
            claims[:] = [claim for claim in claims if claim["slot"] != self.slot or claim["job"] in self._jobs]
            yield claims
            after = json.dumps(claims)
            if after != before:
                draft = self.path.with_suffix(".partial")
                draft.write_text(after)
                draft.replace(self.path)
