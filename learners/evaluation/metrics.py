"""Metrics of predicted class probabilities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from learners.errors import EmptyData
from learners.kernels.arrays import Floats, Integers, Mask

CALIBRATION_BINS = 15
LEAST_PROBABILITY = 1e-15
NO_ROWS = "There are no rows to measure the model on. Name files that have some, keep back a larger share in training (--holdout .3), or train without measuring (--holdout 0)."


@dataclass(frozen=True)
class Metrics:
    """Losses of predicted class probabilities; lower is better."""

    zero_one_loss: float  # share of rows whose most probable class is wrong
    rmse: float  # sqrt(mean (1 - p(true class))^2), the definition of Petitjean et al. (2018), section 6
    log_loss: float  # mean negative logarithm of p(true class), in nats, with p not below 1e-15
    brier: float  # mean over rows of the squared distance between probabilities and the true class's indicator
    ece: float  # expected calibration error of the most probable class, in 15 equal-width bins (Guo et al. 2017)


def evaluate(probabilities: ArrayLike, y: ArrayLike) -> Metrics:
    """Compute the metrics of probabilities against the true classes.

    `probabilities`, (n, n_classes) float64.
    `y`, (n,) integers.
    Raises EmptyData without rows.
    """
    return metrics_from_row_scores([score_probability_rows(probabilities, y)])


class RowScores(NamedTuple):
    """Per-row statistics that metrics need, each (n,), independent of the number of classes."""

    of_true: Floats  # probability of the true class
    squares: Floats  # sum of the squared probabilities
    confidence: Floats  # the largest probability
    predicted: Integers  # the most probable class
    is_right: Mask  # whether it is the true class


def score_probability_rows(probabilities: ArrayLike, y: ArrayLike) -> RowScores:
    """Score probabilities (n, n_classes) against the true classes (n,); a class beyond the last has probability zero."""
    probabilities, y = np.asarray(probabilities, np.float64), np.asarray(y, np.int64)
    if not y.size:
        return RowScores(np.empty(0), np.empty(0), np.empty(0), np.empty(0, np.uint16), np.empty(0, bool))
    last = probabilities.shape[1] - 1
    of_true = np.where(y <= last, probabilities[np.arange(y.size), np.minimum(y, last)], 0.0)
    predicted = probabilities.argmax(axis=1).astype(np.uint16)
    return RowScores(of_true, (probabilities**2).sum(axis=1), probabilities.max(axis=1), predicted, predicted == y)


def metrics_from_row_scores(parts: Sequence[RowScores]) -> Metrics:
    """Compute the metrics of rows that were scored in parts.

    Raises EmptyData without rows.
    """
    of_true, squares, confidence, _, is_right = (np.concatenate(column) for column in zip(*parts, strict=True))
    n_rows = of_true.size
    if not n_rows:
        raise EmptyData(NO_ROWS)
    return Metrics(
        zero_one_loss=float(np.mean(~is_right)),
        rmse=float(np.sqrt(np.mean((1 - of_true) ** 2))),
        log_loss=float(-np.mean(np.log(np.maximum(of_true, LEAST_PROBABILITY)))),
        brier=float((squares - 2 * of_true + 1).mean()),
        ece=float(
            sum(abs(c - a) * n for c, a, n in reliability_diagram_points(confidence, is_right, CALIBRATION_BINS))
            / n_rows
        ),
    )


def standard_error(values: Floats) -> float | None:
    """Return the standard error of the mean of independent values, (n,) float64; None of fewer than two."""
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None


def class_prior_baseline_losses(y: ArrayLike, n_classes: int) -> dict[str, float]:
    """Return the losses of predicting the class shares alone: the baseline that a model should beat.

    Each row is predicted from the class shares of the other rows plus one row of each class, so that no row helps
    to predict itself. If equal probabilities have a lower loss, that is used instead.

    `y`, (n,) integers in [0, n_classes]: the last one represents classes unknown to the model: of them too the shares
    are wrong, as a model is. Returns dict of float: `log_loss`, `rmse`, `brier` and `zero_one_loss`, as in `Metrics`;
    shares are calibrated, so there is no `ece`. Raises EmptyData without rows.
    """
    y = np.asarray(y, np.int64)
    if not y.size:
        raise EmptyData(NO_ROWS)
    counts = np.bincount(y[y < n_classes], minlength=n_classes)
    n_known = int(counts.sum())
    # Rows of a class nobody knows have no true class among these: their squares alone, as if none were left out.
    whole = float((((counts + 1) / (n_known + n_classes)) ** 2).sum())
    squares = float(((counts + 1) ** 2).sum())
    counts = counts[counts > 0]  # what no row has weighs nothing below
    total = n_known - 1 + n_classes
    of_true = counts / total
    squares_of_row = (squares - 2 * counts - 1) / total**2  # a row of its class left out: (counts + 1)² becomes counts²
    weights = counts / y.size
    equal, unknown = 1 / n_classes, 1 - n_known / y.size
    of_unknown = -unknown * math.log(LEAST_PROBABILITY)
    return {
        "log_loss": min(float(-weights @ np.log(of_true)), -(1 - unknown) * math.log(equal)) + of_unknown,
        "rmse": math.sqrt(min(float(weights @ (1 - of_true) ** 2), (1 - unknown) * (1 - equal) ** 2) + unknown),
        "brier": min(
            float(weights @ (squares_of_row - 2 * of_true + 1)) + unknown * (whole + 1),
            (1 - unknown) * (1 - equal) + unknown * (1 + equal),
        ),
        "zero_one_loss": float(1 - weights.max(initial=0.0)),
    }


def reliability_diagram_points(
    confidence: Floats, is_right: Mask, n_bins: int = CALIBRATION_BINS
) -> list[tuple[float, float, int]]:
    """Return the points of a reliability diagram: mean confidence, accuracy, and number of rows of each nonempty bin.

    `confidence`, `is_right`, (n_rows,) float64 and bool: of the most probable class of each row.
    """
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    n = np.bincount(bins, minlength=n_bins)
    sums = np.bincount(bins, confidence, n_bins), np.bincount(bins, is_right, n_bins)
    return [(float(sums[0][b] / n[b]), float(sums[1][b] / n[b]), int(n[b])) for b in np.flatnonzero(n)]
