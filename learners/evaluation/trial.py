"""One trial: train a learner on folds of a data set and evaluate it on the remaining fold."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa

from learners.errors import SchemaError
from learners.evaluation.datasets import DataSet, Loaded, load_data_set, nested_row_sample, stratified_folds
from learners.evaluation.learner_specs import LearnerSpec
from learners.evaluation.metrics import evaluate
from learners.evaluation.peers import PEERS, Predict
from learners.kernels.arrays import Floats, Integers
from learners.models.parameters import parse_parameters_dataclass
from learners.passes.learner import drive
from learners.passes.sources.source import Source
from learners.registry import recipes
from learners.schema.encoding.encode import encode

DIGITS = 6


# The content of the data, the target, the learner, its code, the seed, the fold, the folds and the limit.
Key = tuple[str, str, str, str, int, int, int, int | None]


@dataclass(frozen=True)
class Trial:
    """Data, learner and fold of one evaluation."""

    data: DataSet
    learner: str  # as `LearnerSpec.text`
    code: str  # `LearnerSpec.code_version`
    seed: int  # decides how rows are shuffled into folds
    # `fold`, `n_folds`: fold number `fold` tests, the others train.
    fold: int
    n_folds: int = 2
    limit: int | None = None  # train on this many rows at most

    @property
    def key(self) -> Key:
        """Values that determine the outcome: the content of the data instead of its name or path."""
        return (self.data.content, self.data.target, self.learner, self.code, self.seed, self.fold, self.n_folds, self.limit)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """Result of a trial."""

    # `data`, `content`, `target`, `learner`, `code`, `seed`, `fold`, `n_folds`, `limit`: the trial.
    data: str
    content: str
    target: str
    learner: str
    code: str
    seed: int
    fold: int
    n_folds: int
    limit: int | None = None
    # `n_train`, `n_test`: rows.
    n_train: int = 0
    n_test: int = 0
    # The fields of `Metrics`, and `train_s` and `predict_s`: seconds of wall-clock time to train (all passes, the
    # schema's too) and to encode and predict the test rows. Empty if it failed.
    scores: Mapping[str, float] = field(default_factory=dict)
    note: str | None = None  # what is unusual about the answers, if anything
    error: str | None = None  # why it failed

    @property
    def key(self) -> Key:
        """Key of the trial."""
        return (self.content, self.target, self.learner, self.code, self.seed, self.fold, self.n_folds, self.limit)


def run_trial(trial: Trial, threads: int = 1) -> Outcome:
    """Train and evaluate; a failure is returned as an outcome with an error.

    Classes that are missing from the training rows get probability zero.
    """
    outcome = Outcome(trial.data.name, *trial.key)
    try:
        data = load_data_set(trial.data)
        train, test = stratified_folds(data.y, trial.n_folds, trial.seed)[trial.fold]
        train = nested_row_sample(train, trial.limit, trial.seed)
        _warm_up(trial.learner, threads)
        started = time.perf_counter()
        predict, note = _train(trial, data, train, threads)
        trained = time.perf_counter()
        rows = data.attributes.take(test)
        before = time.perf_counter()
        probabilities = predict(rows)
        seconds = {"train_s": trained - started, "predict_s": time.perf_counter() - before}
        measured = asdict(evaluate(probabilities, data.y[test])) | seconds
        # Rounded as the log keeps them, so that a resumed run gives the very same numbers.
        scores = {name: float(f"{value:.{DIGITS}g}") for name, value in measured.items()}
        return replace(outcome, n_train=int(train.size), n_test=int(test.size), scores=scores, note=note)
    except Exception as error:  # the edge of a worker: one failure must not end a run of hours
        return replace(outcome, error=f"{type(error).__name__}: {' '.join(str(error).split())}"[:500])


NOTHING_LEFT = "no attribute was left: the class shares are predicted"


def _train(trial: Trial, data: Loaded, rows: Integers, threads: int) -> tuple[Predict, str | None]:
    """Train the learner; returns a function from rows to (n_rows, len(data.classes)) probabilities, and a note on
    special cases.
    """
    n_classes = len(data.classes)
    occurring, codes = np.unique(data.y[rows], return_inverse=True)
    if occurring.size == 1:
        # No learner accepts a single class; the fold says nothing else, so this is the answer of all.
        return _constant(data.y[rows], n_classes), "the training rows have one class only, which is always predicted"
    spec = LearnerSpec.parse(trial.learner)
    try:
        if spec.is_peer:
            peer = PEERS[spec.name]
            parameters = parse_parameters_dataclass(PEERS[spec.name].parameters, spec.name, dict(spec.parameters))
            of_rows = peer.fit(data.attributes.take(rows), codes, parameters, trial.seed, threads)
            return lambda table: _spread(of_rows(table), occurring, n_classes), None
        source = Source.of_table(data.train_table(trial.data.target, rows))
        learner = recipes.learner(
            spec.name, dict(spec.parameters), trial.data.target, None, trial.data.overrides_of_loaded
        )
        model = drive(learner, source, threads=threads)
    except SchemaError as error:
        if error.column is not None:
            raise
        # No single column is at fault: none is left to learn from. A network without attributes is its class shares.
        return _constant(data.y[rows], n_classes), NOTHING_LEFT
    columns = np.array([data.classes.index(value) for value in model.schema.class_values()])
    note = None if model.schema.n_attributes else NOTHING_LEFT
    return lambda table: _spread(model.predict_proba(encode(table, model.schema)), columns, n_classes), note


def _constant(y: Integers, n_classes: int) -> Predict:
    shares = np.bincount(y, minlength=n_classes) / y.size
    return lambda table: np.tile(shares, (table.num_rows, 1))


def _spread(probabilities: Floats, columns: Integers, n_classes: int) -> Floats:
    """Expand probabilities (n, m) to all classes, placing them in columns (m,); zero elsewhere."""
    spread = np.zeros((len(probabilities), n_classes))
    spread[:, columns] = probabilities
    return spread


@cache
def _warm_up(learner: str, threads: int) -> None:
    """Compile and import the learner's code, so that the first trial's time is comparable."""
    spec = LearnerSpec.parse(learner)
    words, numbers = ["a", "b", None, "c"] * 10, [0.5, 1.5, 2.5, None] * 10
    rows = pa.table({"x": words, "z": words[1:] + words[:1], "number": numbers})
    if spec.is_peer:
        parameters = parse_parameters_dataclass(PEERS[spec.name].parameters, spec.name, dict(spec.parameters))
        PEERS[spec.name].fit(rows, np.arange(rows.num_rows) % 2, parameters, 0, threads)(rows)
        return
    table = rows.append_column("class", pa.array(["p", "q", "p", "q"] * 10))
    model = drive(recipes.learner(spec.name, dict(spec.parameters), "class"), Source.of_table(table), threads=threads)
    model.predict_proba(encode(rows, model.schema))
