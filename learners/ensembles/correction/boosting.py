"""The correction of an ensemble by boosted trees; the only file here that trains with XGBoost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from learners.classifiers.baselines.boosted import CodeTable
from learners.classifiers.baselines.settings import EQUAL_START
from learners.ensembles.correction.forest import flat_forest
from learners.ensembles.model import Correction
from learners.ensembles.weights import Rows, fitted_weights
from learners.kernels.arrays import Floats, frozen
from learners.passes.engine import Advance
from learners.schema import Chunk, Schema

MOST_ROUNDS = 300
PATIENCE = 20
SUBSAMPLE = 0.8
# Trees that go on from the ensemble are small, those from nothing find deeper interactions.
DEPTHS = {"from ensemble": 4, "alone": 6}
N_FOLDS = 5
# Rows times classes from which fewer folds of five tell the number of rounds.
FEWER, FEWEST = 10_000, 30_000
MANY_ROWS = 10_000
MANY_CLASSES = 4


@dataclass(frozen=True, eq=False)
class Boosters:
    """Trees that correct an ensemble.

    The score of a class is share · (log p of the ensemble) + Σ weight_j · (margin of booster j).

    Parameters
    ----------
    share : float
    weights : tuple of float
    boosters : tuple of xgboost.Booster
    facts : dict
        Rounds and weights by name, and the log losses of the rows left out without and with the correction.
    """

    share: float
    weights: tuple[float, ...]
    boosters: tuple[Any, ...]
    facts: dict[str, object]

    def correction(self, schema: Schema) -> Correction | None:
        """As a model keeps it; None if the ensemble's share alone has changed."""
        if not self.boosters:
            return None
        serialised = tuple(np.frombuffer(bytes(booster.save_raw("ubj")), np.uint8) for booster in self.boosters)
        return Correction(flat_forest(schema, self.boosters, self.weights), serialised, self.weights)


def _settings(n_classes: int, depth: int, seed: int, threads: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "tree_method": "hist",
        "max_depth": depth,
        "learning_rate": 0.1 if n_classes <= MANY_CLASSES else 0.2,
        "subsample": SUBSAMPLE,
        "seed": seed,
        "nthread": threads,
        "base_score": EQUAL_START,
    }
    if n_classes == 2:
        return settings | {"objective": "binary:logistic", "eval_metric": "logloss"}
    return settings | {"objective": "multi:softprob", "num_class": n_classes, "eval_metric": "mlogloss"}


class _Data:
    """Rows as XGBoost wants them."""

    def __init__(self, schema: Schema, rows: Chunk, scores: Floats, threads: int) -> None:
        codes = CodeTable(schema)
        self.x, self.y = codes.features(rows.x), np.asarray(rows.y)
        self.n_classes, self.threads = schema.n_classes, threads
        self.margins = scores[:, 1] - scores[:, 0] if schema.n_classes == 2 else scores
        self.types = codes.feature_types

    def matrix(self, index: Any, start: float, ref: Any = None) -> Any:
        """A matrix of some rows that starts from a multiple of the ensemble's scores."""
        import xgboost

        return xgboost.QuantileDMatrix(
            self.x[index],
            self.y[index],
            base_margin=start * self.margins[index],
            feature_types=self.types,
            enable_categorical=True,
            nthread=self.threads,
            ref=ref,
        )

    def as_scores(self, margin: Any) -> Floats:
        """(n, n_classes) of what XGBoost calls a margin."""
        margin = np.asarray(margin, np.float64)
        return np.stack([np.zeros_like(margin), margin], axis=1) if self.n_classes == 2 else margin


@dataclass(frozen=True, eq=False)
class _Run:
    """One way to boost, cross-validated."""

    start: float
    settings: dict[str, Any]
    n_rounds: int
    held: Any  # rows that were left out of one fold
    scores: Floats  # of these, after n_rounds


def boost(schema: Schema, rows: Chunk, scores: Floats, seed: int, advance: Advance) -> Boosters | None:
    """Boost trees from the scores of an ensemble and trees from nothing, and pool both; None where neither helps.

    Rounds and weights are chosen on rows left out; no rounds and weights of zero are allowed.

    Parameters
    ----------
    schema : Schema
    rows : Chunk
        In random order but for equal ones, which lie side by side, so that they come into different folds.
    scores : (n, n_classes) float64
        Log probabilities by the ensemble, each row left out.
    seed : int
    advance : callable
    """
    import xgboost

    if rows.n_rows < 2 * N_FOLDS:
        return None
    # Always as many: XGBoost's sums, and so the model, depend on it.
    threads = 2 if rows.n_rows >= MANY_ROWS else 1
    data = _Data(schema, rows, scores, threads)
    runs = []
    for number, (name, depth) in enumerate(DEPTHS.items()):
        start = 1.0 if name == "from ensemble" else 0.0
        settings = _settings(schema.n_classes, depth, seed, threads)
        runs.append(_cross_validated(data, start, settings, partial(_half, advance, number)))
    held = runs[0].held
    own = Rows(frozen(data.y[held]), np.zeros((held.size, schema.n_classes)))
    terms = np.stack([run.scores for run in runs], axis=1).astype(np.float32)
    weights = fitted_weights(terms, own, np.array([1.0, 0.0]), threads)
    weights = np.where([weights[0] > 0.02, weights[1] > 0.02 and runs[1].n_rounds > 0], weights, 0.0)
    used = [(weight, run) for weight, run in zip(weights, runs, strict=True) if weight and run.n_rounds]
    if not used:
        return None
    boosters = tuple(
        xgboost.train(run.settings, data.matrix(slice(None), run.start), num_boost_round=run.n_rounds)
        for _, run in used
    )
    facts: dict[str, object] = {"rounds": {name: run.n_rounds for name, run in zip(DEPTHS, runs, strict=True)},
             "weights": dict(zip(DEPTHS, weights.tolist(), strict=True))}  # fmt: skip
    return Boosters(float(weights[0]), tuple(float(weight) for weight, _ in used), boosters, facts)


def _half(advance: Advance, number: int, n_done: int, n_total: int) -> None:
    advance(number * n_total + n_done, len(DEPTHS) * n_total)


def _cross_validated(data: _Data, start: float, settings: dict[str, Any], advance: Advance) -> _Run:
    import xgboost

    n = data.y.size
    fold = np.arange(n) % N_FOLDS
    work = n * (data.n_classes - 1)
    folds = range(N_FOLDS if work < FEWER else 3 if work < FEWEST else 1)
    held = [np.flatnonzero(fold == i) for i in folds]
    runs = []
    for i, own in zip(folds, held, strict=True):
        train = data.matrix(fold != i, start)
        runs.append((xgboost.Booster(settings, [train]), train, data.matrix(own, start, train)))
    sizes = [own.size for own in held]

    def loss() -> float:
        found = [float(booster.eval(test).rsplit(":", 1)[1]) for booster, _, test in runs]
        return float(np.average(found, weights=sizes))

    losses, best = [loss()], 0
    for number in range(MOST_ROUNDS):
        advance(number, MOST_ROUNDS)
        for booster, train, _ in runs:
            booster.update(train, number)
        losses.append(loss())
        if losses[-1] < losses[best]:
            best = len(losses) - 1
        elif len(losses) - 1 - best >= PATIENCE:
            break
    scores = np.concatenate(
        [
            data.as_scores(
                booster.predict(test, output_margin=True, iteration_range=(0, best))
                if best
                else start * data.margins[own]
            )
            for (booster, _, test), own in zip(runs, held, strict=True)
        ]
    )
    return _Run(start, settings, best, np.concatenate(held), scores)
