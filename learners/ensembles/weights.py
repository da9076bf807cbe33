"""Attribute selection and term weights of members, and the temperature of the pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from learners.ensembles.weight_kernels import add_attribute_prefix_losses, add_term_weight_gradient
from learners.kernels.arrays import Codes, Float32s, Floats, Integers, read_only_array

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

T = TypeVar("T")

# Sums are made block by block and added in order, so that they do not depend on the number of threads.
BLOCK_ROWS = 256
PRIOR_STRENGTH = 10.0
# From so many rows the pool's temperature is expected to be a half, and from many times as many, one.
HALF_TEMPERATURE_ROWS = 50
# Rows of each class, if it has as many, that weights are fitted to.
LEAST_OF_CLASS = 500
# Of the search for offsets; a step is a difference of logs.
MOST_STEPS, MOST_STEP, ENOUGH = 100, 3.0, 1e-4


@dataclass(frozen=True)
class Rows:
    """Rows used to fit weights."""

    y: Codes  # (n,) uint8
    log_prior: Floats  # (n, n_classes) float64: log shares of the classes, the row itself left out
    # (n,) float64 with mean 1: how many rows of the table each row represents, up to a factor; None if all represent the same number.
    weights: Floats | None = None

    def weight_array(self) -> Floats:
        """Return the row weights, (n,) float64; ones without weights."""
        return read_only_array(np.ones(self.y.size) if self.weights is None else self.weights)


def leave_one_out_log_prior(class_counts: Integers, y: Codes, copies: Integers | int = 1) -> Floats:
    """Return the log class shares without each row and its copies, smoothed by one row, (n, n_classes) float64.

    `copies` (n,) int64: how many rows of the table are left out with each row, itself included.
    """
    n = np.asarray(class_counts, np.float64)
    share = 1.0 / n.size
    log_prior = np.tile(np.log((n + share) / n.sum()), (y.size, 1))
    log_prior[np.arange(y.size), y] = np.log((n[y] - copies + share) / n.sum())
    return log_prior


def attribute_prefix_losses(log_p: Float32s, depths: Sequence[int], rows: Rows, threads: int) -> Floats:
    """Mean squared loss for each maximum number of parents and each prefix of the attributes, (k + 1, m + 1) float64.

    `log_p` (n, m, k + 1, n_classes) float32 are leave-one-out log probabilities; `depths` is the number of
    parents of each of the m attributes. The result does not depend on the number of threads.

    References
    ----------
    Martínez, Webb, Chen, Zaidi (2016), section 4.
    """
    levels, row_weights = np.array(depths, np.int64), rows.weight_array()

    def of_block(first: int, last: int) -> Floats:
        losses = np.zeros((log_p.shape[2], log_p.shape[1] + 1))
        add_attribute_prefix_losses(log_p, levels, rows.log_prior, rows.y, row_weights, first, last, losses)
        return losses

    with ThreadPoolExecutor(max(1, threads)) as pool:
        return np.asarray(sum(_blocks(of_block, rows.y.size, threads, pool)) / rows.y.size)


def _blocks(of_block: Callable[[int, int], T], n: int, threads: int, pool: ThreadPoolExecutor) -> list[T]:
    """Return the results of all blocks of rows, in order."""
    edges = [(first, min(first + BLOCK_ROWS, n)) for first in range(0, n, BLOCK_ROWS)]
    if threads <= 1 or len(edges) == 1:
        return [of_block(*edge) for edge in edges]
    return list(pool.map(lambda edge: of_block(*edge), edges))


def fit_term_weights(terms: Float32s, rows: Rows, start: Floats, threads: int) -> Floats:
    """Fit the weights (f,) float64, none negative, that minimize the log loss, regularized towards a start (f,).

    Minimises mean log loss + (10 / 2n) |w - start|², which is convex, by L-BFGS. `terms` (n, f, n_classes) float32 are
    what each weight multiplies. The result does not depend on the number of threads.

    A row that leaves the counts of its own class makes that class look rarer for its values, so terms of a column of
    noise with many values would predict the class with a negative weight, but only in left-out rows.
    """
    from scipy.optimize import minimize

    n, row_weights = rows.y.size, rows.weight_array()

    def objective(weights: Floats) -> tuple[float, Floats]:
        def of_block(first: int, last: int) -> tuple[float, Floats]:
            gradient = np.zeros(weights.size)
            loss = add_term_weight_gradient(terms, rows.log_prior, rows.y, row_weights, weights, first, last, gradient)
            return float(loss), gradient

        losses, gradients = zip(*_blocks(of_block, rows.y.size, threads, pool), strict=True)
        away = weights - start
        loss = sum(losses) / n + PRIOR_STRENGTH / (2 * n) * float((away * away).sum())
        return loss, np.sum(gradients, axis=0) / n + PRIOR_STRENGTH / n * away

    # Its vectors are short: waking BLAS's threads for them takes longer than everything else.
    with _blas_libraries().limit(limits=1, user_api="blas"), ThreadPoolExecutor(max(1, threads)) as pool:
        bounds = [(0.0, None)] * start.size
        found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 200})
        return np.asarray(found.x)


@cache
def _blas_libraries() -> ThreadpoolController:
    """Find the loaded BLAS libraries, once per process: it takes 1.3 ms, and an ensemble fits dozens of members."""
    import scipy.optimize  # noqa: F401 (loads the BLAS that its minimizers use)
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def fit_pool_temperature(pooled: Floats, rows: Rows) -> float:
    """Return the temperature T that minimizes the log loss of T · pooled, with the prior (10 / 2n) (log T - log T₀)².

    `pooled` (n, n_classes) float64 are mean log scores of the members, the row left out. Few rows are no reason to trust
    these scores: T₀ = n² / (n² + 50²), a half for 50 rows and .99 for 500.
    """
    from scipy.optimize import minimize_scalar

    n, against = rows.y.size, _against_true(pooled, rows)
    expected = -np.log1p((HALF_TEMPERATURE_ROWS / n) ** 2)

    def objective(log_t: float) -> float:
        return _mean_loss(np.exp(log_t) * against, rows.weights) + PRIOR_STRENGTH / (2 * n) * (log_t - expected) ** 2

    return float(np.exp(minimize_scalar(objective, bounds=(-3.0, 3.0), method="bounded").x))


def mean_log_loss(scores: Floats, rows: Rows) -> float:
    """Return the mean log loss of log scores (n, n_classes), in nats."""
    return _mean_loss(_against_true(scores, rows), rows.weights)


def gain_reliability(before: Floats, after: Floats, rows: Rows) -> float:
    """Return gain² / (gain² + error²), from 0 to 1, where gain is the mean fall of the log loss from the log scores `before` to
    `after`, both (n, n_classes) float64, and error its standard error; 0 if the loss does not fall.

    Weights fitted to the same rows gain by chance, too. They are shrunken by this share, as by James and Stein, so that noise
    keeps little weight, a clear gain almost all, and nothing depends on which side of a threshold a gain falls.
    """
    n, weights = rows.y.size, rows.weight_array()
    losses = [np.logaddexp.reduce(scores, axis=1) - scores[np.arange(n), rows.y] for scores in (before, after)]
    gains = weights * (losses[0] - losses[1])
    gain, error = max(0.0, float(gains.mean())), float(gains.std()) / n**0.5
    return gain**2 / (gain**2 + error**2) if gain > 0.0 else 0.0


def _against_true(scores: Floats, rows: Rows) -> Floats:
    """Subtract the score of each row's own class from log scores (n, n_classes)."""
    return scores - scores[np.arange(rows.y.size), rows.y][:, np.newaxis]


