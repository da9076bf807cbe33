"""Memory and time limits of jobs, and the errors of jobs that exceed them."""

import contextlib
import os
import time
from pathlib import Path
from typing import NamedTuple

from learners.passes.memory import machine_memory_bytes, parse_memory_size
from service.requests.json_values import JSONMapping
from service.requests.problems import InvalidRequest, JobFailed, OutOfMemory
from service.settings import Settings

# Counts get one part of a job's memory: a cell of 16 bytes becomes some 600 bytes of trees while they are estimated
# (measured: kdb with k = 2 of 200,000 rows without any order), and spilling must begin well before those need the rest.
COUNTS_SHARE = 8
LESS = "Raise memory_limit (the default is FEWPASS_JOB_MEMORY), or reduce max_values or k (docs/limits.md#memory-time-and-size)."
NICENESS = 10  # of a process of a job, beyond that of the process that starts it
LEAST_PRIORITY = 19
OWN = ("RssAnon:", "RssShmem:", "VmSwap:")


class Limits(NamedTuple):
    """Limits of one job: bytes beyond those of an idle worker, and seconds; None is unlimited."""

    memory: int | None
    time_s: float | None


def job_limits(settings: Settings, request: JSONMapping) -> Limits:
    """Return the limits in a job's request; those of the training within a refresh apply to the whole job."""
    fields = {**(request.get("train") or {}), **{name: value for name, value in request.items() if value is not None}}
    times = [seconds for seconds in (fields.get("time_limit_s"), settings.job_timeout_s) if seconds is not None]
    return Limits(fields.get("memory_limit") or default_job_memory(settings), min(times, default=None))


def default_job_memory(settings: Settings) -> int | None:
    """Return the default memory of a job in bytes: the setting, else an equal share of the budget, else None."""
    if settings.job_memory is not None:
        return parse_memory_size(settings.job_memory)
    budget = total_job_memory(settings)
    return None if budget is None else budget // (max(settings.job_workers, 1) * settings.job_concurrency)


def total_job_memory(settings: Settings) -> int | None:
    """Return the memory budget in bytes for all jobs that run at the same time; None is unlimited."""
    return None if settings.job_memory_budget is None else parse_memory_size(settings.job_memory_budget)


def check_job_limits(settings: Settings, request: JSONMapping) -> None:
    """Refuse a job that could never start because its memory exceeds the budget (InvalidRequest)."""
    limit, budget = job_limits(settings, request).memory, total_job_memory(settings)
    if limit is not None and budget is not None and limit > budget:
        raise InvalidRequest(
            f"The job asks for {format_byte_size(limit)} of memory, and all jobs together have {format_byte_size(budget)} "
            "(FEWPASS_JOB_MEMORY_BUDGET). Lower memory_limit, or raise the budget.",
            field="memory_limit",
        )


def counts_memory_limit(settings: Settings, memory_limit: int | None) -> int:
    """Return the bytes that the counts of a training may take in memory before they spill to files."""
    ours = machine_memory_bytes() // 4 if settings.memory is None else parse_memory_size(settings.memory)
    return ours if memory_limit is None else min(ours, memory_limit // COUNTS_SHARE)


def format_byte_size(n_bytes: float) -> str:
    """Format a number of bytes, such as "1.5 GiB"."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if n_bytes >= size:
            return f"{n_bytes / size:.4g} {unit}"
    return f"{n_bytes:.0f} bytes"


def lower_process_priority(pid: int) -> None:
    """Lower the priority of a process below that of request serving on the same machine."""
    with contextlib.suppress(ProcessLookupError):
        ours = os.getpriority(os.PRIO_PROCESS, 0)
        os.setpriority(os.PRIO_PROCESS, pid, min(ours + NICENESS, LEAST_PRIORITY))


def process_memory_bytes(pid: int) -> int:
    """Return the private memory of a process in bytes, without mapped files such as models; 0 where Linux's /proc is
    absent.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(OWN))


def job_memory_error(allowed: int, used: int) -> OutOfMemory:
    """Return the error of a job that uses too much memory."""
    text = f"The job used more than {format_byte_size(allowed)} of memory and was stopped. {LESS}"
    return OutOfMemory(text, memory_limit=allowed, memory_used=used)


def job_timeout_error(limit_s: float) -> JobFailed:
    """Return the error of a job that takes too long."""
    return JobFailed(
        f"The job ran longer than {limit_s:g} s and was stopped; a retry continues after the finished passes. "
        "Raise time_limit_s, or FEWPASS_JOB_TIMEOUT_S, which bounds it.",
        timeout_s=limit_s,
    )


class OwnLimits:
    """Limits of a job in this process: checked when it reports progress, while the system bounds the rest."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.started, self.at_rest = limits, time.monotonic(), process_memory_bytes(os.getpid())

    def check(self) -> None:
        """Raise JobFailed if the job has exceeded its time or memory limit."""
        if self.limits.time_s is not None and time.monotonic() - self.started > self.limits.time_s:
            raise job_timeout_error(self.limits.time_s)
        if self.limits.memory is not None:
            used = process_memory_bytes(os.getpid()) - self.at_rest
            if used > self.limits.memory:
                raise job_memory_error(self.limits.memory, used)
