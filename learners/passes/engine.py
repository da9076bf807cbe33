"""Collect a statistic over a source with threads."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from learners.errors import EmptyData, InvalidArgument, InvalidBuffers, InvalidParameter, SchemaError, SourceError
from learners.kernels.arrays import Integers
from learners.passes.row_rules import add_weighted_rows
from learners.passes.sources.source import Fragment, Source
from learners.passes.statistic import ColumnWise, Statistic
from learners.passes.threads import available_cores, run_on_threads
from learners.schema.encoding.encode import Encoder
from learners.schema.overrides import MOST_WEIGHT
from learners.schema.schema_inference import compact_null_column

S = TypeVar("S", bound=Statistic)

MOST_GATHERED = 2_000_000  # rows of a fragment whose columns are read one after the other
ROWS = "rows"


@dataclass(frozen=True)
class Progress:
    """Progress of a learner.

    Parameters
    ----------
    stage : str
        What is being done, in words.
    pass_number : int
        From 1; work between passes keeps the number of the pass before.
    n_passes : int or None
        Total number, if known.
    rows_done, rows_total : int
        Rows of this pass; or of a computation between passes, whatever its `unit` is.
    seconds : float
        Since this pass began.
    note : str
        State of a computation as text, if there is more to report than its progress.
    unit : str
        What `rows_done` counts: rows, trees, rounds; empty where only the share means something.
    """

    stage: str
    pass_number: int
    n_passes: int | None
    rows_done: int
    rows_total: int
    seconds: float
    note: str = ""
    unit: str = ROWS

    @property
    def words(self) -> str:
        """Description of the current stage: "pass 2 of 3 (counting pairs)", or "boosting trees" between passes."""
        stage = f"{self.stage}: {self.note}" if self.note else self.stage
        if self.unit != ROWS:
            return stage
        number = f"pass {self.pass_number}" + (f" of {self.n_passes}" if self.n_passes else "")
        return f"{number} ({stage})"

    @property
    def rows_per_s(self) -> float:
        """Rows, or units, per second so far."""
        return self.rows_done / max(self.seconds, 1e-9)

    @property
    def eta_s(self) -> float | None:
        """Estimated seconds until this pass ends; None before any rows are done."""
        return (self.rows_total - self.rows_done) / self.rows_per_s if self.rows_done else None


OnProgress = Callable[[Progress], object]


class Advance(Protocol):
    """Callback for the progress of a long computation; it may raise to stop it."""

    def __call__(self, n_done: int, n_total: int, note: str = "", /) -> None:
        """Report that `n_done` of `n_total` units are done; the note describes the state in words."""


def ignore_progress(n_done: int, n_total: int, note: str = "", /) -> None:
    """Ignore progress reports."""


class Checkpoint(Protocol):
    """Storage for the partial result of one pass."""

    every_s: float

    def load(self) -> tuple[pa.Table, dict[str, list[int]]] | None:
        """Return the last saved statistic and its note; None if absent or damaged."""

    def save(self, table: pa.Table, note: dict[str, list[int]]) -> None:
        """Replace the saved statistic."""


class Checkpoints(Protocol):
    """Checkpoints of a run."""

    @property
    def directory(self) -> Path:
        """Folder of the run, for files of computations over rows."""

    def at(self, key: str) -> Checkpoint:
        """Return the checkpoint of the pass that collects the statistic with this key."""


class _Walk(Generic[S]):
    """Remaining fragments, shared by the threads of a pass."""

    def __init__(self, source: Source, done: Sequence[int] = ()) -> None:
        self.source = source
        self.stopped = threading.Event()
        self.weighed = 0
        self.rows_done = sum(source.fragments[index].n_rows for index in done)
        # Raised when the threads shall hand over what they have, at their next fragment.
        self.handover = 0
        self.handed: SimpleQueue[tuple[S, list[int]]] = SimpleQueue()
        self._lock = threading.Lock()
        skipped = set(done)
        self._pending = iter([index for index in range(len(source.fragments)) if index not in skipped])

    def next_fragment(self) -> int | None:
        with self._lock:
            return None if self.stopped.is_set() else next(self._pending, None)

    def count(self, n_rows: int) -> None:
        with self._lock:
            self.rows_done += n_rows

    def weigh(self, total: int) -> None:
        with self._lock:
            self.weighed += total
        if self.weighed > MOST_WEIGHT:
            raise SchemaError(f"The row weights sum to more than {MOST_WEIGHT:,}. Set a scale below 1.")


def collect(
    statistic: S,
    source: Source,
    *,
    threads: int | None = None,
    on_progress: OnProgress | None = None,
    pass_number: int = 1,
    n_passes: int | None = None,
    checkpoint: Checkpoint | None = None,
) -> S:
    """Collect the statistic of all rows of the source in one pass.

    Parameters
    ----------
    statistic : Statistic
        An empty one; it says what to collect and is not changed.
    threads : int, optional
        By default one per core. The result does not depend on it.
    on_progress : callable, optional
        Called with a `Progress` about ten times a second; raising in it stops all threads between two chunks, and the
        exception comes out here.
    checkpoint : Checkpoint, optional
        Stores, at intervals, a statistic of whole fragments; a later run resumes from it.

    Raises
    ------
    SourceError, SchemaError, UnknownColumn
        As the data gives reason.
    InvalidCounts
        If a table does not sum to the rows.
    InvalidParameter
        If the statistic or the source is nothing of the kind.
    """
    if not isinstance(statistic, Statistic) or not isinstance(source, Source):
        kinds = f"{type(statistic).__name__}, {type(source).__name__}"
        raise InvalidParameter("statistic, source", kinds, "an empty statistic and a Source")
    saved = _Saved(statistic, checkpoint, [zlib.crc32(repr(file.stamp).encode()) for file in source.files])
    walk: _Walk[S] = _Walk(source, saved.done)
    n_threads = max(1, min(threads or available_cores(), len(source.fragments)))
    started = time.perf_counter()

    def report() -> None:
        if on_progress is not None:
            seconds = time.perf_counter() - started
            on_progress(Progress(statistic.stage, pass_number, n_passes, walk.rows_done, source.n_rows, seconds))

    def look() -> None:
        report()
        saved.take(walk)

    report()
    parts = run_on_threads([partial(_work, statistic, walk)] * n_threads, n_threads, walk.stopped, look, "pass")
    saved.merge_handed(walk)
    # What nothing was saved of begins with the first part: to add it to an empty one would cost as much as a large table.
    whole = saved.statistic if saved.done else parts.pop(0)
    for part in parts:
        whole.merge(part)
    whole.check()
    report()
    return whole


class _Saved(Generic[S]):
    """Partial statistics handed over by the threads of a pass, and their checkpoint."""

    def __init__(self, statistic: S, checkpoint: Checkpoint | None, stamps: list[int]) -> None:
        self.checkpoint, self.stamps = (
            checkpoint,
            stamps,
        )  # of the files: a pass over other files must not go on from it
        self.statistic = statistic.empty()
        self.done: list[int] = []
        self.written_at = time.perf_counter()
        saved = None if checkpoint is None else checkpoint.load()
        if saved is not None and saved[1].get("stamps", stamps) == stamps:
            table, note = saved
            self.statistic, self.done = statistic.empty().from_arrow(table), list(note["fragments"])

    def take(self, walk: _Walk[S]) -> None:
        """Periodically request the threads' partial statistics and save them."""
        if self.checkpoint is None:
            return
        if self.merge_handed(walk):
            self.checkpoint.save(self.statistic.to_arrow(), {"fragments": self.done, "stamps": self.stamps})
            self.written_at = time.perf_counter()
        elif time.perf_counter() - self.written_at >= self.checkpoint.every_s:
            walk.handover += 1
            self.written_at = time.perf_counter()

    def merge_handed(self, walk: _Walk[S]) -> bool:
        """Merge the partial statistics that were handed over; returns whether there were any."""
        n_before = len(self.done)
        while not walk.handed.empty():
            part, fragments = walk.handed.get()
            self.statistic.merge(part)
            self.done += fragments
        return len(self.done) > n_before