def _mean_loss(against: Floats, weights: Floats | None) -> float:
    largest = against.max(axis=1)
    losses = largest + np.log(np.exp(against - largest[:, np.newaxis]).sum(axis=1))
    if weights is not None:
        losses *= weights
    return float(losses.sum() / len(against))


def representative_rows(y: Codes, class_counts: Integers, n: int) -> tuple[Integers, Floats | None]:
    """Select rows for fitting: the first n, plus rows of each class with fewer than `LEAST_OF_CLASS` among them, and
    their weights.

    A weight is the number of rows of a class in the table for each of its rows here, scaled to mean 1; empty if the first n have
    enough of every class. `y` (n_drawn,) codes, `class_counts` (n_classes,) int64 of the table. Returns (m,) int64
    ascending, and (m,) float64 or None.
    """
    first = np.bincount(y[:n], minlength=class_counts.size)
    rare = np.flatnonzero(first < np.minimum(class_counts, LEAST_OF_CLASS))
    more = [n + np.flatnonzero(y[n:] == one)[: LEAST_OF_CLASS - first[one]] for one in rare]
    rows = np.sort(np.concatenate([np.arange(min(n, y.size)), *more]))
    if rows.size == min(n, y.size):
        return rows, None
    counts = np.bincount(y[rows], minlength=class_counts.size)
    weights = (class_counts / np.maximum(counts, 1))[y[rows]]
    return rows, np.asarray(weights * (rows.size / weights.sum()))


def class_offsets(scores: Floats, class_counts: Integers | Floats, weights: Floats | None = None) -> Floats:
    """Return the offsets (n_classes,) float64 for log scores (n, n_classes) that make each class's mean probability
    equal its share.

    Scores leave their own row out; `weights` (n,) as in `Rows`. A class without rows gets no offset.
    """
    share = class_counts / class_counts.sum()
    is_known = class_counts > 0
    offsets = np.zeros(share.size)
    for _ in range(MOST_STEPS):
        mean = mean_probabilities(scores + offsets, weights)
        step = np.where(is_known, np.log(np.where(is_known, share, 1.0) / np.maximum(mean, 1e-300)), 0.0)
        offsets += np.clip(step, -MOST_STEP, MOST_STEP)
        if np.abs(step).max() < ENOUGH:
            break
    return np.asarray(offsets - np.average(offsets, weights=share))


def mean_probabilities(scores: Floats, weights: Floats | None = None) -> Floats:
    """Return the mean probability (n_classes,) float64 of each class by log scores (n, n_classes); `weights` (n,) as in
    `Rows`.
    """
    p = scores - scores.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    return np.asarray(np.average(p, axis=0, weights=weights))
