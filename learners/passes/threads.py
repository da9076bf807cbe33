"""Run tasks on threads with progress reports and joint termination."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

from learners.errors import Cancelled

REPORT_EVERY_S = 0.1

Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_on_threads(
    tasks: Sequence[Callable[[], Result]], threads: int, stop: Event, report: Callable[[], None], name: str
) -> list[Result]:
    """Run tasks and return their results in order; `report` is called periodically.

    The first error of a task or of `report` sets `stop`, on which unfinished tasks end with Cancelled. The error
    of the first failed task in order is raised.
    """
    with ThreadPoolExecutor(max(1, min(threads, len(tasks))), thread_name_prefix=name) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            while wait(futures, REPORT_EVERY_S, FIRST_EXCEPTION).not_done:
                if any(future.done() and future.exception() for future in futures):
                    break
                report()
        finally:
            stop.set()
            pool.shutdown(cancel_futures=True)
    errors = [error for future in futures if not future.cancelled() and (error := future.exception())]
    if errors:
        raise next((error for error in errors if not isinstance(error, Cancelled)), errors[0])
    return [future.result() for future in futures]
