"""Repeated cross-validation of learners over data sets, parallel over processes and resumable from a JSON Lines log."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

from learners.errors import InvalidParameter, SourceError
from learners.evaluation.datasets import DataSet, find_data_sets
from learners.evaluation.learner_specs import LearnerSpec
from learners.evaluation.trial import Key, Outcome, Trial, run_trial


@dataclass(frozen=True)
class TrialProgress:
    """Progress of a cross-validation."""

    # `n_done`, `n_total`: trials; those found in the log count as done.
    n_done: int
    n_total: int
    n_found: int  # trials that were in the log
    latest: Outcome | None  # what has just been measured


def cross_validation_trials(
    data_sets: Sequence[DataSet],
    learners: Sequence[LearnerSpec],
    *,
    repetitions: int = 5,
    n_folds: int = 2,
    seed: int = 0,
    limits: Sequence[int | None] = (None,),
) -> list[Trial]:
    """Return every trial of a cross-validation, grouped by data set."""
    return [
        Trial(data, spec.text, spec.code_version(), seed + repetition, fold, n_folds, limit)
        for data in data_sets
        for repetition in range(repetitions)
        for fold in range(n_folds)
        for limit in limits
        # With as many rows as there are, a limit gives no new point of a learning curve.
        if limit is None or limit < data.n_rows - data.n_rows // n_folds
        for spec in learners
    ]


def cross_validate(
    data: Sequence[str | Path],
    learners: Sequence[str],
    *,
    log: str | Path | None = None,
    repetitions: int = 5,
    n_folds: int = 2,
    seed: int = 0,
    limits: Sequence[int | None] = (None,),
    target: str | None = None,
    columns: Mapping[str, Any] | None = None,
    most_rows: int | None = None,
    jobs: int = 1,
    threads: int = 1,
    any_code: bool = False,
    on_progress: Callable[[TrialProgress], object] | None = None,
) -> list[Outcome]:
    """Train and measure every learner on every fold of every data set.

    Repetition r shuffles with seed + r. Everything is learned from the training fold alone, the schema and its cut
    points, too. The outcomes do not depend on `jobs`.

    Parameters
    ----------
    data : sequence of path
        Files, and folders of them; each glob or URI is one table.
    learners : sequence of str
        Such as `nb`, `kdb:k=3` or `random-forest`; see `LearnerSpec.parse`.
    log : path, optional
        JSON lines with finished trials; those in it are not done again, new ones are appended.
    repetitions, n_folds, seed : int
        r × n-fold cross-validation.
    limits : sequence of int or None
        Rows to train on at most: several give learning curves. None is all rows of the training folds.
    target : str, optional
        The class column; by default `class`, or else the last one.
    columns : mapping, optional
        Settings of columns, as in training: how files are written, kinds, which are dropped.
    most_rows : int, optional
        Leave out data sets of more rows.
    jobs : int
        Processes.
    threads : int
        Per process.
    any_code : bool
        Accept logged outcomes of other versions of a learner's code.
    on_progress : callable, optional
        Called with a `TrialProgress` after every trial; an exception in it ends the run and keeps the log.

    Returns
    -------
    list of Outcome
        In the order of data sets, repetitions, folds, limits, learners; failed trials have an `error`. Their learner is
        spelled as given.

    Raises
    ------
    InvalidParameter, SourceError, UnknownColumn
    """
    for name, names in (("data", data), ("learners", learners)):
        if isinstance(names, str) or not isinstance(names, Collection):
            raise InvalidParameter(name, names, "a list")
    least_one = {"repetitions": repetitions, "jobs": jobs, "threads": threads, "n_folds - 1": n_folds - 1}
    for name, value in least_one.items():
        if value < 1:
            raise InvalidParameter(name, value, "at least 1")
    specs = list(dict.fromkeys(LearnerSpec.parse(text) for text in learners))
    as_given = {LearnerSpec.parse(text).text: text.strip() for text in reversed(learners)}
    if not specs:
        raise InvalidParameter("learners", learners, "one or more learners")
    trials = cross_validation_trials(
        [each for each in find_data_sets(data, target, columns) if most_rows is None or each.n_rows <= most_rows],
        specs,
        repetitions=repetitions,
        n_folds=n_folds,
        seed=seed,
        limits=limits,
    )
    written = OutcomeLog(Path(log)) if log is not None else None

    def identity(one: Trial | Outcome) -> tuple[object, ...]:
        return tuple("" if any_code and part == one.code else part for part in one.key)

    logged = {} if written is None else {identity(outcome): outcome for outcome in written.finished().values()}
    outcomes = {identity(trial): logged[identity(trial)] for trial in trials if identity(trial) in logged}
    pending = [trial for trial in trials if identity(trial) not in logged]
    n_found = len(trials) - len(pending)

    def report(latest: Outcome | None) -> None:
        if on_progress is not None:
            on_progress(TrialProgress(len(outcomes), len(trials), n_found, latest))

    report(None)
    for outcome in _measured(pending, jobs, threads):
        outcomes[identity(outcome)] = outcome
        if written is not None:
            written.append(outcome)
        report(outcome)
    return [replace(outcomes[identity(trial)], learner=as_given[trial.learner]) for trial in trials]


def _measured(trials: Sequence[Trial], jobs: int, threads: int) -> Iterator[Outcome]:
    """Yield the outcomes as trials finish."""
    if jobs == 1:
        yield from map(partial(run_trial, threads=threads), trials)
        return
    # A large set started last would keep one process busy while the others wait.
    largest_first = sorted(trials, key=lambda trial: -trial.data.n_rows)
    # Spawned: numba's and OpenMP's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(jobs, len(trials) or 1), context, os.nice, (5,)) as pool:
        futures = [pool.submit(run_trial, trial, threads) for trial in largest_first]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


class OutcomeLog:
    """A file with one outcome per line, the newest last.

    An incomplete last line is dropped and its trial repeated.

    `path`: need not exist.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[Outcome]:
        if not self.path.exists():
            return
        lines = self.path.read_bytes().split(b"\n")
        for number, line in enumerate(lines[:-1], start=1):  # what follows the last line end is half a line, or nothing
            try:
                yield Outcome(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise SourceError(
                    f"{self.path}, line {number}", f"is not an outcome ({error}). Remove the line."
                ) from error

    def finished(self) -> dict[Key, Outcome]:
        """Return the outcomes of successful trials by key."""
        return {outcome.key: outcome for outcome in self if outcome.error is None}

    def append(self, outcome: Outcome) -> None:
        """Append an outcome and sync it to disk."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        fields = {name: value for name, value in asdict(outcome).items() if value is not None}
        with self.path.open("ab+") as file:
            file.truncate(_end_of_last_line(file))
            file.write(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())


def _end_of_last_line(file: IO[bytes]) -> int:
    end = file.seek(0, os.SEEK_END)
    if not end:
        return 0
    file.seek(end - 1)
    if file.read(1) == b"\n":
        return int(end)
    file.seek(0)
    return int(file.read().rfind(b"\n")) + 1
