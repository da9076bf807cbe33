"""Correct an ensemble by boosted trees; most training with XGBoost happens here."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from learners.classifiers.baselines.boosted import EQUAL_START, CodeTable
from learners.counts.folds import random_folds
from learners.counts.information import x_log_x
from learners.ensembles.correction.forest import flatten_xgboost_forest
from learners.ensembles.fit import WIDE, is_small_and_wide
from learners.ensembles.model import Correction
from learners.ensembles.weights import Rows, fit_term_weights, gain_reliability, mean_log_loss
from learners.kernels.arrays import Codes, Float32s, Floats, Integers, read_only_array
from learners.passes.engine import Advance
from learners.schema import Chunk, Schema

MOST_ROUNDS = 300
# A way to boost ends where so many rounds lowered no loss, or by less than this share of it.
PATIENCE = 20
PAYS = 0.0003
# And where it heads, as far as its last rounds tell, for more than this multiple of the ensemble's own loss.
BEHIND = 1.04
# Or where it would, at best, still have more than this multiple of it after the most rounds.
HOPELESS = 2.0
SUBSAMPLE, DEPTH = 0.8, 6
# Trees from nothing with less than the first share of the ensemble's left-out loss, and less than the second of the classes'
# entropy, have found rules of many conditions with few exceptions. There deep trees with small leaves are tried, too, and
# replace them if they lower the loss by the third.
BY_RULES, CERTAIN, DEEPER = 0.75, 0.3, 0.02
DEEP: dict[str, Any] = {"max_depth": 12, "min_child_weight": 0.1, "learning_rate": 0.2}
# What trees start from: a multiple of the ensemble's scores.
STARTS = {"from ensemble": 1.0, "alone": 0.0}
N_FOLDS = 5
# Rows times classes from which fewer folds of five tell the number of rounds.
FEWER, FEWEST = 10_000, 30_000
MANY_CLASSES = 4
# Bins of a column of numbers. With few rows, searching the bins of all columns at each node takes most of the time, so a
# column has one bin for so many rows, or its part of the bins of all, whichever are more.
ROWS_A_BIN, BINS_OF_ALL, FEWEST_BINS, MOST_BINS = 64, 1536, 32, 256
# Trees of less weight in the pool are not learned again from all rows.
LITTLE = 0.3
# Trees of less weight, or of a negative one, are left out.
LEAST_WEIGHT = 0.02
# The trees from nothing are left out where the loss without them is higher by at most this share: they are the most.
WORTH = 0.001


@dataclass(frozen=True, eq=False)
class Boosters:
    """Boosted trees that correct an ensemble, with their weights.

    The score of a class is share · (log p of the ensemble) + Σ weight_j · (margin of booster j).
    """

    share: float
    weights: tuple[float, ...]
    boosters: tuple[Any, ...]
    facts: dict[str, object]  # rounds used and tried, weights, and log losses of rows left out, by name
    left_out_rows: Integers  # (n_left_out,) positions of the rows that chose rounds and weights
    left_out: Floats  # (n_left_out, n_classes) their scores
    left_out_weights: Floats | None  # (n_left_out,) of these rows, as of `Rows`

    def correction(self, schema: Schema) -> Correction | None:
        """Convert the boosters to the form stored in a model; None without boosters if only the ensemble's share
        changes.
        """
        if not self.boosters:
            return None
        return Correction(flatten_xgboost_forest(schema, self.boosters, self.weights), self.weights)


def bins_of_column(n_rows: int, n_columns: int) -> int:
    """Return the number of bins of a column of numbers: fewer if few rows have many columns."""
    if not is_small_and_wide(n_rows, n_columns):
        return MOST_BINS
    return int(np.clip(max(n_rows // ROWS_A_BIN, BINS_OF_ALL // max(1, n_columns)), FEWEST_BINS, MOST_BINS))


def n_race_folds(n_rows: int, n_classes: int, n_columns: int) -> int:
    """Return the number of folds, of five, that choose the rounds; beyond `WIDE` columns, columns count like rows."""
    work = n_rows * (n_classes - 1)
    if work * max(WIDE, n_columns) < FEWER * WIDE:
        return N_FOLDS
    return 3 if work < FEWEST else 1


def _settings(n_classes: int, seed: int, n_bins: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "tree_method": "hist",
        "max_depth": DEPTH,
        "learning_rate": 0.1 if n_classes <= MANY_CLASSES else 0.2,
        "subsample": SUBSAMPLE,
        "max_bin": n_bins,
        "seed": seed,
        "seed_per_iteration": True,  # or else boosters of one thread draw from one stream
        "nthread": 1,
        "base_score": EQUAL_START,
    }
    if n_classes == 2:
        return settings | {"objective": "binary:logistic", "eval_metric": "logloss"}
    return settings | {"objective": "multi:softprob", "num_class": n_classes, "eval_metric": "mlogloss"}


class _Data:
    """Training rows in the form that XGBoost expects."""

    def __init__(
        self, schema: Schema, rows: Chunk, scores: Floats, seed: int, weights: Floats | None, are_copies: bool
    ) -> None:
        codes = CodeTable(schema)
        self.x, self.y = codes.features(rows.x), np.asarray(rows.y)
        self.n_classes = schema.n_classes
        self.margins = scores[:, 1] - scores[:, 0] if schema.n_classes == 2 else scores
        self.types, self.weights = codes.feature_types, weights
        self.n_bins = bins_of_column(rows.n_rows, schema.n_attributes)
        self.fold = random_folds(rows.x, N_FOLDS, seed, are_copies=are_copies)

    def matrix(self, index: Any, start: float, is_learned: bool = True) -> Any:
        """Build an XGBoost matrix of rows, for training or prediction only, whose base margin is a multiple of the
        ensemble's scores.
        """
        import xgboost

        # A plain matrix is quicker to predict.
        kind = partial(xgboost.QuantileDMatrix, max_bin=self.n_bins) if is_learned else xgboost.DMatrix
        return kind(
            self.x[index],
            self.y[index],
            weight=None if self.weights is None else self.weights[index],
            base_margin=start * self.margins[index],
            feature_types=self.types,
            enable_categorical=True,
            nthread=1,
        )

    def as_scores(self, margin: Any) -> Floats:
        """Convert an XGBoost margin to class scores, (n, n_classes) float64."""
        margin = np.asarray(margin, np.float64)
        return np.stack([np.zeros_like(margin), margin], axis=1) if self.n_classes == 2 else margin


class _Way:
    """One boosting configuration, cross-validated round by round with one booster per fold."""

    def __init__(self, data: _Data, start: float, settings: dict[str, Any], like: _Way | None = None) -> None:
        """`like`: a configuration with the same start, whose matrices serve again."""
        import xgboost

        folds = range(n_race_folds(data.y.size, data.n_classes, data.x.shape[1]))
        self.data, self.start, self.settings = data, start, settings
        self.held = [np.flatnonzero(data.fold == i) for i in folds]
        self.runs: list[tuple[Any, Any, Any]] = []
        for i, own in zip(folds, self.held, strict=True):
            if like is not None:
                _, train, test = like.runs[i]
            else:
                train, test = data.matrix(data.fold != i, start), data.matrix(own, start, is_learned=False)
            self.runs.append((xgboost.Booster(settings, [train]), train, test))
        self.losses = [self._loss()]

    def _loss(self) -> float:
        losses = [float(booster.eval(test).rsplit(":", 1)[1]) for booster, _, test in self.runs]
        weights = self.data.weights
        sizes = [own.size if weights is None else weights[own].sum() for own in self.held]
        return float(np.average(losses, weights=sizes))

    @property
    def n_rounds(self) -> int:
        """Number of rounds with the lowest left-out loss."""
        return int(np.argmin(self.losses))

    def boost(self) -> None:
        """Run one more boosting round in every fold."""
        for booster, train, _ in self.runs:
            booster.update(train, len(self.losses) - 1)
        self.losses.append(self._loss())

    def scores(self) -> Floats:
        """Margins of the held-out rows after the best round, (n_held, n_classes) float64."""
        best = self.n_rounds
        return np.concatenate(
            [
                self.data.as_scores(
                    booster.predict(test, output_margin=True, iteration_range=(0, best))
                    if best
                    else self.start * self.data.margins[own]
                )
                for (booster, _, test), own in zip(self.runs, self.held, strict=True)
            ]
        )

    def final(self, weight: float) -> Any:
        """Train a booster on all rows for the best number of rounds, or reuse the only fold's booster if its weight is
        small.
        """
        import xgboost

        if weight < LITTLE and len(self.runs) == 1:
            return self.runs[0][0][: self.n_rounds]
        self.runs.clear()  # their trees take as much memory as those that follow
        return xgboost.train(self.settings, self.data.matrix(slice(None), self.start), num_boost_round=self.n_rounds)


def _class_entropy(y: Codes) -> float:
    """Return the entropy of the class shares, in nats."""
    return math.log(y.size) - float(x_log_x(np.bincount(y)).sum()) / y.size


def _race(ways: list[_Way], pool: ThreadPoolExecutor, advance: Advance, least: float = math.inf) -> None:
    """Boost each configuration until it converges; `least`: the lowest left-out loss of any other."""
    least, going = min(least, ways[0].losses[0]), ways
    for number in range(MOST_ROUNDS):
        advance(number, MOST_ROUNDS)
        for _ in pool.map(_Way.boost, going):
            pass
        least = min(least, *(min(one.losses) for one in ways))
        going = [one for one in going if not has_boosting_converged(one.losses, least)]
        if not going:
            return


def held_out_rows(y: Codes, n_classes: int, held: Integers, weights: Floats | None) -> Rows:
    """Some rows, with their weights, as what pool weights are fitted to; nothing is known of their classes."""
    own = None if weights is None else read_only_array(weights[held] / weights[held].mean())
    return Rows(read_only_array(y[held]), np.zeros((held.size, n_classes)), own)


def has_boosting_converged(losses: list[float], least: float) -> bool:
    """Return True if further rounds cannot lower the left-out loss enough, or cannot approach the lowest loss of all
    configurations and of the ensemble.

    Losses are those of rows left out, before the first round and after each.
    """
    done = len(losses) - 1
    if done >= MOST_ROUNDS or done - int(np.argmin(losses)) >= PATIENCE:
        return True
    if done >= 2 * PATIENCE and min(losses[-PATIENCE:]) > (1.0 - PAYS) * min(losses[:-PATIENCE]):
        return True
    if done < 2 * PATIENCE:
        return False
    # At best losses go on falling as over the last doubling of the rounds: a power law of them.
    then, now = losses[done // 2], losses[done]
    if now > 0.0 and now * min(1.0, now / then) ** math.log2(MOST_ROUNDS / done) > HOPELESS * least:
        return True
    if done < 4 * PATIENCE:
        return False
    # If twice as many rounds gain the same share each time of what the doubling before gained: losses fall by a power law.
    before, then, now = (losses[done // part] for part in (4, 2, 1))
    share = (then - now) / (before - then) if before > then > now else 0.0
    return share < 1.0 and now - (then - now) * share / (1.0 - share) > BEHIND * least


def boosting_pool_weights(terms: Float32s, rows: Rows, threads: int) -> Floats:
    """Fit the weights (2,) of the two configurations' scores (n, 2, n_classes); zero for the trees started from nothing
    if they add almost no gain.

    A first weight above one makes the ensemble surer than its temperature does; the excess is shrunken by its
    `gain_reliability`.
    """
    one = np.append(fit_term_weights(terms[:, :1], rows, np.array([1.0]), threads), 0.0)
    both = fit_term_weights(terms, rows, np.array([1.0, 0.0]), threads)
    losses = [mean_log_loss(np.einsum("rfc,f->rc", terms, weights), rows) for weights in (one, both)]
    weights = one if both[1] <= LEAST_WEIGHT or losses[0] <= (1.0 + WORTH) * losses[1] else both
    weights = np.where(weights > LEAST_WEIGHT, weights, 0.0)
    if weights[0] > 1.0:
        at_one = np.array([1.0, weights[1]])
        before, after = (np.einsum("rfc,f->rc", terms, each) for each in (at_one, weights))
        weights[0] = 1.0 + (weights[0] - 1.0) * gain_reliability(before, after, rows)
    return weights


def boost_ensemble_correction(
    schema: Schema,
    rows: Chunk,
    scores: Floats,
    seed: int,
    threads: int,
    advance: Advance,
    row_weights: Floats | None = None,
    *,
    are_copies: bool = False,
) -> Boosters | None:
    """Boost trees from the ensemble's scores and trees from nothing, and pool both; None if neither lowers the left-out
    loss.

    Scores (n, n_classes) float64 are log probabilities by the ensemble, each row left out; rows in any order,
    `row_weights` as in `ensembles.weights.Rows`, `are_copies` as in `random_folds`. Rounds and weights are chosen on
    rows left out; no rounds and weights of zero are allowed. Every booster has one thread, on which XGBoost's sums
    depend; the ways and the final boosters run side by side.
    """
    if rows.n_rows < 2 * N_FOLDS:
        return None
    data = _Data(schema, rows, scores, seed, row_weights, are_copies)
    with ThreadPoolExecutor(threads) as pool:

        def way(name: str) -> _Way:
            return _Way(data, STARTS[name], _settings(schema.n_classes, seed, data.n_bins))

        ways = list(pool.map(way, STARTS))
        _race(ways, pool, advance)
        losses = {name: min(one.losses) for name, one in zip(STARTS, ways, strict=True)}
        is_deep = False
        if losses["alone"] < min(BY_RULES * ways[0].losses[0], CERTAIN * _class_entropy(data.y)):
            deep = _Way(data, STARTS["alone"], _settings(schema.n_classes, seed, data.n_bins) | DEEP, like=ways[1])
            _race([deep], pool, lambda done, rounds, words="": advance(rounds, rounds, words), losses["alone"])
            if is_deep := min(deep.losses) < (1.0 - DEEPER) * losses["alone"]:
                ways[1] = deep
        held = np.concatenate(ways[0].held)
        own = held_out_rows(data.y, schema.n_classes, held, row_weights)
        terms = np.stack(list(pool.map(_Way.scores, ways)), axis=1).astype(np.float32)
        weights = boosting_pool_weights(terms, own, threads)
        used = [(weight, one) for weight, one in zip(weights, ways, strict=True) if weight and one.n_rounds]
        if not used:
            return None
        boosters = tuple(pool.map(lambda pair: pair[1].final(pair[0]), used))
    facts: dict[str, object] = {
        "rounds": {name: one.n_rounds for name, one in zip(STARTS, ways, strict=True)},
        "tried": {name: len(one.losses) - 1 for name, one in zip(STARTS, ways, strict=True)},
        "left_out_losses": {"ensemble": ways[0].losses[0]}
        | {name: min(one.losses) for name, one in zip(STARTS, ways, strict=True)},
        "weights": dict(zip(STARTS, weights.tolist(), strict=True)),
        "deep": is_deep,
    }
    left_out = np.einsum("rfc,f->rc", terms, weights)
    return Boosters(
        float(weights[0]), tuple(float(weight) for weight, _ in used), boosters, facts, held, left_out, own.weights
    )
