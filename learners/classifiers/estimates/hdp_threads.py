"""Work on many context trees at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree
from learners.passes.engine import Advance

Tick = Callable[[float | None], None]  # told the share that is done, if it is another one; raises when all shall stop
Result = TypeVar("Result")
REPORT_EVERY_S = 0.2


def in_parallel(
    trees: Sequence[ContextTree],
    threads: int,
    advance: Advance | None,
    work: Callable[[ContextTree, int, Tick], Result],
) -> list[Result]:
    """Work on all trees, the largest first, reporting how many cells are done."""
    sizes = np.array([tree.n_cells for tree in trees], np.int64)
    done = np.zeros(len(trees))
    stopped: list[bool] = []

    def task(i: int) -> Result:
        def tick(share: float | None) -> None:
            if share is not None:
                done[i] = share
            if stopped:
                raise _Stopped

        tick(None)
        return work(trees[i], i, tick)

    def report() -> None:
        if advance is not None:
            advance(int(done @ sizes), int(sizes.sum()))

    with ThreadPoolExecutor(max(1, threads), thread_name_prefix="hdp") as pool:
        futures = {int(i): pool.submit(task, int(i)) for i in np.argsort(-sizes, kind="stable")}
        try:
            pending: set[Future[Result]] = set(futures.values())
            while pending:
                finished, pending = wait(pending, timeout=REPORT_EVERY_S, return_when=FIRST_EXCEPTION)
                for future in finished:
                    future.result()
                report()
        except BaseException:
            stopped.append(True)
            raise
    return [futures[i].result() for i in range(len(trees))]


class _Stopped(Exception):
    """Another thread has failed, or the caller has cancelled."""
