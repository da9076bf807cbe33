"""Leases of workers: the jobs of a lost worker are taken over by any live one.

Each worker beats in the control database and looks at the beats of the others. It counts a worker as gone when that
worker's slot is free on this machine, or when it has seen no beat for the length of the lease. Only its own looks
count towards that time: neither a clock that is set, nor a pause of the one who looks, ends anybody's lease.
"""

import platform
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import structlog
from sqlalchemy.exc import InterfaceError, OperationalError

from learners.wording import count_with_noun
from service.jobs.queue import JobQueue, job_queue
from service.jobs.worker_slots import is_worker_slot_taken
from service.workspace import Workspace
from storage.control.control import Control
from storage.control.leases import Lease, end_lease, list_worker_leases, renew_lease, take_lease
from storage.errors import ControlUnavailable, LeaseLost, Unwritable

BEATS = 6  # in the time of one lease
IDLE_LOOKS = 3  # a job begins, and its end is recorded, between two of them
AWAY = (ControlUnavailable, Unwritable, OperationalError, InterfaceError)
LOCKS = "workers"  # the folder of the slot locks, in the workspace


def lease_host_name() -> str:
    """Return the name of this machine used in leases."""
    return platform.node() or "here"


class Silence:
    """Silence of each worker, as observed by this process.

    It looks every `beat_s` seconds. A look counts twice this at most: a process that was stopped has not looked meanwhile.
    """

    def __init__(self, beat_s: float) -> None:
        self.beat_s = beat_s
        self._last: float | None = None
        self._heard: dict[str, tuple[int, float]] = {}

    def look(self, leases: Iterable[Lease], now: float) -> dict[str, float]:
        """Return the seconds of silence of each worker; `now` is read from a monotonic clock."""
        passed = 0.0 if self._last is None else min(now - self._last, 2 * self.beat_s)
        self._last = now
        before, self._heard = self._heard, {}
        for lease in leases:
            beats, silent_s = before.get(lease.id, (lease.beats, -passed))
            self._heard[lease.id] = lease.beats, (silent_s + passed if beats == lease.beats else 0.0)
        return {worker: silent_s for worker, (_, silent_s) in self._heard.items()}


class LeaseKeeper:
    """Keeps the lease of this worker, and takes over the jobs of lost workers.

    What it writes by `control` is fenced from here on. After `lease_s` of silence others may take its jobs.
    `recover(workers)` queues the jobs again that those workers were running; `lost` is called when others have ended this
    lease, and must not return. `active()` are the jobs that this process works on; `requeue(job)` queues one again of which the
    database says that this worker runs it, though it does not: its end could not be recorded, as on a full disk.
    """

    def __init__(
        self,
        control: Control,
        queue: JobQueue,
        locks: Path,
        slot: int,
        *,
        lease_s: float,
        recover: Callable[[list[str]], object],
        lost: Callable[[LeaseLost], object],
        active: Callable[[], Iterable[str]] | None = None,
        requeue: Callable[[str], object] = lambda _job: None,
    ) -> None:
        self.control, self.queue, self.locks, self.slot = control, queue, locks, slot
        self.beat_s = lease_s / BEATS
        self.recover, self.lost, self.active, self.requeue = recover, lost, active, requeue
        self._idle: dict[str, int] = {}
        self.worker = f"worker-{slot}-{secrets.token_hex(6)}"
        self.silence = Silence(self.beat_s)
        self.log = structlog.get_logger("worker")
        self._stop = threading.Event()
        self._is_away = False
        take_lease(control, self.worker, lease_host_name(), slot, lease_s)

    def start(self) -> None:
        """Start one thread that renews the lease and another that checks others: a slow check must not silence this
        worker.
        """
        for work in (self.beat, self.look):
            threading.Thread(target=self._often, args=(work,), name=f"lease-{work.__name__}", daemon=True).start()

    def end(self) -> None:
        """Release the lease, so that others need not wait for it to expire."""
        self._stop.set()
        try:
            end_lease(self.control, self.worker)
        except (*AWAY, LeaseLost):
            self.log.debug("the lease ends by itself")

    def beat(self) -> None:
        """Renew the lease."""
        renew_lease(self.control, self.worker)

    def look(self) -> None:
        """End the leases of lost workers, and take over all jobs without a lease."""
        silent = self.silence.look(list_worker_leases(self.control), monotonic())
        for lease in list_worker_leases(self.control):
            if lease.id != self.worker and self._is_gone(lease, silent.get(lease.id, 0.0)):
                end_lease(self.control, lease.id)
                self.log.warning("a worker is gone", gone=lease.id, host=lease.host, last_heard=str(lease.renewed_at))
        jobs = self.queue.running()  # before the leases: whoever began a job since then has a lease by now
        orphans = set(jobs) - {lease.id for lease in list_worker_leases(self.control)}
        if orphans:
            self.recover(sorted(orphans))
            for worker in sorted(orphans):
                self.log.warning("jobs of a worker that is gone are taken over", gone=worker, jobs=jobs[worker])

        self._take_up(jobs.get(self.worker, ()))

    def _take_up(self, jobs: Iterable[str]) -> None:
        """Requeue jobs assigned to this worker that it was not running at several checks."""
        if self.active is None:
            return
        active = set(self.active())
        self._idle = {job: self._idle.get(job, 0) + 1 for job in jobs if job not in active}
        for job in [job for job, n_looks in self._idle.items() if n_looks >= IDLE_LOOKS]:
            self.requeue(job)
            del self._idle[job]
            self.log.warning("a job whose end was not recorded starts again", job=job)

    def _is_gone(self, lease: Lease, silent_s: float) -> bool:
        if lease.host == lease_host_name() and (
            lease.slot == self.slot or not is_worker_slot_taken(self.locks, lease.slot)
        ):
            return True  # the kernel has freed its slot, or given it to this process
        return silent_s >= lease.lease_s

    def _often(self, work: Callable[[], None]) -> None:
        while not self._stop.is_set():
            try:
                work()
                self._is_away = False
            except LeaseLost as error:
                self.lost(error)
            except AWAY as error:
                if not self._is_away:
                    self.log.warning("leases cannot be kept while the control database is away", reason=str(error))
                self._is_away = True
            except Exception:
                self.log.exception("leases cannot be kept")
            self._stop.wait(self.beat_s)


