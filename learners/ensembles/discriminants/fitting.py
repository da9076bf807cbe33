"""Fit Gaussian discriminants to drawn rows, and weigh them beside an ensemble by rows left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri
from threadpoolctl import threadpool_limits

from learners.counts.folds import random_folds
from learners.ensembles.discriminants.gaussian import Discriminant, bounded, whitened
from learners.ensembles.weights import Rows, fit_term_weights, gain_reliability, mean_log_loss
from learners.kernels.arrays import Array, Codes, Floats, Integers, read_only_array
from learners.schema import Chunk, Schema
from learners.schema.schema import Attribute

N_FOLDS = 3
# Columns of numbers whose scores say something: of so many intervals in use, none of which has more than this share of the rows.
FEWEST_INTERVALS, LARGEST_SHARE = 3, 0.9
FEWEST_COLUMNS, MOST_NUMBERS = 2, 1 << 20
# Scores are whole multiples of 1 / UNIT, so that sums of their products are exact in any order.
UNIT, LARGEST_SCORE = 256, 4.0
RIDGE = 1e-3
# How many rows' worth of the covariance of all classes each class has beside its own (None: nothing of its own), and what
# share of that covariance's off-diagonal is left out.
SHRINKAGES: tuple[tuple[float | None, float], ...] = (
    (None, 0.0), (None, 0.1), (None, 0.5),
    (2.0, 0.0), (10.0, 0.0), (30.0, 0.0), (100.0, 0.0), (10.0, 0.2), (30.0, 0.2), (100.0, 0.2),
)  # fmt: skip
# Shares of the discriminant beside the ensemble from which the search for weights starts, towards which it is drawn.
STARTS = (0.0, 0.25, 0.5, 0.75, 1.0)
# With its weights, it has to lower the loss of rows left out by this share.
PAYS = 0.002
# The weighted evidence of Gaussian tails against a class is bounded by odds of as many as the rows; the weight counts as at least this.
UNBOUNDED, LEAST_WEIGHT = np.array([np.inf]), 0.01


@dataclass(frozen=True, eq=False)
class FittedDiscriminant:
    """A discriminant that pays, and the ensemble's share beside it."""

    discriminant: Discriminant
    share: float
    left_out: Floats  # (n_rows, n_classes) its scores, weighted, by discriminants that have not learned from the row
    facts: dict[str, object]
    words: str


class _Moments(NamedTuple):
    """Sums over rows of each class, exact: of ones (K,), of scores (K, m), and of their products (K, m, m)."""

    counts: Floats
    sums: Floats
    products: Floats

    def minus(self, other: _Moments) -> _Moments:
        return _Moments(*(all_rows - some for all_rows, some in zip(self, other, strict=True)))

    def means_and_scatters(self) -> tuple[Floats, Floats]:
        """Return each class's mean, with one more row at the mean of all, and the scatter around it."""
        n = self.counts[:, np.newaxis]
        sums, products = self.sums / UNIT, self.products / UNIT**2
        means = (sums + sums.sum(axis=0) / max(1.0, self.counts.sum())) / (n + 1.0)
        cross = means[:, :, np.newaxis] * sums[:, np.newaxis]
        square = means[:, :, np.newaxis] * means[:, np.newaxis]
        return means, products - cross - cross.transpose(0, 2, 1) + n[:, :, np.newaxis] * square

    def gaussians(self, own: float | None, diagonal: float) -> tuple[Floats, Floats]:
        """Return means and covariances, shrunken as in `SHRINKAGES`.

        References
        ----------
        Friedman (1989), Regularized discriminant analysis.
        """
        means, scatters = self.means_and_scatters()
        pooled = scatters.sum(axis=0) / max(1.0, self.counts.sum() - self.counts.size)
        pooled = (1.0 - diagonal) * pooled + diagonal * np.diag(np.diag(pooled)) + RIDGE * np.eye(len(pooled))
        if own is None:
            return means, np.repeat(pooled[np.newaxis], len(means), axis=0)
        return means, (scatters + own * pooled) / (self.counts[:, np.newaxis, np.newaxis] + own)


def normal_scores(attribute: Attribute, counts: Integers) -> Array | None:
    """Return the scores of an attribute's codes in whole units, (n_values,) int64; None if it has no part in a discriminant.

    The normal quantile of the share of rows below the middle of each interval, in standard deviations from the mean; null is at the
    mean. `counts` (n_values,) int64 rows of each code.
    """
    first = attribute.first_code
    own = counts[first:].astype(np.float64)
    n = own.sum()
    is_number = attribute.kind == "numeric" and not attribute.is_time and attribute.part is None
    if not is_number or (own > 0).sum() < FEWEST_INTERVALS or own.max() > LARGEST_SHARE * n or 2 * n < counts.sum():
        return None
    quantiles = ndtri(np.clip((own.cumsum() - own / 2) / n, 0.5 / n, 1.0 - 0.5 / n))
    quantiles -= (own * quantiles).sum() / n
    quantiles /= np.sqrt((own * quantiles**2).sum() / n)
    scores = np.zeros(counts.size, np.int64)
    scores[first:] = np.rint(UNIT * np.clip(quantiles, -LARGEST_SCORE, LARGEST_SCORE))
    return scores


