"""Drive learners, which request statistics and return a model; also the schema pass alone, and access to the rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from learners.errors import InvalidArgument, SchemaError
from learners.kernels.arrays import Integers
from learners.models.model import Model
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.dask_cluster import Cluster
from learners.passes.engine import ROWS, Advance, Checkpoints, OnProgress, Progress, collect, require_nonempty_source
from learners.passes.memory import release_free_memory
from learners.passes.row_rules import apply_null_class_rule, apply_row_weight_rule, repeated_row_positions
from learners.passes.sources.row_filter import Selection
from learners.passes.sources.source import Source
from learners.passes.statistic import Statistic
from learners.passes.statistic_reuse import Account, Files, Recall, Store, Supply
from learners.passes.threads import available_cores
from learners.schema import Chunk, Overrides, Schema
from learners.schema.encoding.encode import Encoder, encode
from learners.schema.schema import MAX_CLASSES

S = TypeVar("S", bound=Statistic)
Result = TypeVar("Result")


__all__ = ["Account", "Checkpoints", "Learner", "OnProgress", "Part", "Progress", "RowWork", "Store", "Work", "drive"]


@dataclass(frozen=True)
class Work:
    """A long computation between passes, run by the driver, which reports progress and cancels it."""

    stage: str  # what it does, in words
    # `run(threads, advance)`; it calls `advance(n_done, n_total)` now and then, which may raise.
    run: Callable[[int, Advance], object]
    # What is counted by that, such as trees or rounds; by default only the share of the work means something.
    unit: str = ""


@dataclass(frozen=True)
class RowWork:
    """A computation over the rows themselves, for learners without a suitable statistic; it counts as one pass.

    Its result is not stored, added or subtracted: prefer a statistic.
    """

    stage: str  # what it does, in words
    schema: Schema  # by which the rows are encoded
    # `run(rows, threads, advance)`; it may walk the rows several times, and calls `advance(n_done, n_total)` now and
    # then, which may raise.
    run: Callable[[Rows, int, Advance], object]
    unit: str = ROWS  # as of `Work`
    is_announced: bool = True  # as of `Statistic`


@dataclass(frozen=True)
class AreWeighted:
    """Asks whether rows count by weights, so that equal rows may be copies of one; answered by how many rows the sources have,
    each counted once, or by 0 without weights.
    """


Request = Statistic | Work | RowWork | AreWeighted


# What a learner asks for, in turn, and what it returns. What it is sent is what it asked for: the statistic with its
# rows, or what the work returned.
Passes = Generator[Request, Any, Result]


@dataclass(frozen=True)
class Learner:
    """Passes of a learner: a generator that yields statistics (or `Work`, `RowWork`) and returns the model."""

    name: str
    passes: Passes[Model]
    n_passes: int | None  # how many passes over the data it will make


@dataclass(frozen=True)
class Part:
    """Part of the training rows, with the store of its statistics."""

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
    """Run a learner over a source and return the model.

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
        Storage for the intermediate state of passes, from which a killed run resumes.
    accounts : list, optional
        Receives, for each statistic, an `Account` of the rows read and reused.
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
        raise InvalidArgument("learner", learner, "a learner such as learner('kdb', {}, 'class')")
    if isinstance(source, Sequence):
        parts = list(source)
    else:
        require_nonempty_source(source)
        parts = [Part(source, store if source.is_identified else None)]
    for part in parts:
        require_nonempty_source(part.source)
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
            release_free_memory()
        for stored in driver.storing:
            stored.result()
    if accounts is not None:
        accounts += [account for recall in driver.recalls for account in recall.accounts]
    return model


@dataclass
class _Driver:
    """Serves the requests of a learner."""

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
        if isinstance(request, AreWeighted):
            is_weighted = any(part.source.weight is not None for part in self.parts)
            return sum(part.source.n_rows for part in self.parts) if is_weighted else 0
        if isinstance(request, RowWork):
            self._begin_pass(request.is_announced)
            rows = Rows(request.schema, [part.source for part in self.parts], self.cluster, self.checkpoints)
            request = Work(request.stage, partial(request.run, rows), request.unit)
        if isinstance(request, Work):
            return self._run(request)
        self._begin_pass(request.is_announced)
        whole, *others = [recall.statistic(request) for recall in self.recalls]
        for other in others:
            whole.merge(other)
        # Stored statistics may have met the columns in another order.
        whole.order_columns(self.parts[0].source.arrow_schema.names)
        return whole

    def _begin_pass(self, is_announced: bool) -> None:
        self.pass_number += 1
        if self.n_passes is not None and not is_announced:
            self.n_passes += 1

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


