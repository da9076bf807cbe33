"""Growing mixtures of Gaussians: components are split along their longest axis while validation rows gain; and expected
moments for EM.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from learners.circuits.em.expected_sums import PER_NAT, ExpectedSums, parallel_expected_sums
from learners.circuits.evaluation.evaluate import chunk_or_array_rows
from learners.circuits.mixtures.kernels import LEAST_SHARE, PER_MOMENT, PER_ROW, add_expected_gaussian_moments
from learners.circuits.mixtures.mixture import NAMES, GaussianMixture, Observed, Rest, log_sum_exp
from learners.kernels.arrays import Array, Floats, Integers, read_only_array
from learners.schema import Chunk

# Rows at a time, so that shares of many components stay in the cache.
AT_A_TIME = 4096
# Rows added to each component's weight; and to its discrete columns, as they are in all rows.
OF_WEIGHT, OF_SHARES = 0.1, 1.0
# A component that fewer rows reach stays as it is.
FEWEST = 1e-3


class Sums(NamedTuple):
    """Integer sums, see the kernels."""

    rows: Integers  # (n_components,) int64
    first: Integers  # (n_components, d) int64
    second: Integers  # (n_components, d, d) int64: lower halves
    codes: Integers  # (n_components, n_codes) int64
    totals: Integers  # (3,) int64: rows, impossible ones, log likelihood


class ExpectedMoments(ExpectedSums[GaussianMixture, Sums]):
    """Expected rows of each component, their sums and sums of products, and their discrete values.

    Sums are in standard coordinates: centred at the component's mean and scaled by the inverse of its Cholesky
    factor. So nothing cancels, whatever the columns' units; a row's share of a sum is rounded to a multiple of
    2^-20, of a count to one of 2^-32, and added as an integer: the result is the same bit for bit in any order
    and partition, on any number of threads.

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
        x = chunk_or_array_rows(rows, self.rows_of)
        for at in range(0, x.shape[1], AT_A_TIME):
            self._update(x[:, at : at + AT_A_TIME])

    def _update(self, x: Array) -> None:
        own, mixture = self._sums, self.model
        joint = mixture.log_joint(x)
        logs = log_sum_exp(joint)
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
        nothing = read_only_array(np.zeros((d, d)))
        whole, _ = self.model.observed(np.ones(d, np.bool_))
        for k in range(self.model.n_components):
            some = np.flatnonzero(share[k])
            if not some.size:
                continue
            lift, spread = nothing, nothing
            if rest is not None:
                lift, spread = _lifted(observed, rest, whole.inverse[k], k)
            own = numbers[some], share[k, some], observed.mean[k], observed.inverse[k]
            add_expected_gaussian_moments(*own, lift, spread, self._sums.first[k], self._sums.second[k])

    def maximised(self, pooled: float, narrowest: Floats) -> GaussianMixture:
        """Run the M-step.

        Each component's covariance is averaged with the mean of all, weighted as `pooled` rows; narrowest (d,) are
        standard deviations of the recording error, which each column has in each component.
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
        """Return the log shares of discrete values, (n_components, n_codes) float64, each component averaged with all
        rows.
        """
        old, counts = self.model, self._sums.codes / PER_ROW
        log_shares = np.empty_like(counts)
        for v in old.discrete.tolist():
            own = slice(int(old.starts[v]), int(old.starts[v + 1]))
            total = counts[:, own].sum(axis=0) + OF_WEIGHT
            mixed = counts[:, own] + OF_SHARES * total / total.sum()
            log_shares[:, own] = np.log(mixed / mixed.sum(axis=1, keepdims=True))
        return log_shares


def _lifted(observed: Observed, rest: Rest, inverse: Floats, k: int) -> tuple[Floats, Floats]:
    """Return the map from standard coordinates of the observed columns to those of all, and the covariance of the
    others there.
    """
    d, m = inverse.shape[0], observed.places.size
    factor = np.linalg.inv(observed.inverse[k]) if m else np.zeros((0, 0))
    whole = np.zeros((d, m))
    whole[observed.places] = factor
    whole[rest.places] = rest.slope[k] @ factor
    spread = inverse[:, rest.places] @ rest.covariance[k] @ inverse[:, rest.places].T
    return read_only_array(inverse @ whole), read_only_array(spread)


# Rows of the mean covariance of all components that each component's own is averaged with: what is tried.
POOLED = (0.1, 3.0, 30.0)
MOST_COMPONENTS = 128
# A component of fewer rows is not split any further.
FEWEST_ROWS = 5
# Passes without a gain before a size ends: where components find new parts of the data, other rows lose for a while.
MOST_PASSES, PATIENCE, GAIN = 100, 15, 1e-4
# Log density that a row of probability zero counts as.
IMPOSSIBLE = -1e6
# Multiplications of E-steps that a thread makes a second.
PRODUCTS_A_SECOND = 1e9


@dataclass(frozen=True)
class Size:
    """Result of fitting one number of components."""

    # components, passes: passes up to the best.
    components: int
    passes: int
    pooled: float
    valid: float  # mean log density of the rows to choose by, in nats

    def facts(self) -> dict[str, object]:
        """Return the fields as plain values."""
        return asdict(self) | {"valid": round(self.valid, 4)}


@dataclass(frozen=True, eq=False)
class Grown:
    """The selected mixture."""

    mixture: GaussianMixture
    pooled: float
    valid: float
    tried: list[Size]  # the best first
    way: list[Size]  # those that led to the mixture, in their order


@dataclass(frozen=True, eq=False)
class Halves:
    """Training and validation rows."""

    n_values: Integers  # (n_variables,) int64: sizes of domains; 0 of numeric columns
    # fit, valid (n_variables, n_rows) float64
    fit: Array
    valid: Array
    narrowest: Floats  # (d,) float64: see `ExpectedMoments.maximised`
    threads: int = 1

    def expected(self, mixture: GaussianMixture) -> ExpectedMoments:
        """Return the expected sums of the training rows, independent of the number of threads."""
        return parallel_expected_sums(partial(ExpectedMoments, mixture), self.fit, self.threads)

    def score(self, mixture: GaussianMixture) -> float:
        """Return the mean log density of the validation rows."""
        return float(np.maximum(mixture.log_density(self.valid), IMPOSSIBLE).mean())


def grow_gaussian_mixture(
    halves: Halves,
    *,
    components: int | None = None,
    work: float = np.inf,
    report: Callable[[float, str], None] = lambda _share, _note: None,
) -> Grown:
    """Fit mixtures of 1, 2, 4, … components, each from the one before, and return the one that explains validation rows
    best.

    The search stops when two sizes in a row gain nothing, at 128 components, or when the work is spent. Then the
    best size is refined with other weights of the components' mean covariance.

    components: only this size, and the powers of two below it on the way.
    work: number of multiplications allowed.
    report: called with the share of the work done and the current step; may raise.
    References: Ueda, Nakano, Ghahramani, Hinton (2000), SMEM algorithm for mixture models, section 3.3 (splitting).
    """
    growing = _Growing(halves, work, report)
    start = _one(halves)
    scale = np.sqrt(np.diagonal(start.covariance[0]))
    best = growing.fit(start, POOLED[0])
    fits, without_gain = [best], 0
    most = components or MOST_COMPONENTS
    while fits[-1].mixture.n_components < most and without_gain < 2 and growing.may_go_on:
        last = fits[-1].mixture
        if 2 * last.n_components * FEWEST_ROWS > halves.fit.shape[1]:
            break
        fits.append(growing.fit(_split(last, scale, most), POOLED[0]))
        without_gain = 0 if fits[-1].valid > best.valid + GAIN else without_gain + 1
        if components or fits[-1].valid > best.valid:
            best = fits[-1]
    start = best.mixture
    way = [each.tried[0] for each in fits[: fits.index(best) + 1]]
    fits += [growing.fit(start, pooled) for pooled in POOLED[1:] if growing.may_go_on]
    best = max([best, *(each for each in fits if each.pooled != POOLED[0])], key=lambda each: each.valid)
    tried = sorted((each.tried[0] for each in fits), key=lambda each: -each.valid)
    if best.pooled != POOLED[0]:
        way.append(best.tried[0])
    return Grown(best.mixture, best.pooled, best.valid, tried, way)


def refit_mixture_on_all_rows(
    way: Sequence[Size], halves: Halves, report: Callable[[float, str], None]
) -> GaussianMixture:
    """Repeat the sizes and passes of `grow_gaussian_mixture` on all rows, which improves the covariances."""
    mixture = _one(halves)
    scale = np.sqrt(np.diagonal(mixture.covariance[0]))
    for place, size in enumerate(way):
        if size.components > mixture.n_components:
            mixture = _split(mixture, scale, size.components)
        for _ in range(size.passes):
            mixture = halves.expected(mixture).maximised(size.pooled, halves.narrowest)
            report(place / len(way), f"a mixture of {size.components} Gaussians of all rows")
    return mixture


class _Growing:
    def __init__(self, halves: Halves, work: float, report: Callable[[float, str], None]) -> None:
        self.halves, self.work, self.left, self.report = halves, work, work, report

    @property
    def may_go_on(self) -> bool:
        return self.left > 0

    def fit(self, mixture: GaussianMixture, pooled: float) -> Grown:
        """Run EM until the validation rows gain nothing."""
        k, d = mixture.mean.shape
        cost = float(self.halves.fit.shape[1]) * k * (0.5 * d * (d + 1) + mixture.discrete.size)
        best, highest, waited, n_best = mixture, self.halves.score(mixture), 0, 0
        for n_passes in range(1, MOST_PASSES + 1):
            mixture = self.halves.expected(mixture).maximised(pooled, self.halves.narrowest)
            self.left -= cost
            now = self.halves.score(mixture)
            waited = 0 if now > highest + GAIN else waited + 1
            if now > highest or n_passes == 1:
                best, highest, n_best = mixture, now, n_passes
            done = 0.0 if self.work == np.inf else 1.0 - self.left / self.work
            self.report(done, f"a mixture of {k} Gaussians")
            if waited >= PATIENCE or not self.may_go_on:
                break
        own = [Size(k, n_best, pooled, highest)]
        return Grown(best, pooled, highest, own, own)


def single_component_mixture(n_values: Integers, mean: Floats, variance: Floats) -> GaussianMixture:
    """Return a component without correlations and with equal shares of discrete values; mean, variance (d,) of the
    numeric columns.
    """
    sizes = n_values[n_values > 0].tolist()
    log_share = np.concatenate([np.full(size, -np.log(size)) for size in sizes] or [np.empty(0)])
    return GaussianMixture(
        np.zeros(1), mean[np.newaxis], np.diag(variance)[np.newaxis], log_share[np.newaxis], n_values
    )


def _one(halves: Halves) -> GaussianMixture:
    """Return one component with each column's mean and variance, and equal shares of discrete values."""
    n_values = halves.n_values
    numbers = halves.fit[np.flatnonzero(n_values == 0)].astype(np.float64)
    known = ~np.isnan(numbers)
    n = np.maximum(known.sum(axis=1), 1)
    mean = np.where(known, numbers, 0.0).sum(axis=1) / n
    variance = np.where(known, (numbers - mean[:, np.newaxis]) ** 2, 0.0).sum(axis=1) / n
    least = np.maximum(halves.narrowest**2, np.finfo(np.float64).tiny)
    return single_component_mixture(n_values, mean, variance + least)