def _work(whole: S, walk: _Walk[S]) -> S:
    """Collect fragments in one thread until none are left."""
    source, statistic = walk.source, whole.empty()
    schema = statistic.schema
    encoder = None if schema is None else Encoder(schema)
    done: list[int] = []
    handover = walk.handover
    while (index := walk.next_fragment()) is not None:
        fragment = source.fragments[index]
        # Codes of rows that all count once need less memory than the pages of all columns.
        is_small = source.weight is None and fragment.n_rows <= MOST_GATHERED and source.has_columns_apart(fragment)
        if is_small and isinstance(statistic, ColumnWise) and statistic.can_gather:
            _gather(statistic, walk, fragment)
            done.append(index)
            continue
        columns = statistic.columns
        rows = (
            _learnable(source, fragment)
            if columns is None
            else source.read_weighted(fragment, columns, encoder is None)
        )
        for batch, weights in rows:
            if walk.stopped.is_set():
                return statistic
            if weights is not None:
                walk.weigh(int(weights.sum()))
            _add(statistic, encoder, batch, weights, source.files[fragment.file].path)
            walk.count(batch.num_rows)
        done.append(index)
        if walk.handover != handover:
            handover = walk.handover
            walk.handed.put((statistic, done))
            statistic, done = whole.empty(), []
    return statistic