class Rows:
    """All rows of some sources, encoded; every iteration reads them again, in the same order.

    `cluster`: whose workers may read the rows instead.
    `checkpoints`: where a computation over the rows may keep what it has so far, for a run that was killed and starts
    again.
    `n_rows`: at most; a filtered source has fewer.
    """

    def __init__(
        self,
        schema: Schema,
        sources: Sequence[Source],
        cluster: Cluster | None = None,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.schema, self.sources, self.cluster, self.checkpoints = schema, tuple(sources), cluster, checkpoints
        self.n_rows = sum(source.n_rows for source in sources)

    @property
    def folder(self) -> Path | None:
        """Folder in which the computation may keep files; None without checkpoints."""
        return None if self.checkpoints is None else self.checkpoints.directory

    @property
    def identity(self) -> list[str]:
        """Identity of these rows: each file in order, and the conditions that select its rows."""
        return [repr(source.files[fragment.file]) for source in self.sources for fragment in source.fragments]

    def __iter__(self) -> Iterator[Chunk]:
        """Iterate chunk by chunk, with one chunk in memory. Raises SourceError, SchemaError or UnknownColumn for
        invalid data.
        """
        for chunk, weights in self.weighted():
            yield from _repeated(chunk, weights)

    def weighted(self) -> Iterator[tuple[Chunk, Integers | None]]:
        """Yield chunks of distinct rows with their counts (n_rows,) int64, or None where every count is 1."""
        encoder = Encoder(self.schema)
        for batch, weights, where in self._batches():
            yield encoder.training_chunk(batch, where), weights

    def with_unseen(self) -> Iterator[Chunk]:
        """Iterate with the unseen code for values outside the domains, which are otherwise refused.

        Raises SourceError, UnknownColumn or SchemaError, also for a class that the schema lacks.
        """
        for batch, weights, where in self._batches():
            try:
                yield from _repeated(encode(batch, self.schema), weights)
            except SchemaError as error:
                raise SchemaError(f"{where}: {error}", error.column, error.columns) from error

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, Integers | None, str]]:
        for source in self.sources:
            for fragment in source.fragments:
                for batch, weights in source.read_weighted(fragment, self.schema.columns):
                    if batch.num_rows:
                        yield batch, weights, source.files[fragment.file].path


def _repeated(chunk: Chunk, weights: Integers | None) -> Iterator[Chunk]:
    if weights is None:
        yield chunk
    else:
        yield from map(chunk.rows, repeated_row_positions(weights))


def infer_schema(
    source: Source,
    target: str | None,
    overrides: Overrides | None = None,
    *,
    max_values: int = 1024,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
) -> Schema:
    """Infer the schema of a source in one pass.

    Parameters
    ----------
    target : str or None
        The class column; None for an unsupervised model.
    overrides : mapping, optional
        Column name to `ColumnOverride`, or what `ColumnOverride.of` reads.
    max_values : int
        Values that a nominal attribute keeps.
    threads, on_progress
        As in `collect`.

    Raises
    ------
    EmptyData, SchemaError, UnknownColumn, SourceError, InvalidParameter
    """
    require_nonempty_source(source)
    source = apply_row_weight_rule(apply_null_class_rule(source, target, overrides), overrides)
    summaries = ColumnSummaries(target, overrides, max_values=max_values, max_classes=MAX_CLASSES)
    return collect(summaries, source, threads=threads, on_progress=on_progress, n_passes=1).build_schema(by_name=False)


@dataclass(frozen=True)
class Held:
    """A table in memory with its specification."""

    key: str
    spec: Mapping[str, object]
    schema: str | None
    files: Files
    table: pa.Table


class MemoryStore:
    """A store in memory, which lasts as long as its process."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}

    def get(self, key: str) -> pa.Table | None:
        """Return the table stored under a key, or None."""
        return self._held[key].table if key in self._held else None

    def put(
        self, key: str, table: pa.Table, *, spec: Mapping[str, object], schema: str | None, files: Iterable[str]
    ) -> None:
        """Store a table with its specification."""
        self._held[key] = Held(key, spec, schema, frozenset(files), table)

    def entries(self) -> Sequence[Held]:
        """Return all entries."""
        return list(self._held.values())