def fit_discriminant(
    schema: Schema,
    rows: Chunk,
    left_out: Floats,
    class_counts: Integers,
    weights: Floats | None,
    seed: int,
    threads: int,
    *,
    are_copies: bool = False,
) -> FittedDiscriminant | None:
    """Fit a discriminant to drawn rows; None if it does not lower the loss of rows left out enough.

    `left_out` (n, n_classes) are the ensemble's log probabilities of the first n rows, each left out, and `weights`
    their weights as in `Rows`; `are_copies` as in `random_folds`. The result does not depend on the number of
    threads.
    """
    assert rows.y is not None
    sizes = schema.domain_sizes.tolist()
    by_column = {
        i: scores
        for i, attribute in enumerate(schema.attributes)
        if (scores := normal_scores(attribute, np.bincount(rows.x[i], minlength=sizes[i])[: sizes[i]])) is not None
    }
    m, n_classes = len(by_column), schema.n_classes
    if m < FEWEST_COLUMNS or n_classes * m * m > MOST_NUMBERS or rows.n_rows < 2 * N_FOLDS:
        return None
    z = np.stack([scores[np.minimum(rows.x[i], sizes[i] - 1)] for i, scores in by_column.items()], axis=1)
    log_shares = np.log((class_counts + 1.0 / n_classes) / (class_counts.sum() + 1.0))
    first = Rows(read_only_array(rows.y[: len(left_out)]), np.zeros_like(left_out), weights)
    with threadpool_limits(1, "blas"):
        fold = random_folds(rows.x, N_FOLDS, seed, are_copies=are_copies)
        folds = _Folds(z.astype(np.float64), rows.y, fold, log_shares)
        tried = [_weighed(left_out, folds.left_out(each, len(left_out)), first, threads) for each in SHRINKAGES]
        best = int(np.argmin([mean_log_loss(own, first) for _, own in tried]))
        bound = np.log(np.array([rows.n_rows], np.float64)) / max(tried[best][0][1], LEAST_WEIGHT)
        own = folds.left_out(SHRINKAGES[best], rows.n_rows, bound)
        of_first = own[: len(left_out)]
        (share, weight), pooled = _weighed(left_out, of_first, first, threads)
        evidence = gain_reliability(left_out, pooled, first)
        share, weight = 1.0 + evidence * (share - 1.0), evidence * weight
        losses = [mean_log_loss(scores, first) for scores in (left_out, share * left_out + weight * of_first)]
        if weight <= 0.0 or losses[1] > (1.0 - PAYS) * losses[0]:
            return None
        means, covariances = folds.whole.gaussians(*SHRINKAGES[best])
    starts = np.concatenate([[0], np.cumsum([scores.size for scores in by_column.values()])])
    discriminant = Discriminant(
        np.array(list(by_column), np.int64),
        starts.astype(np.int64),
        np.concatenate(list(by_column.values())) / UNIT,
        log_shares,
        means,
        (covariances + covariances.transpose(0, 2, 1)) / 2,
        np.array([weight]),
        bound,
    )
    names = [schema.attributes[i].name for i in by_column]
    rows_of_all, diagonal = SHRINKAGES[best]
    facts: dict[str, object] = {
        "columns": names,
        "left_out_losses": dict(zip(("ensemble", "with discriminant"), losses, strict=True)),
        "weights": {"ensemble": share, "discriminant": weight},
        "evidence": evidence,
        "covariance": {"rows of all classes": rows_of_all, "diagonal": diagonal},
    }
    words = f"Gaussian discriminants of {m} columns lowered the log loss of left-out rows from {losses[0]:.4g} to {losses[1]:.4g}."
    return FittedDiscriminant(discriminant, share, weight * own, facts, words)


class _Folds:
    """Moments of each fold of rows."""

    def __init__(self, z: Floats, y: Codes, fold: Integers, log_shares: Floats) -> None:
        self._z, self._fold, self._log_shares = z, fold, log_shares
        self._moments = [_moments(z[fold == i], y[fold == i], log_shares.size) for i in range(N_FOLDS)]
        self.whole = _Moments(*(sum(parts) for parts in zip(*self._moments, strict=True)))

    def left_out(self, shrinkage: tuple[float | None, float], n: int, bound: Floats = UNBOUNDED) -> Floats:
        """Compute log probabilities (n, n_classes) of the first n rows from the moments of the other folds; `bound` as in
        `Discriminant`.
        """
        scores = np.empty((n, self._log_shares.size))
        for i, own in enumerate(self._moments):
            rows = np.flatnonzero(self._fold[:n] == i)
            z = self._z[rows] / UNIT
            means, covariances = self.whole.minus(own).gaussians(*shrinkage)
            for k, (mean, factor, log_sizes) in enumerate(zip(means, *whitened(covariances), strict=True)):
                deviations = (z - mean) @ factor.T
                scores[rows, k] = -log_sizes.sum() - 0.5 * (deviations**2).sum(axis=1)
        scores = self._log_shares + bounded(scores.T, bound).T
        return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def _moments(z: Floats, y: Codes, n_classes: int) -> _Moments:
    by_class = [z[y == k] for k in range(n_classes)]
    return _Moments(
        np.array([len(own) for own in by_class], np.float64),
        np.stack([own.sum(axis=0) for own in by_class]),
        np.stack([own.T @ own for own in by_class]),
    )


def _weighed(ensemble: Floats, own: Floats, rows: Rows, threads: int) -> tuple[tuple[float, float], Floats]:
    """Return the weights of ensemble and discriminant that fit left-out rows best, and the weighted sum."""
    terms = np.stack([ensemble, own], axis=1).astype(np.float32)
    losses = [mean_log_loss((1.0 - share) * ensemble + share * own, rows) for share in STARTS]
    start = STARTS[int(np.argmin(losses))]
    fitted = fit_term_weights(terms, rows, np.array([1.0 - start, start]), threads)
    share, weight = fitted.tolist()
    return (share, weight), share * ensemble + weight * own
