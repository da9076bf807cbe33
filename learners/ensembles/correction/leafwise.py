"""Leaf-wise boosted trees over millions of rows: one booster, started from the ensemble's scores or from nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import xgboost

from learners.classifiers.baselines.boosted import EQUAL_START, CodeTable
from learners.counts.folds import equal_rows
from learners.ensembles.correction.boosting import STARTS, Boosters, held_out_rows
from learners.ensembles.weights import fit_term_weights, mean_log_loss
from learners.kernels.arrays import Codes, Floats, Integers, Mask
from learners.passes.engine import Advance
from learners.schema import Chunk, Schema

Effort = Literal["normal", "high"]

# Rows that choose the start: the trees of the race grow on these alone.
RACE_ROWS, RACE_ROUNDS, RACE_LEAVES = 100_000, 20, 64
FAST = 0.3
# Left-out rows: a share of all, and at most so many.
LEFT_OUT, MOST_LEFT_OUT = 0.1, 100_000
# float32 values handed to XGBoost at once.
PAGE_VALUES = 1 << 22
MOST_LEVELS = 40  # a row that lacks attributes goes both ways, at most once a level
# Rounds between two looks at the rows left out; boosting ends where so many looks in a row gain less than this share.
LOOK, PATIENCE = 5, 4
PAYS: dict[Effort, float] = {"normal": 0.0003, "high": 0.0001}
# Rounds times levels of XGBoost's defaults: the work that trees of `ROWS` rows may take, as often as `Pace.of` says.
DEFAULT_WORK = 600
FEW_ROWS, ROWS = 200_000, 500_000
# Of the work of XGBoost's defaults a part does not depend on the columns, so narrow tables get more rounds than wide ones:
# this share of it, and once more for every so many columns that a table has.
WORK_SHARE, NARROW = 0.48, 10.5
# Of the squares of what leaves say, as they have a thousand rows each: XGBoost's 1 lets 2,048 of them learn chance.
PENALTY = 8.0
# Histograms of the leaves of one tree, one for each column: more take longer than rows.
MOST_HISTOGRAMS = 1024 * 28
# Processor seconds of a tree, for each row and level and for each row, level and column; and for each bin of its leaves'
# histograms: 60 rounds of 512 leaves over 2 million rows of 7 columns took 15 s, of 28 columns 27 s.
SECONDS_A_ROW, SECONDS_A_CELL, SECONDS_A_BIN = 7e-9, 0.35e-9, 46e-9


@dataclass(frozen=True)
class Pace:
    """Growth settings of the trees, derived from the number of rows alone, so that the same table gives the same trees."""

    n_leaves: int
    rate: float
    n_rounds: int
    max_bin: int

    @classmethod
    def of(cls, n_rows: int, n_columns: int, effort: Effort) -> Pace:
        """Derive the settings from the number of rows; smaller tables get more rounds with smaller steps."""
        base = DEFAULT_WORK * WORK_SHARE * (1.0 + NARROW / max(n_columns, 4))
        most_leaves = MOST_HISTOGRAMS // max(n_columns, 1)
        slower = float(np.clip(ROWS / n_rows, 1.0, ROWS / FEW_ROWS))
        if effort == "high":
            n_leaves = int(np.clip(n_rows // 1_000, 64, max(64, min(2048, most_leaves))))
            work, rate, max_bin = 2.75 * base, FAST / 2, 1024 if most_leaves >= 2048 else 256
        else:
            n_leaves = int(np.clip(n_rows // 1_000, 64, max(64, min(512, most_leaves))))
            work, rate, max_bin = base, FAST, 256
        return cls(n_leaves, rate / slower, int(work * slower / np.log2(n_leaves)), max_bin)

    def seconds_a_round(self, n_rows: int, n_columns: int, n_trees: int) -> float:
        """Processor seconds of a round of this many trees, estimated from the work alone."""
        of_rows = n_rows * np.log2(self.n_leaves) * (SECONDS_A_ROW + SECONDS_A_CELL * n_columns)
        return n_trees * float(of_rows + SECONDS_A_BIN * self.n_leaves * n_columns * self.max_bin)

    def within(self, seconds: float, a_round: float) -> Pace:
        """With no more rounds than take so long by the estimate of one, at least one."""
        return replace(self, n_rounds=int(np.clip(seconds / a_round, 1, self.n_rounds)))

    def at(self, rate: float) -> Pace:
        """Change the step size and scale the rounds so that the total step length stays the same."""
        return replace(self, rate=rate, n_rounds=max(1, round(self.n_rounds * self.rate / rate)))


class _Pages(xgboost.DataIter):
    """Iterator over pages of rows with their base margins, for XGBoost."""

    def __init__(self, data: _Data, which: Integers, start: float) -> None:
        self.data, self.which, self.start = data, which, start
        self.n_page = max(1, PAGE_VALUES // max(1, data.x.shape[0]))
        super().__init__()
        self.reset()

    def reset(self) -> None:
        """Restart at the first row."""
        self.first = 0

    def next(self, input_data: Callable[..., object]) -> bool:
        """Pass the next page to XGBoost; returns False after the last."""
        some = self.which[self.first : self.first + self.n_page]
        if not some.size:
            return False
        self.first += some.size
        input_data(**self.data.page(some, self.start))
        return True


class _Data:
    """Codes, classes and ensemble scores in the form that XGBoost expects."""

    def __init__(self, schema: Schema, rows: Chunk, scores: Floats, max_bin: int, weights: Floats | None) -> None:
        assert rows.y is not None
        self.codes, self.x, self.y = CodeTable(schema), rows.x, np.asarray(rows.y)
        self.n_classes, self.max_bin, self.weights = schema.n_classes, max_bin, weights
        self.n_values = np.array([attribute.n_values for attribute in schema.attributes], np.int64)
        # XGBoost's margins are of this type, too.
        margins = scores[:, 1] - scores[:, 0] if self.n_classes == 2 else scores
        self.margins = margins.astype(np.float32)
        self._bins = self._binned(max(1, PAGE_VALUES // max(1, rows.x.shape[0])))

    def _binned(self, n_rows: int) -> xgboost.QuantileDMatrix:
        """The bins of all matrices, by the first rows and one row of each code: looking at all rows took as long as ten rounds."""
        each = np.minimum(np.arange(int(self.n_values.max(initial=1))), self.n_values[:, np.newaxis])
        x = np.concatenate([self.x[:, :n_rows], each.astype(self.x.dtype)], axis=1)
        return xgboost.QuantileDMatrix(
            self.codes.features(x),
            feature_types=self.codes.feature_types,
            max_bin=self.max_bin,
            nthread=1,
            enable_categorical=True,
        )

    def page(self, some: Integers | slice, start: float) -> dict[str, Any]:
        x: Codes = np.ascontiguousarray(self.x[:, some])
        return {
            "data": self.codes.features(x),
            "label": self.y[some].astype(np.float32),
            "weight": None if self.weights is None else self.weights[some],
            "base_margin": np.float32(start) * self.margins[some],
            "feature_types": self.codes.feature_types,
        }

    def learned(self, which: Integers, start: float) -> xgboost.QuantileDMatrix:
        return xgboost.QuantileDMatrix(
            _Pages(self, which, start), max_bin=self.max_bin, nthread=1, enable_categorical=True, ref=self._bins
        )

    def asked(self, which: Integers, start: float) -> xgboost.DMatrix:
        return xgboost.DMatrix(**self.page(which, start), nthread=1, enable_categorical=True)

    def scores(self, margin: Any) -> Floats:
        """Convert an XGBoost margin to class scores, (n, n_classes) float64."""
        margin = np.asarray(margin, np.float64)
        return np.stack([np.zeros_like(margin), margin], axis=1) if self.n_classes == 2 else margin


def _settings(n_classes: int, pace: Pace, seed: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "tree_method": "hist",
        "grow_policy": "lossguide",
        "max_leaves": pace.n_leaves,
        "max_depth": MOST_LEVELS,
        "learning_rate": pace.rate,
        "max_bin": pace.max_bin,
        "seed": seed,
        "nthread": 1,  # its sums depend on the number of threads, and its threads wait by spinning
        "base_score": EQUAL_START,
        "reg_lambda": PENALTY,
    }
    if n_classes == 2:
        return settings | {"objective": "binary:logistic", "eval_metric": "logloss"}
    return settings | {"objective": "multi:softprob", "num_class": n_classes, "eval_metric": "mlogloss"}


class _Boosting:
    """One booster, evaluated on left-out rows."""

    def __init__(self, data: _Data, start: float, pace: Pace, seed: int, learned: Integers, left_out: Integers) -> None:
        self.data, self.start = data, start
        self.train = data.learned(learned, start)
        self.test = data.asked(left_out, start)
        self.booster = xgboost.Booster(_settings(data.n_classes, pace, seed), [self.train])
        self.losses = {0: self._loss()}

    def _loss(self) -> float:
        return float(self.booster.eval(self.test).rsplit(":", 1)[1])

    @property
    def best(self) -> int:
        """Number of rounds with the lowest left-out loss."""
        return min(self.losses, key=lambda rounds: (self.losses[rounds], rounds))

    def boost(self, first: int, last: int) -> None:
        """Run rounds `first` to `last` - 1, then evaluate the left-out rows."""
        for number in range(first, last):
            self.booster.update(self.train, number)
        self.losses[last] = self._loss()

    def scores(self) -> Floats:
        """Margins of the left-out rows after the best round, (n_left_out, n_classes) float64."""
        if not self.best:
            return self.data.scores(self.test.get_base_margin().reshape(self._shape))
        return self.data.scores(self.booster.predict(self.test, output_margin=True, iteration_range=(0, self.best)))

    @property
    def _shape(self) -> tuple[int, ...]:
        return (-1,) if self.data.n_classes == 2 else (-1, self.data.n_classes)


def boost_leafwise_correction(
    schema: Schema,
    rows: Chunk,
    scores: Floats,
    effort: Effort,
    seed: int,
    threads: int,
    advance: Advance,
    seconds: float = math.inf,
    row_weights: Floats | None = None,
    *,
    are_copies: bool = False,
) -> Boosters | None:
    """Boost trees leaf by leaf over many rows; None if they do not lower the left-out loss of the ensemble.

    Scores (n, n_classes) float64 are log probabilities by the ensemble, each row left out; rows in the order of their
    hashes, which is random; `row_weights` as in `ensembles.weights.Rows`, `are_copies` as in `random_folds`. A trial
    on the first rows decides whether trees start from the ensemble or from zero; the work is bounded by rows, columns
    and leaves, and by `seconds` as estimated from these, never by a clock. Rows left out stop the rounds and weigh
    the sum; they are not learned. An interruption from the keyboard keeps the rounds so far. The result does not
    depend on `threads`.
    """
    is_left_out = _left_out_rows(rows, np.random.default_rng([seed, rows.n_rows]), are_copies)
    pace = Pace.of(rows.n_rows, schema.n_attributes, effort)
    data = _Data(schema, rows, scores, pace.max_bin, row_weights)
    start, rate, race = _race(data, is_left_out, pace, effort == "normal", seed, threads)
    n_trees = 1 if schema.n_classes == 2 else schema.n_classes
    pace = pace.at(rate)
    pace = pace.within(seconds, pace.seconds_a_round(rows.n_rows, schema.n_attributes, n_trees))
    learned, left_out = np.flatnonzero(~is_left_out), np.flatnonzero(is_left_out)
    boosting = _Boosting(data, STARTS[start], pace, seed, learned, left_out)
    n_idle, is_interrupted = 0, False
    for first in range(0, pace.n_rounds, LOOK):
        least = min(boosting.losses.values())
        try:
            advance(first, pace.n_rounds, f"left-out log loss {boosting.losses[first]:.4f}")
            boosting.boost(first, min(first + LOOK, pace.n_rounds))
        except KeyboardInterrupt:  # a second one ends the run
            if not boosting.best:
                raise
            is_interrupted = True
            break
        n_idle = n_idle + 1 if min(boosting.losses.values()) > (1.0 - PAYS[effort]) * least else 0
        if n_idle >= PATIENCE:
            break
    own = held_out_rows(data.y, schema.n_classes, left_out, row_weights)
    facts: dict[str, object] = {
        "effort": effort,
        "start": start,
        "race": race,
        "rows": int(learned.size),
        "rows_left_out": int(left_out.size),
        "leaves": pace.n_leaves,
        "rate": pace.rate,
        "rounds": boosting.best,
        "tried": max(boosting.losses),
        "left_out_losses": {"ensemble": mean_log_loss(scores[left_out], own), "trees": boosting.losses[boosting.best]},
    }
    if is_interrupted:
        facts["interrupted"] = f"Interrupted: the first {boosting.best} of {pace.n_rounds} rounds of trees were kept."
    if not boosting.best:
        return None
    terms = boosting.scores()[:, np.newaxis].astype(np.float32)
    weight = float(fit_term_weights(terms, own, np.ones(1), threads)[0])
    scored = weight * terms[:, 0].astype(np.float64)
    if mean_log_loss(scored, own) >= mean_log_loss(scores[left_out], own):
        return None  # trees from nothing, which won the race of the first rows by chance
    facts["weights"] = {start: weight}
    booster = boosting.booster[: boosting.best]
    return Boosters(weight * STARTS[start], (weight,), (booster,), facts, left_out, scored, own.weights)


def _left_out_rows(rows: Chunk, random: np.random.Generator, are_copies: bool) -> Mask:
    """Select the rows to leave out, (n_rows,) bool: the same share of each class, and at least one row of each class
    with two or more; all copies of a row, if equal rows are copies.
    """
    assert rows.y is not None
    share = min(LEFT_OUT, MOST_LEFT_OUT / rows.n_rows)
    is_left_out = np.zeros(rows.n_rows, bool)
    number, order = random.random(rows.n_rows), np.argsort(rows.y, kind="stable")
    if are_copies:
        number = number[equal_rows(rows.x)]
    for own in np.split(order, np.cumsum(np.bincount(rows.y))[:-1]):
        n = max(round(share * own.size), int(own.size > 1))
        is_left_out[own[np.argsort(number[own], kind="stable")[:n]]] = True
    return is_left_out


def _race(
    data: _Data, is_left_out: Mask, pace: Pace, is_fast_tried: bool, seed: int, threads: int
) -> tuple[str, float, dict[str, float]]:
    """Return the start and step size with the lowest left-out loss on the first rows, and the loss of each candidate by
    name.

    With `is_fast_tried` a step larger than that of the pace wins where few rounds show that it fits: on tables that are
    nearly rules.
    """
    first = is_left_out[:RACE_ROWS]
    rates = (FAST, pace.rate) if is_fast_tried and pace.rate < FAST else (pace.rate,)
    ways = {f"{name}, step {rate:.2g}": (name, rate) for rate in rates for name in STARTS}

    def run(name: str) -> float:
        start, rate = ways[name]
        own = Pace(RACE_LEAVES, rate, RACE_ROUNDS, data.max_bin)
        one = _Boosting(data, STARTS[start], own, seed, np.flatnonzero(~first), np.flatnonzero(first))
        one.boost(0, RACE_ROUNDS)
        return one.losses[RACE_ROUNDS]

    with ThreadPoolExecutor(max(1, threads)) as pool:
        losses = dict(zip(ways, pool.map(run, ways), strict=True))
    start, rate = ways[min(losses, key=lambda name: losses[name])]
    return start, rate, losses
