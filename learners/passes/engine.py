"""Collecting a statistic over a source, on threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, TypeVar

from learners.errors import EmptyData, SchemaError
from learners.passes.source import Fragment, Source
from learners.passes.statistic import Statistic
from learners.schema.encode import Encoder

S = TypeVar("S", bound=Statistic)

REPORT_EVERY_S = 0.1


@dataclass(frozen=True)
class Progress:
    """How far a learner is.

    Parameters
    ----------
    stage : str
        What is being done, in words.
    pass_number : int
        From 1; work between passes keeps the number of the pass before.
    n_passes : int or None
        How many there will be, where that is known.
    rows_done, rows_total : int
        Rows of this pass; or units of work of a computation between passes.
    seconds : float
        Since this pass began.
    """

    stage: str
    pass_number: int
    n_passes: int | None
    rows_done: int
    rows_total: int
    seconds: float

    @property
    def rows_per_s(self) -> float:
        """Rows per second so far."""
        return self.rows_done / max(self.seconds, 1e-9)

    @property
    def eta_s(self) -> float | None:
        """Seconds until this pass ends, once anything can be said."""
        return (self.rows_total - self.rows_done) / self.rows_per_s if self.rows_done else None


OnProgress = Callable[[Progress], Any]


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _Walk:
    """The fragments still to be read, shared by the threads of a pass."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.stopped = threading.Event()
        self.rows_done = 0
        self._lock = threading.Lock()
        self._pending: Iterator[Fragment] = iter(source.fragments)

    def next_fragment(self) -> Fragment | None:
        with self._lock:
            return None if self.stopped.is_set() else next(self._pending, None)

    def count(self, n_rows: int) -> None:
        with self._lock:
            self.rows_done += n_rows


def collect(
    statistic: S,
    source: Source,
    *,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    pass_number: int = 1,
    n_passes: int | None = None,
) -> S:
    """One pass: the statistic of all rows of the source.

    Parameters
    ----------
    statistic : Statistic
        An empty one; it says what to collect and is not changed.
    source : Source
    threads : int, optional
        By default one per core. The result does not depend on it.
    on_progress : callable, optional
        Called with a `Progress` about ten times a second; raising in it stops all threads between two chunks, and the
        exception comes out here.

    Raises
    ------
    SourceError, SchemaError, UnknownColumn
        As the data gives reason.
    """
    walk = _Walk(source)
    n_threads = max(1, min(threads or available_cores(), len(source.fragments)))
    started = time.perf_counter()

    def report() -> None:
        if on_progress is not None:
            seconds = time.perf_counter() - started
            on_progress(Progress(statistic.stage, pass_number, n_passes, walk.rows_done, source.n_rows, seconds))

    with ThreadPoolExecutor(n_threads, thread_name_prefix="pass") as pool:
        futures: list[Future[S]] = [pool.submit(_work, statistic.empty(), walk) for _ in range(n_threads)]
        try:
            report()
            while wait(futures, timeout=REPORT_EVERY_S, return_when=FIRST_EXCEPTION).not_done:
                if any(future.done() and future.exception() for future in futures):
                    break
                report()
        finally:
            walk.stopped.set()
    parts = [future.result() for future in futures]
    whole = parts[0]
    for part in parts[1:]:
        whole.merge(part)
    report()
    return whole


def _work(statistic: S, walk: _Walk) -> S:
    """Update one thread's statistic with fragments until there are none left."""
    source = walk.source
    encoder = None if statistic.schema is None else Encoder(statistic.schema)
    while (fragment := walk.next_fragment()) is not None:
        for batch in source.read(fragment, statistic.columns):
            if walk.stopped.is_set():
                return statistic
            where = source.files[fragment.file].path
            if encoder is not None:
                statistic.update(encoder.training_chunk(batch, where))
            else:
                try:
                    statistic.update(batch)
                except SchemaError as error:
                    raise SchemaError(f"{where}: {error}", error.column) from error
            walk.count(batch.num_rows)
    return statistic


def require_rows(source: Source) -> None:
    """Refuse a source without rows.

    Raises
    ------
    EmptyData
    """
    if not source.n_rows:
        raise EmptyData(f"{', '.join(file.path for file in source.files[:3])}: there are no rows to learn from.")