def _split(mixture: GaussianMixture, scale: Floats, most: int) -> GaussianMixture:
    """Split each component, or the heaviest if not all can be split, into halves along its longest axis, in units of
    scale.
    """
    k = mixture.n_components
    chosen = np.sort(np.argsort(-mixture.log_weight, kind="stable")[: most - k])
    whole = np.setdiff1d(np.arange(k), chosen)
    units = scale[:, np.newaxis] * scale
    lengths, axes = np.linalg.eigh(mixture.covariance[chosen] / units)
    # Mean of the upper half of a normal distribution, in standard deviations.
    half_mean = np.sqrt(2.0 / np.pi)
    step = half_mean * scale * axes[:, :, -1] * np.sqrt(np.maximum(lengths[:, -1:], 0.0))
    covariance = mixture.covariance[chosen] - step[:, :, np.newaxis] * step[:, np.newaxis]
    mean = mixture.mean[chosen]
    halved = mixture.log_weight[chosen] - np.log(2.0)
    return GaussianMixture(
        np.concatenate([mixture.log_weight[whole], halved, halved]),
        np.concatenate([mixture.mean[whole], mean + step, mean - step]),
        np.concatenate([mixture.covariance[whole], covariance, covariance]),
        np.concatenate([mixture.log_share[whole], mixture.log_share[chosen], mixture.log_share[chosen]]),
        mixture.n_values,
    )
