"""The watch over running jobs: those that take more memory or time than they may are told, and ended if they do not hear.

Jobs run on threads of their worker, which cannot be stopped from outside. So an excess is raised where a job reports
progress; one that does not report within the grace has its reason noted, and the worker replaces itself by a new one,
which fails that job and resumes the others.
"""

import _thread
import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import structlog

from service.jobs.budget import Budget
from service.jobs.limits import Limits, bytes_text
from service.jobs.notes import Notes
from service.problems import JobFailed, OutOfMemory, problem_of

POLL_S = 0.1
CANCEL_S = 0.5  # with a cancelled job; it is noticed within FEWPASS_PROGRESS_S, and all shall be over in a second
GRACE_S = 2.0
PATIENCE_S = 10.0  # with what takes too long, or was cancelled beside others
# Beyond this nobody waits for a report: the next allocation may take the machine down.
TOO_MUCH = 1.5
NOTE_BYTES = 64 << 20
LESS = "Raise memory_limit (the default is FEWPASS_JOB_MEMORY), or give the job less to hold (max_values, k)."
OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


def used_bytes() -> int:
    """Memory of this process that is its own: files that are mapped, as models are, do not count. Linux tells; else 0."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(OWN))


class Allowance:
    """What one job may take, and what it has taken; made by `Watch.allowance`."""

    def __init__(self, watch: "Watch", job_id: str, limits: Limits) -> None:
        self.watch, self.job_id, self.limits = watch, job_id, limits
        self.started = time.monotonic()
        self.peak = 0
        self.excess: JobFailed | None = None
        self.is_cancelled = False
        self.told_at: float | None = None

    @property
    def memory(self) -> int | None:
        """Bytes that the job may plan with: the least of those that share its worker."""
        return self.watch.least()

    def begin(self, wait: Callable[[], None]) -> None:
        """Wait for a share of the budget, then be measured from here on; once begun, nothing more happens."""
        if not self.watch.is_watching(self):
            self.watch.budget.take(self.job_id, self.limits.memory, wait)
            self.started = time.monotonic()
            self.watch.enter(self)

    def check(self) -> None:
        """Give up a job that has taken too much.

        Raises
        ------
        JobFailed
        """
        if self.excess is None and self.is_late(time.monotonic()):
            self.excess = self.late()
        if self.excess is not None:
            raise self.excess

    def end(self) -> None:
        """Give everything back."""
        self.watch.leave(self)
        self.watch.budget.give_back(self.job_id)

    def is_late(self, now: float) -> bool:
        """Whether the time is over."""
        return self.limits.time_s is not None and now - self.started > self.limits.time_s

    def late(self) -> JobFailed:
        """What a job is told that takes too long."""
        return JobFailed(
            f"The job ran longer than {self.limits.time_s:g} s and was given up; a retry goes on after the passes that were "
            "finished. Raise time_limit_s, or FEWPASS_JOB_TIMEOUT_S, which bounds it.",
            timeout_s=self.limits.time_s,
        )

    def too_large(self, allowed: int, used: int) -> OutOfMemory:
        """What a job is told that holds too much."""
        return OutOfMemory(
            f"The job used more than {bytes_text(allowed)} of memory and was given up. {LESS}",
            memory_limit=allowed,
            memory_used=used,
        )


class Watch:
    """Looks at the jobs of this process several times a second.

    Parameters
    ----------
    end : callable
        Ends a job that was told to stop and does not.
    saw : callable, optional
        Told now and then how much memory the worker of a job holds.
    budget : Budget, optional
        Of which jobs get a share before they begin.
    """

    def __init__(
        self,
        end: Callable[["Allowance"], object],
        saw: Callable[[str, int], None] | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.end = end
        self.saw = saw
        self.budget = budget or Budget(Path(), 0, None)
        self._running: list[Allowance] = []
        self._lock = threading.Lock()
        self._at_rest = 0
        self._noted = 0
        self._ending = False
        self._stop = threading.Event()

    def start(self) -> "Watch":
        """Look on a thread of its own, until `stop`."""
        threading.Thread(target=self._run, name="watch", daemon=True).start()
        return self

    def stop(self) -> None:
        """Look no more."""
        self._stop.set()

    def allowance(self, job_id: str, limits: Limits) -> Allowance:
        """What a job may take; it counts from its `begin` to its `end`."""
        return Allowance(self, job_id, limits)

    def is_watching(self, allowance: Allowance) -> bool:
        """Whether it has begun."""
        return allowance in self._running

    def enter(self, allowance: Allowance) -> None:
        """Watch a job."""
        with self._lock:
            if not self._running:
                self._at_rest, self._noted = used_bytes(), 0
            self._running.append(allowance)

    def leave(self, allowance: Allowance) -> None:
        """Watch it no more."""
        with self._lock:
            if allowance in self._running:
                self._running.remove(allowance)

    def least(self) -> int | None:
        """The least that one of the running jobs may use."""
        return min((each.limits.memory for each in list(self._running) if each.limits.memory), default=None)

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.look(time.monotonic())
            except Exception:
                structlog.get_logger("jobs").exception("jobs cannot be watched")

    def look(self, now: float) -> None:
        """Tell jobs that take too much; end those that were told and go on."""
        with self._lock:
            running = list(self._running)
            if not running:
                return
            used = used_bytes() - self._at_rest
        for job in running:
            job.peak = max(job.peak, used)
            if job.excess is None and job.is_late(now):
                job.excess = job.late()
        limits = [job.limits.memory for job in running]
        allowed = sum(limit or 0 for limit in limits)
        # Threads share their memory, so with several jobs it is unknown whose it is: it fitted before the last one came.
        is_over = None not in limits and used > allowed
        if is_over and running[-1].excess is None:
            running[-1].excess = running[-1].too_large(allowed, used)
        self._note(running, used)
        for job in running:
            if job.excess is not None or job.is_cancelled:
                job.told_at = job.told_at or now
                if now - job.told_at > grace_of(job, len(running)) or (is_over and used > TOO_MUCH * allowed):
                    self._end(job)

    def _note(self, running: list[Allowance], used: int) -> None:
        """For the case that the kernel is faster than we are."""
        if self.saw is not None and used > self._noted + NOTE_BYTES:
            self._noted = used
            for job in running:
                self.saw(job.job_id, used + self._at_rest)

    def _end(self, job: Allowance) -> None:
        if not self._ending and self.is_watching(job):
            self._ending = True
            self.end(job)


def grace_of(job: Allowance, n_running: int) -> float:
    """How many seconds a job has that was told to stop, before its worker is ended under it.

    Parameters
    ----------
    job : Allowance
    n_running : int
        Jobs in this process: others lose what they have done since their last checkpoint, so they are worth waiting for.
    """
    if job.is_cancelled and n_running == 1:
        return CANCEL_S
    return GRACE_S if isinstance(job.excess, OutOfMemory) else PATIENCE_S


def start_anew(notes: Notes, job: Allowance) -> NoReturn:
    """Replace this worker by one with the same command, which finds in the notes why the job has ended.

    Threads, memory and locks are gone at once; the process id stays, so that whoever started the worker notices nothing.
    """
    if job.excess is not None and not job.is_cancelled:
        notes.fail(job.job_id, problem_of(job.excess).body())
    with contextlib.suppress(Exception), structlog.contextvars.bound_contextvars(job=job.job_id):
        log = structlog.get_logger("jobs")
        if job.is_cancelled:
            log.info("job cancelled, and ended with its worker, which starts anew")
        else:
            log.error("the job does not stop, so its worker starts anew", reason=str(job.excess))
    replace_worker()


def replace_worker() -> NoReturn:
    """Start this process anew, with the same command and the same process id."""
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@contextlib.contextmanager
def watched_here(job_id: str, limits: Limits) -> Iterator[Allowance]:
    """Watch a job that this thread runs by itself, without a worker; on leaving, it has kept to its limits or failed.

    Raises
    ------
    JobFailed
    """
    is_main = threading.current_thread() is threading.main_thread()
    watch = Watch(lambda _: _thread.interrupt_main() if is_main else None).start()
    allowance = watch.allowance(job_id, limits)
    allowance.begin(lambda: None)
    try:
        yield allowance
    except KeyboardInterrupt:
        allowance.check()  # else it was the user
        raise
    finally:
        watch.stop()
