"""A learner asks for statistics and returns a model; the driver makes the passes."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from learners.errors import InvalidParameter
from learners.models.model import Model
from learners.passes.cluster import Cluster
from learners.passes.engine import (
    ROWS,
    Advance,
    Checkpoints,
    OnProgress,
    Progress,
    available_cores,
    collect,
    require_rows,
)
from learners.passes.memory import give_back
from learners.passes.reuse import Account, Recall
from learners.passes.rows import Rows
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source
from learners.passes.statistic import Statistic
from learners.passes.stored_statistics import Store, Supply
from learners.schema import Schema

__all__ = ["Account", "Checkpoints", "Learner", "OnProgress", "Part", "Progress", "RowWork", "Store", "Work", "drive"]


@dataclass(frozen=True)
class Work:
    """A long computation between passes, which the driver runs so that progress and cancelling reach it."""

    stage: str  # what it does, in words
    # `run(threads, advance)`; it calls `advance(n_done, n_total)` now and then, which may raise.
    run: Callable[[int, Advance], object]
    # What is counted by that, such as trees or rounds; by default only the share of the work means something.
    unit: str = ""


@dataclass(frozen=True)
class RowWork:
    """A computation over the rows themselves, for learners that no statistic can serve; it counts as one pass.

    Nothing of it is stored, added or subtracted: prefer a statistic.
    """

    stage: str  # what it does, in words
    schema: Schema  # by which the rows are encoded
    # `run(rows, threads, advance)`; it may walk the rows several times, and calls `advance(n_done, n_total)` now and
    # then, which may raise.
    run: Callable[[Rows, int, Advance], object]
    unit: str = ROWS  # as of `Work`


S = TypeVar("S", bound=Statistic)
Result = TypeVar("Result")
Request = Statistic | Work | RowWork
# What a learner asks for, in turn, and what it returns. What it is sent is what it asked for: the statistic with its
# rows, or what the work returned.
Passes = Generator[Request, Any, Result]


@dataclass(frozen=True)
class Learner:
    """The passes of a learner: a generator that yields statistics (or `Work`, `RowWork`) and returns the model."""

    name: str
    passes: Passes[Model]
    n_passes: int | None  # how many passes over the data it will make


@dataclass(frozen=True)
class Part:
    """Some of the rows to learn from, and where statistics of just these rows are kept."""

    source: Source
    store: Store | None = None  # statistics found in it are not collected again; those collected are put there
    # By which the rows were chosen, so that what is stored of other rows can be subtracted.
    selection: Selection | None = None


def drive(
    learner: Learner,
    source: Source | Sequence[Part],
    *,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    store: Store | None = None,
    checkpoints: Checkpoints | None = None,
    accounts: list[Account] | None = None,
    cluster: Cluster | None = None,
) -> Model:
    """Run a learner over a source.

    Parameters
    ----------
    source : Source or sequence of Part
        The model of several parts is that of all their rows, bit for bit: statistics add.
    threads : int, optional
        By default one per core. The model does not depend on it.
    on_progress : callable, optional
        Called with a `Progress`; raising in it (for example `Cancelled`) ends the run, and the exception comes out here.
    store : Store, optional
        For a single source, as in `Part`.
    checkpoints : Checkpoints, optional
        Where a pass leaves what it has so far, so that a run that is killed goes on from there.
    accounts : list, optional
        Gets an `Account` of what was read and what was reused for each statistic.
    cluster : Cluster, optional
        Whose workers make the passes; the model is the same. Checkpoints within passes are Dask's business then.

    Raises
    ------
    EmptyData
        If there are no rows.
    SourceError, SchemaError, UnknownColumn, InvalidParameter
        As the data and the parameters give reason.
    """
    if not isinstance(learner, Learner):
        raise InvalidParameter("learner", type(learner).__name__, "give what learner('kdb', {}, 'class') returns")
    if isinstance(source, Sequence):
        parts = list(source)
    else:
        require_rows(source)
        parts = [Part(source, store if source.is_identified else None)]
    for part in parts:
        require_rows(part.source)
    with ThreadPoolExecutor(1, thread_name_prefix="store") as writer:
        driver = _Driver(parts, threads, on_progress, checkpoints, learner.n_passes, writer, cluster)
        answer: object = None
        while True:
            try:
                request = learner.passes.send(answer)
            except StopIteration as stop:
                model: Model = stop.value
                break
            answer = None  # what it was need not stay in memory during the next pass
            answer = driver.answer(request)
            del request
            give_back()
        for stored in driver.storing:
            stored.result()
    if accounts is not None:
        accounts += [account for recall in driver.recalls for account in recall.accounts]
    return model


@dataclass
class _Driver:
    """Answers what a learner asks for."""

    parts: Sequence[Part]
    threads: int | None
    on_progress: OnProgress | None
    checkpoints: Checkpoints | None
    n_passes: int | None
    writer: ThreadPoolExecutor
    cluster: Cluster | None
    pass_number: int = 0

    def __post_init__(self) -> None:
        self.storing: list[Future[object]] = []
        self.recalls = [
            Recall(Supply(part.source, part.selection), part.store, self._collected, self._later) for part in self.parts
        ]

    def answer(self, request: Request) -> object:
        if isinstance(request, RowWork):
            self.pass_number += 1
            rows = Rows(request.schema, [part.source for part in self.parts], self.cluster, self.checkpoints)
            request = Work(request.stage, partial(request.run, rows), request.unit)
        if isinstance(request, Work):
            return self._run(request)
        self.pass_number += 1
        whole, *others = [recall.statistic(request) for recall in self.recalls]
        for other in others:
            whole.merge(other)
        # Stored statistics may have met the columns in another order.
        whole.order_columns(self.parts[0].source.arrow_schema.names)
        return whole

    def _later(self, store: Callable[[], object]) -> None:
        self.storing.append(self.writer.submit(store))

    def _collected(self, statistic: S, source: Source, key: str) -> S:
        if self.cluster is not None and source.is_identified:
            return self.cluster.collect(statistic, source, self.on_progress, self.pass_number, self.n_passes)
        return collect(
            statistic,
            source,
            threads=self.threads,
            on_progress=self.on_progress,
            pass_number=self.pass_number,
            n_passes=self.n_passes,
            checkpoint=None if self.checkpoints is None else self.checkpoints.at(key),
        )

    def _run(self, work: Work) -> object:
        started = time.perf_counter()

        def advance(n_done: int, n_total: int, note: str = "", /) -> None:
            if self.on_progress is not None:
                place = self.pass_number, self.n_passes, n_done, n_total, time.perf_counter() - started
                self.on_progress(Progress(work.stage, *place, note, work.unit))

        advance(0, 1)
        return work.run(self.threads or available_cores(), advance)
