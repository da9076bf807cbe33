"""A learner asks for statistics and returns a model; the driver makes the passes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import pyarrow as pa

from learners.model import Model
from learners.passes.engine import OnProgress, Progress, available_cores, collect, require_rows
from learners.passes.rows import Rows
from learners.passes.source import Source
from learners.passes.statistic import Statistic
from learners.schema import Schema

__all__ = ["Learner", "OnProgress", "Part", "Progress", "RowWork", "Store", "Work", "drive", "statistic_key"]


@dataclass(frozen=True)
class Work:
    """A long computation between passes, which the driver runs so that progress and cancelling reach it.

    Parameters
    ----------
    stage : str
        What it does, in words.
    run : callable
        `run(threads, advance)`; it calls `advance(n_done, n_total)` now and then, which may raise.
    """

    stage: str
    run: Callable[[int, Callable[[int, int], None]], Any]


@dataclass(frozen=True)
class RowWork:
    """A computation over the rows themselves, for learners that no statistic can serve; it counts as one pass.

    Nothing of it is stored, added or subtracted: prefer a statistic.

    Parameters
    ----------
    stage : str
        What it does, in words.
    schema : Schema
        By which the rows are encoded.
    run : callable
        `run(rows, threads, advance)`; it may walk the rows several times, and calls `advance(n_done, n_total)` now and
        then, which may raise.
    """

    stage: str
    schema: Schema
    run: Callable[[Rows, int, Callable[[int, int], None]], Any]


@dataclass(frozen=True)
class Learner:
    """The passes of a learner: a generator that yields statistics (or `Work`, `RowWork`) and returns the model.

    Parameters
    ----------
    name : str
    passes : generator
    n_passes : int or None
        How many passes over the data it will make.
    """

    name: str
    passes: Generator[Any, Any, Model]
    n_passes: int | None


class Store(Protocol):
    """Where finished statistics are kept, so that a run resumes and models share passes."""

    def get(self, key: str) -> pa.Table | None:
        """The table stored under a key."""

    def put(self, key: str, table: pa.Table) -> Any:
        """Keep a table."""


def statistic_key(statistic: Statistic, source: Source) -> str:
    """SHA-256 of (specification, schema, files): equal keys mean equal statistics."""
    identity = {
        "spec": statistic.spec,
        "schema": None if statistic.schema is None else statistic.schema.fingerprint,
        "files": sorted([file.path, file.size, file.mtime_ns, file.footer_sha256] for file in source.files),
    }
    return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Part:
    """Some of the rows to learn from, and where statistics of just these rows are kept.

    Parameters
    ----------
    source : Source
    store : Store, optional
        Statistics found in it are not collected again; those collected are put there.
    """

    source: Source
    store: Store | None = None


def drive(
    learner: Learner,
    source: Source | Sequence[Part],
    *,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    store: Store | None = None,
) -> Model:
    """Run a learner over a source.

    Parameters
    ----------
    learner : Learner
    source : Source or sequence of Part
        The model of several parts is that of all their rows, bit for bit: statistics add.
    threads : int, optional
        By default one per core. The model does not depend on it.
    on_progress : callable, optional
        Called with a `Progress`; raising in it (for example `Cancelled`) ends the run, and the exception comes out here.
    store : Store, optional
        For a single source, as in `Part`.

    Returns
    -------
    Model

    Raises
    ------
    EmptyData
        If there are no rows.
    SourceError, SchemaError, UnknownColumn, InvalidParameter
        As the data and the parameters give reason.
    """
    if isinstance(source, Source):
        parts = [Part(source, store if source.is_identified else None)]
    else:
        parts = list(source)
    for part in parts:
        require_rows(part.source)
    pass_number = 0
    answer: Any = None
    while True:
        try:
            wanted = learner.passes.send(answer)
        except StopIteration as stop:
            model: Model = stop.value
            return model
        if isinstance(wanted, RowWork):
            pass_number += 1
            wanted = Work(wanted.stage, partial(wanted.run, Rows(wanted.schema, [part.source for part in parts])))
        if isinstance(wanted, Work):
            answer = _run(wanted, threads or available_cores(), on_progress, pass_number, learner.n_passes)
            continue
        pass_number += 1
        statistics = [_statistic(wanted, part, threads, on_progress, pass_number, learner.n_passes) for part in parts]
        answer = statistics[0]
        for statistic in statistics[1:]:
            answer.merge(statistic)


def _statistic(
    wanted: Any, part: Part, threads: int | None, on_progress: OnProgress | None, pass_number: int, n_passes: int | None
) -> Any:
    """The statistic of one part, from its store or by a pass."""
    key = statistic_key(wanted, part.source) if part.store is not None else ""
    stored = part.store.get(key) if part.store is not None else None
    if stored is not None:
        return wanted.from_arrow(stored)
    collected = collect(
        wanted, part.source, threads=threads, on_progress=on_progress, pass_number=pass_number, n_passes=n_passes
    )
    if part.store is not None:
        part.store.put(key, collected.to_arrow())
    return collected


def _run(work: Work, threads: int, on_progress: OnProgress | None, pass_number: int, n_passes: int | None) -> Any:
    started = time.perf_counter()

    def advance(n_done: int, n_total: int) -> None:
        if on_progress is not None:
            seconds = time.perf_counter() - started
            on_progress(Progress(work.stage, pass_number, n_passes, n_done, n_total, seconds))

    advance(0, 1)
    return work.run(threads, advance)
