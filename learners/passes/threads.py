"""Tasks on threads that report how far they are, and end together."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from threading import Event
from typing import TypeVar

REPORT_EVERY_S = 0.1

Result = TypeVar("Result")


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_on_threads(
    tasks: Sequence[Callable[[], Result]], threads: int, stop: Event, report: Callable[[], None], name: str
) -> list[Result]:
    """The results of tasks in their order; `report` is called now and then, the last time before the last tasks end.

    The first error of a task or of `report` is raised. It sets `stop`, which the tasks look at, so that all end soon.
    """
    with ThreadPoolExecutor(max(1, min(threads, len(tasks))), thread_name_prefix=name) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            going = set(futures)
            while going:
                ended, going = wait(going, REPORT_EVERY_S, FIRST_EXCEPTION)
                for future in ended:
                    future.result()
                if going:
                    report()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
