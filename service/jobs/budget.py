"""One budget of memory for the jobs of all workers on a machine: a job that does not fit waits for its turn."""

import fcntl
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

POLL_S = 0.2


class Budget:
    """What jobs hold of the budget, in one small file beside the locks of the workers.

    Parameters
    ----------
    directory : Path
        Of the slot locks, which tell which workers live.
    slot : int
        Of this worker; what a dead one held in this slot is given back.
    n_bytes : int or None
        What all may hold together; None for a budget without an end.
    """

    def __init__(self, directory: Path, slot: int, n_bytes: int | None) -> None:
        self.directory, self.slot, self.n_bytes = directory, slot, n_bytes
        self.path = directory / f"memory-{platform.node() or 'here'}.json"  # memory is one machine's
        if n_bytes is not None:
            with self._claims() as claims:
                claims[:] = [claim for claim in claims if claim["slot"] != slot]

    def take(self, job_id: str, n_bytes: int | None, wait: Callable[[], None]) -> None:
        """Hold so much for a job; `wait` is called again and again until it fits, and may raise.

        Jobs get their share in the order in which they ask, so that a large one is not passed by small ones for ever.
        """
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
        """End what a job holds or waits for."""
        if self.n_bytes is not None:
            with self._claims() as claims:
                claims[:] = [claim for claim in claims if claim["job"] != job_id]

    def _fits(self, job_id: str, n_bytes: int) -> bool:
        assert self.n_bytes is not None
        with self._claims() as claims:
            if not any(claim["job"] == job_id for claim in claims):
                claims.append({"slot": self.slot, "job": job_id, "bytes": n_bytes, "is_held": False})
            claims[:] = [claim for claim in claims if self._is_alive(claim["slot"])]
            free = self.n_bytes - sum(claim["bytes"] for claim in claims if claim["is_held"])
            first = next((claim for claim in claims if not claim["is_held"]), None)
            if first is not None and first["job"] == job_id and n_bytes <= free:
                first["is_held"] = True
            return any(claim["job"] == job_id and claim["is_held"] for claim in claims)

    def _is_alive(self, slot: int) -> bool:
        if slot == self.slot:
            return True
        try:
            with (self.directory / f"worker-{slot}.lock").open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except FileNotFoundError:
            pass
        return False

    @contextmanager
    def _claims(self) -> Iterator[list[dict[str, Any]]]:
        """The claims, to be changed in place; nobody else sees them meanwhile. A torn file is one without claims."""
        with self.path.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            try:
                claims = json.loads(file.read() or "[]")
            except ValueError:
                claims = []
            yield claims
            file.seek(0)
            file.truncate()
            file.write(json.dumps(claims))
