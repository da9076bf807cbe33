"""What a job is made of: steps that run in order, what a step knows and reports, and how much memory and time all may take.

Free of DBOS, so that the command line can run the same steps in its own process.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from learners.passes.memory import machine_memory_bytes, parse_memory_size
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest, JobFailed, OutOfMemory
from service.settings import Settings
from storage.files.workspace_layout import Layout

if TYPE_CHECKING:
    from learners.passes.engine import Progress  # which loads numba

Report = Callable[[JSONObject], None]  # how far a job is; it may raise, which stops the job
LOCAL = "local-"  # how the id of a job begins that a command runs in its own process
# Counts get one part of a job's memory: a cell of 16 bytes becomes some 600 bytes of trees while they are estimated
# (measured: kdb with k = 2 of 200,000 rows without any order), and spilling must begin well before those need the rest.
COUNTS_SHARE = 8
LESS = "Raise memory_limit (the default is FEWPASS_JOB_MEMORY), or give the job less to hold (max_values, k)."
NICENESS = 10  # of a process of a job
OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


@dataclass(frozen=True)
class Run:
    """What a step knows of the job it works for.

    `receipts` holds what the earlier steps returned, by name; `report` records progress and raises Cancelled when the
    job was cancelled, so calling it between two chunks is all that a long step has to do. `memory_limit` is what the job
    may use in bytes, or None.
    """

    job_id: str
    request: JSONObject
    receipts: dict[str, JSONObject]
    report: Report
    memory_limit: int | None = None

    @property
    def is_local(self) -> bool:
        """Whether a command runs it in its own process, for whoever owns that process."""
        return self.job_id.startswith(LOCAL)


# The steps of a job by name, in order. One may run again after a crash, so it replaces what it wrote and never adds.
Steps = Mapping[str, Callable[[Run], JSONObject]]
Kinds = Mapping[str, Steps]


def remove_job_scratch(layout: Layout, job_id: str) -> None:
    """Remove what a job that has ended left in its scratch folder."""
    shutil.rmtree(layout.scratch_directory(job_id), ignore_errors=True)


def run_job_steps(
    steps: Steps, job_id: str, request: JSONObject, report: Report, memory_limit: int | None = None
) -> JSONObject:
    """Run the steps one after another in this process; the last receipt is the result."""
    receipts: dict[str, JSONObject] = {}
    for name, work in steps.items():

        def report_step(progress: JSONObject, name: str = name) -> None:
            report({"step": name, **progress})

        receipts[name] = work(Run(job_id, request, receipts, report_step, memory_limit))
    return receipts[list(steps)[-1]]


class Limits(NamedTuple):
    """What one job may take: bytes beyond those of an idle worker, and seconds; None is without a limit."""

    memory: int | None
    time_s: float | None


def job_limits(settings: Settings, request: JSONMapping) -> Limits:
    """The limits of a job by its request; those of the training within a refresh count for the whole job."""
    fields = {**(request.get("train") or {}), **{name: value for name, value in request.items() if value is not None}}
    times = [seconds for seconds in (fields.get("time_limit_s"), settings.job_timeout_s) if seconds is not None]
    return Limits(fields.get("memory_limit") or default_job_memory(settings), min(times, default=None))


def default_job_memory(settings: Settings) -> int | None:
    """What a job may take that does not say: the setting, else an equal share of the budget, else anything."""
    if settings.job_memory is not None:
        return parse_memory_size(settings.job_memory)
    budget = total_job_memory(settings)
    return None if budget is None else budget // (max(settings.job_workers, 1) * settings.job_concurrency)


def total_job_memory(settings: Settings) -> int | None:
    """What the jobs that run at the same time may take together."""
    return None if settings.job_memory_budget is None else parse_memory_size(settings.job_memory_budget)


def check_job_limits(settings: Settings, request: JSONMapping) -> None:
    """Refuse a job that would wait for ever (InvalidRequest)."""
    limit, budget = job_limits(settings, request).memory, total_job_memory(settings)
    if limit is not None and budget is not None and limit > budget:
        raise InvalidRequest(
            f"The job asks for {format_byte_size(limit)} of memory, and all jobs together have {format_byte_size(budget)} "
            "(FEWPASS_JOB_MEMORY_BUDGET). Lower memory_limit, or raise the budget.",
            field="memory_limit",
        )


def counts_memory_limit(settings: Settings, memory_limit: int | None) -> int:
    """What the counts of a training may keep in memory before they go to files."""
    ours = machine_memory_bytes() // 4 if settings.memory is None else parse_memory_size(settings.memory)
    return ours if memory_limit is None else min(ours, memory_limit // COUNTS_SHARE)


def format_byte_size(n_bytes: float) -> str:
    """A number of bytes as people say it: "1.5 GiB"."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if n_bytes >= size:
            return f"{n_bytes / size:.4g} {unit}"
    return f"{n_bytes:.0f} bytes"


def lower_process_priority(pid: int) -> None:
    """Let what answers requests on the same machine go before a process."""
    with contextlib.suppress(ProcessLookupError):
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)


def process_memory_bytes(pid: int) -> int:
    """Memory of a process that is its own: files that are mapped, as models are, do not count. Linux tells; else 0."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(OWN))


def job_memory_error(allowed: int, used: int) -> OutOfMemory:
    """What a job is told that holds too much."""
    text = f"The job used more than {format_byte_size(allowed)} of memory and was given up. {LESS}"
    return OutOfMemory(text, memory_limit=allowed, memory_used=used)


def job_timeout_error(limit_s: float) -> JobFailed:
    """What a job is told that takes too long."""
    return JobFailed(
        f"The job ran longer than {limit_s:g} s and was given up; a retry goes on after the passes that were finished. "
        "Raise time_limit_s, or FEWPASS_JOB_TIMEOUT_S, which bounds it.",
        timeout_s=limit_s,
    )


class OwnLimits:
    """The limits of a job that this process runs by itself: it looks at them when it reports, and the system bounds the rest."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.started, self.at_rest = limits, time.monotonic(), process_memory_bytes(os.getpid())

    def check(self) -> None:
        """Give up a job that has taken too much (JobFailed)."""
        if self.limits.time_s is not None and time.monotonic() - self.started > self.limits.time_s:
            raise job_timeout_error(self.limits.time_s)
        if self.limits.memory is not None:
            used = process_memory_bytes(os.getpid()) - self.at_rest
            if used > self.limits.memory:
                raise job_memory_error(self.limits.memory, used)


def ignore_report(_message: object) -> None:
    """The report, or the warning, of a caller that wants none."""


def progress_reporter(report: Report) -> Callable[["Progress"], None]:
    """The learners' progress as the job's: plain values that JSON can say. What `report` raises goes through."""

    def on_progress(progress: "Progress") -> None:
        report(
            {
                "stage": progress.stage,
                "pass_number": progress.pass_number,
                "n_passes": progress.n_passes,
                "rows_done": progress.rows_done,
                "rows_total": progress.rows_total,
                "unit": progress.unit,
                "rows_per_s": round(progress.rows_per_s) if progress.unit == "rows" else None,
                "eta_s": None if progress.eta_s is None else round(progress.eta_s, 1),
                "seconds": round(progress.seconds, 3),
            }
            | ({"note": progress.note} if progress.note else {})
        )

    return on_progress