@dataclass(frozen=True)
class Crew:
    """The workers of a workspace as seen by another process, and the number of queued jobs.

    A worker is gone if its slot is free, or if it was silent for longer than its lease by the clock; `stranded` jobs
    are recorded as running, but their worker is gone. `silent` jobs have a worker, and have recorded nothing for
    longer than a lease.
    """

    alive: tuple[Lease, ...]
    gone: tuple[Lease, ...]
    n_waiting: int
    stranded: tuple[str, ...]
    silent: tuple[str, ...] = ()

    @property
    def problem(self) -> tuple[str, str] | None:
        """Problem of the workers, such as jobs that no worker runs or that record no progress, and its remedy; None
        without one.
        """
        stranded, silent = self.stranded, self.silent
        if self.alive and stranded:
            return (
                f"{count_with_noun(len(stranded), 'job')} lost the worker, such as {stranded[0]}.",
                "Wait: a live worker takes over within the lease (FEWPASS_LEASE_S).",
            )
        if self.alive and silent:
            return (
                f"{count_with_noun(len(silent), 'job')} recorded nothing for longer than a lease, such as {silent[0]}.",
                "Free the disk of the workspace if it is full: jobs then continue, or fail with a reason. See the log of the worker.",
            )
        if self.alive or not (stranded or self.n_waiting):
            return None
        return (
            f"No worker runs: {count_with_noun(self.n_waiting, 'job')} waiting, {len(stranded):,} without a worker.",
            "Start fewpass serve or fewpass worker.",
        )

    @property
    def complaint(self) -> str | None:
        """The problem and its remedy in one text; None without a problem."""
        return None if self.problem is None else " ".join(self.problem)


def worker_crew_status(workspace: Workspace) -> Crew:
    """Return the workers of a workspace, and the jobs that have lost their worker."""
    locks, queue, now = workspace.layout.root / LOCKS, job_queue(workspace), datetime.now(UTC)
    running = queue.running()
    leases = list_worker_leases(workspace.control)
    gone = tuple(
        lease
        for lease in leases
        if (now - lease.renewed_at).total_seconds() > lease.lease_s * (1 + 1 / BEATS)
        or (lease.host == lease_host_name() and not is_worker_slot_taken(locks, lease.slot))
    )
    alive = tuple(lease for lease in leases if lease not in gone)
    known = {lease.id for lease in alive}
    stranded = tuple(job for worker, jobs in running.items() if worker not in known for job in jobs)
    silent = tuple(job for job in queue.silent(workspace.settings.lease_s) if job not in stranded)
    return Crew(alive, gone, queue.count("queued"), stranded, silent)


class CrewWatch:
    """Reports that jobs of a workspace have no worker, once that has lasted longer than a lease."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.lease_s = workspace.settings.lease_s
        self._looked_at = self._well_at = monotonic()

    def is_due(self) -> bool:
        """Return whether the next check is due."""
        return not self.workspace.settings.predict_only and monotonic() - self._looked_at >= self.lease_s / BEATS

    def look(self) -> str | None:
        """Check the workers; return the problem, or None."""
        self._looked_at = monotonic()
        complaint = worker_crew_status(self.workspace).complaint
        if complaint is None:
            self._well_at = monotonic()
        return complaint if monotonic() - self._well_at > self.lease_s else None