def _learnable(source: Source, fragment: Fragment) -> Iterator[tuple[pa.RecordBatch, Integers | None]]:
    """Yield the rows of a fragment with their weights; columns that cannot be learned from are null columns of their
    type.

    This avoids decoding lists, structs and bytes.
    """
    names, kinds = source.learnable(), [field.type for field in source.arrow_schema]
    if len(names) in (0, len(kinds)):
        yield from source.read_weighted(fragment)
        return
    for batch, weights in source.read_weighted(fragment, names):
        columns = dict(zip(names, batch.columns, strict=True))
        arrays = [
            columns[name] if name in columns else compact_null_column(kind, batch.num_rows)
            for name, kind in zip(source.arrow_schema.names, kinds, strict=True)
        ]
        yield pa.RecordBatch.from_arrays(arrays, source.arrow_schema.names), weights


def _add(
    statistic: Statistic, encoder: Encoder | None, batch: pa.RecordBatch, weights: Integers | None, where: str
) -> None:
    """Add the rows of a batch, each as often as its weight."""
    try:
        rows = batch if encoder is None else encoder.training_chunk(batch, where)
        if weights is None:
            statistic.update(rows)
        else:
            add_weighted_rows(statistic, rows, weights)
    except InvalidBuffers as error:
        raise SourceError(where, f"is damaged: {error} Restore the file from its source.") from error
    except SchemaError as error:
        if encoder is not None:  # which has said where
            raise
        raise SchemaError(f"{where}: {error}", error.column, error.columns) from error


def _gather(statistic: ColumnWise, walk: _Walk[S], fragment: Fragment) -> None:
    """Add the rows of a fragment, a group of columns at a time."""
    source, gathering = walk.source, statistic.gathering(fragment.n_rows)
    for number, columns in enumerate(gathering.columns):
        start = 0
        for batch in source.read(fragment, columns):
            if walk.stopped.is_set():
                return
            try:
                gathering.add(number, batch, start)
            except SchemaError as error:
                raise SchemaError(
                    f"{source.files[fragment.file].path}: {error}", error.column, error.columns
                ) from error
            start += batch.num_rows
    gathering.finish()
    walk.count(fragment.n_rows)


def require_nonempty_source(source: Source) -> None:
    """Refuse anything but a source with rows. Raises InvalidParameter or EmptyData."""
    if not isinstance(source, Source):
        raise InvalidArgument("source", source, "a Source, such as Source.open('rows.parquet')")
    if not source.n_rows:
        raise EmptyData(f"{', '.join(file.path for file in source.files[:3])}: there are no rows to learn from.")
