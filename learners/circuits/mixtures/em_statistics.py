"""Expected moments of the components of a mixture of Gaussians, as a statistic that adds in any order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from learners.circuits.em.expected_sums import PER_NAT, ExpectedSums
from learners.circuits.evaluation.evaluate import rows_in
from learners.circuits.mixtures.kernels import LEAST_SHARE, PER_MOMENT, PER_ROW, add_moments
from learners.circuits.mixtures.mixture import NAMES, GaussianMixture, Observed, Rest, log_sums
from learners.kernels.arrays import Array, Floats, Integers, frozen
from learners.schema import Chunk

# Rows at a time, so that shares of many components stay in the cache.
AT_A_TIME = 4096
# Rows added to each component's weight; and to its discrete columns, as they are in all rows.
OF_WEIGHT, OF_SHARES = 0.1, 1.0
# A component that fewer rows reach stays as it is.
FEWEST = 1e-3


class Sums(NamedTuple):
    """Whole numbers, see the kernels."""

    rows: Integers  # (n_components,) int64
    first: Integers  # (n_components, d) int64
    second: Integers  # (n_components, d, d) int64: lower halves
    codes: Integers  # (n_components, n_codes) int64
    totals: Integers  # (3,) int64: rows, impossible ones, log likelihood


class ExpectedMoments(ExpectedSums[GaussianMixture, Sums]):
    """How many rows are expected of each component, their sums and sums of products, and their discrete values.

    Sums are of standard coordinates: less the component's mean, by the inverse of its Cholesky factor. So nothing cancels,
    whatever the columns' units; a row's share of a sum is rounded to a multiple of 2^-20, of a count to one of 2^-32, and
    added as a whole number: the result is the same bit for bit in any order and partition, on any number of threads.

    References: Dempster, Laird, Rubin (1977); Ghahramani, Jordan (1994), "Supervised learning from incomplete data via
    an EM approach", section 2.2 (missing values).
    """

    stage = "expected moments"
    kind = "mixture"

    def _zeros(self) -> Sums:
        k, d = self.model.mean.shape
        sizes = ((k,), (k, d), (k, d, d), (k, int(self.model.n_values.sum())), (3,))
        return Sums(*(np.zeros(size, np.int64) for size in sizes))

    def _parameters(self) -> Iterable[Array]:
        return (getattr(self.model, name) for name in NAMES)

    def update(self, rows: Chunk | Array) -> None:
        """Add rows: a chunk, or (n_variables, n_rows) as `GaussianMixture.log_joint` reads them."""
        x = rows_in(rows, self.rows_of)
        for at in range(0, x.shape[1], AT_A_TIME):
            self._update(x[:, at : at + AT_A_TIME])

    def _update(self, x: Array) -> None:
        own, mixture = self._sums, self.model
        joint = mixture.log_joint(x)
        logs = log_sums(joint)
        possible = logs > -np.inf
        own.totals[0] += x.shape[1]
        own.totals[1] += int((~possible).sum())
        own.totals[2] += int(np.rint(logs[possible] * PER_NAT).astype(np.int64).sum())
        if not possible.all():
            x, joint, logs = x[:, possible], joint[:, possible], logs[possible]
        share = np.exp(joint - logs)
        share[share < LEAST_SHARE] = 0.0
        whole = np.rint(share * PER_ROW)
        own.rows[:] += whole.astype(np.int64).sum(axis=1)
        self._add_codes(x, whole)
        for rows, numbers, observed, rest in mixture.groups(x) if x.shape[1] else ():
            self._add_numbers(numbers.T, share[:, rows], observed, rest)

    def _add_codes(self, x: Array, whole: Floats) -> None:
        for v in self.model.discrete.tolist():
            rows, codes = self.model.codes_of(x, v)
            size, at = int(self.model.n_values[v]), int(self.model.starts[v])
            for k in range(self.model.n_components):
                # Whole numbers below 2^53: sums of doubles are exact.
                counted = np.bincount(codes, whole[k, rows], size)
                self._sums.codes[k, at : at + size] += counted.astype(np.int64)

    def _add_numbers(self, numbers: Floats, share: Floats, observed: Observed, rest: Rest | None) -> None:
        d = self.model.mean.shape[1]
        numbers = np.ascontiguousarray(numbers)
        nothing = frozen(np.zeros((d, d)))
        whole, _ = self.model.observed(np.ones(d, np.bool_))
        for k in range(self.model.n_components):
            some = np.flatnonzero(share[k])
            if not some.size:
                continue
            lift, spread = nothing, nothing
            if rest is not None:
                lift, spread = _lifted(observed, rest, whole.inverse[k], k)
            own = numbers[some], share[k, some], observed.mean[k], observed.inverse[k]
            add_moments(*own, lift, spread, self._sums.first[k], self._sums.second[k])

    def maximised(self, pooled: float, narrowest: Floats) -> GaussianMixture:
        """The M-step.

        Each component's covariance is averaged with the mean of all, worth `pooled` rows; narrowest (d,) are standard
        deviations of an error of recording, which each column has in each component.
        """
        old, sums = self.model, self._sums
        rows = sums.rows / PER_ROW
        is_reached = rows > FEWEST
        n = np.where(is_reached, rows, 1.0)
        factor = np.linalg.cholesky(old.covariance)
        shift = sums.first / PER_MOMENT / n[:, np.newaxis]
        lower = np.tril(sums.second / PER_MOMENT)
        square = lower + np.swapaxes(np.tril(lower, -1), 1, 2)
        around = square / n[:, np.newaxis, np.newaxis] - shift[:, :, np.newaxis] * shift[:, np.newaxis]
        own = np.where(
            is_reached[:, np.newaxis, np.newaxis], factor @ around @ np.swapaxes(factor, 1, 2), old.covariance
        )
        mean = np.where(is_reached[:, np.newaxis], old.mean + np.einsum("kij,kj->ki", factor, shift), old.mean)
        weight = np.where(is_reached, rows, 0.0)[:, np.newaxis, np.newaxis]
        everywhere = (weight * own).sum(axis=0) / max(float(weight.sum()), FEWEST)
        covariance = (weight * own + pooled * everywhere) / np.maximum(weight + pooled, FEWEST)
        covariance = 0.5 * (covariance + np.swapaxes(covariance, 1, 2)) + np.diag(narrowest**2)
        covariance = np.where(is_reached[:, np.newaxis, np.newaxis], covariance, old.covariance)
        log_weight = np.log((rows + OF_WEIGHT) / (rows + OF_WEIGHT).sum())
        return GaussianMixture(log_weight, mean, covariance, self._log_shares(), old.n_values)

    def _log_shares(self) -> Floats:
        """(n_components, n_codes) float64: of discrete values, each component averaged with all rows."""
        old, counts = self.model, self._sums.codes / PER_ROW
        found = np.empty_like(counts)
        for v in old.discrete.tolist():
            own = slice(int(old.starts[v]), int(old.starts[v + 1]))
            total = counts[:, own].sum(axis=0) + OF_WEIGHT
            mixed = counts[:, own] + OF_SHARES * total / total.sum()
            found[:, own] = np.log(mixed / mixed.sum(axis=1, keepdims=True))
        return found


def _lifted(observed: Observed, rest: Rest, inverse: Floats, k: int) -> tuple[Floats, Floats]:
    """From standard coordinates of what is observed to those of all columns, and the covariance of the others there."""
    d, m = inverse.shape[0], observed.places.size
    factor = np.linalg.inv(observed.inverse[k]) if m else np.zeros((0, 0))
    whole = np.zeros((d, m))
    whole[observed.places] = factor
    whole[rest.places] = rest.slope[k] @ factor
    spread = inverse[:, rest.places] @ rest.covariance[k] @ inverse[:, rest.places].T
    return frozen(inverse @ whole), frozen(spread)
