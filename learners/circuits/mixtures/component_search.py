"""Mixtures of Gaussians that grow: every component is split along its longest axis as long as other rows gain by it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import numpy as np

from learners.circuits.em.expected_sums import expected_of
from learners.circuits.mixtures.em_statistics import ExpectedMoments
from learners.circuits.mixtures.mixture import GaussianMixture
from learners.kernels.arrays import Array, Floats, Integers

# Rows of the mean covariance of all components that each component's own is averaged with: what is tried.
POOLED = (0.1, 3.0, 30.0)
MOST_COMPONENTS = 128
# A component of fewer rows is not split any further.
FEWEST_ROWS = 5
# Passes without a gain before a size ends: where components find new parts of the data, other rows lose for a while.
MOST_PASSES, PATIENCE, GAIN = 100, 15, 1e-4
# Of numbers, rows of probability zero count as this improbable.
IMPOSSIBLE = -1e6
# Multiplications of E-steps that a thread makes a second.
PRODUCTS_A_SECOND = 1e9


@dataclass(frozen=True)
class Size:
    """What became of a number of components."""

    # components, passes: passes up to the best.
    components: int
    passes: int
    pooled: float
    valid: float  # mean log density of the rows to choose by, in nats

    def facts(self) -> dict[str, object]:
        """As plain values."""
        return asdict(self) | {"valid": round(self.valid, 4)}


@dataclass(frozen=True, eq=False)
class Grown:
    """The mixture that was chosen."""

    mixture: GaussianMixture
    pooled: float
    valid: float
    tried: list[Size]  # the best first
    way: list[Size]  # those that led to the mixture, in their order


@dataclass(frozen=True, eq=False)
class Halves:
    """Rows to fit and rows to choose by."""

    n_values: Integers  # (n_variables,) int64: sizes of domains; 0 of numeric columns
    # fit, valid (n_variables, n_rows) float64
    fit: Array
    valid: Array
    narrowest: Floats  # (d,) float64: see `ExpectedMoments.maximised`
    threads: int = 1

    def expected(self, mixture: GaussianMixture) -> ExpectedMoments:
        """Of the rows to fit; the same on any number of threads."""
        return expected_of(partial(ExpectedMoments, mixture), self.fit, self.threads)

    def score(self, mixture: GaussianMixture) -> float:
        """Mean log density of the rows to choose by."""
        return float(np.maximum(mixture.log_density(self.valid), IMPOSSIBLE).mean())


def grow(
    halves: Halves,
    *,
    components: int | None = None,
    work: float = np.inf,
    report: Callable[[float, str], None] = lambda _share, _note: None,
) -> Grown:
    """Fit mixtures of 1, 2, 4, … components, each size from the one before, and take the one that explains other rows best.

    Sizes end where two in a row gain nothing, at 128, and where the work is spent. Then the best size goes on with other weights
    of the components' mean covariance.

    components: only this size, and the powers of two below it on the way there.
    work: multiplications that may be made.
    report: called with the share of the work that is done and what is being tried; may raise.
    References: Ueda, Nakano, Ghahramani, Hinton (2000), SMEM algorithm for mixture models, section 3.3 (splitting).
    """
    growing = _Growing(halves, work, report)
    start = _one(halves)
    scale = np.sqrt(np.diagonal(start.covariance[0]))
    best = growing.fit(start, POOLED[0])
    found, without_gain = [best], 0
    most = components or MOST_COMPONENTS
    while found[-1].mixture.n_components < most and without_gain < 2 and growing.may_go_on:
        last = found[-1].mixture
        if 2 * last.n_components * FEWEST_ROWS > halves.fit.shape[1]:
            break
        found.append(growing.fit(_split(last, scale, most), POOLED[0]))
        without_gain = 0 if found[-1].valid > best.valid + GAIN else without_gain + 1
        if components or found[-1].valid > best.valid:
            best = found[-1]
    start = best.mixture
    way = [each.tried[0] for each in found[: found.index(best) + 1]]
    found += [growing.fit(start, pooled) for pooled in POOLED[1:] if growing.may_go_on]
    best = max([best, *(each for each in found if each.pooled != POOLED[0])], key=lambda each: each.valid)
    tried = sorted((each.tried[0] for each in found), key=lambda each: -each.valid)
    if best.pooled != POOLED[0]:
        way.append(best.tried[0])
    return Grown(best.mixture, best.pooled, best.valid, tried, way)


def again(way: Sequence[Size], halves: Halves, report: Callable[[float, str], None]) -> GaussianMixture:
    """The same sizes and passes as `grow` took, on all rows: a tenth more rows tell more of many covariances."""
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
        """EM until the rows to choose by gain nothing any more."""
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


def one_component(n_values: Integers, mean: Floats, variance: Floats) -> GaussianMixture:
    """A component without correlations, with equal shares of discrete values; mean, variance (d,) of the numeric columns."""
    sizes = n_values[n_values > 0].tolist()
    log_share = np.concatenate([np.full(size, -np.log(size)) for size in sizes] or [np.empty(0)])
    return GaussianMixture(
        np.zeros(1), mean[np.newaxis], np.diag(variance)[np.newaxis], log_share[np.newaxis], n_values
    )


def _one(halves: Halves) -> GaussianMixture:
    """One component: each column's mean and variance, and equal shares of discrete values."""
    n_values = halves.n_values
    numbers = halves.fit[np.flatnonzero(n_values == 0)].astype(np.float64)
    known = ~np.isnan(numbers)
    n = np.maximum(known.sum(axis=1), 1)
    mean = np.where(known, numbers, 0.0).sum(axis=1) / n
    variance = np.where(known, (numbers - mean[:, np.newaxis]) ** 2, 0.0).sum(axis=1) / n
    least = np.maximum(halves.narrowest**2, np.finfo(np.float64).tiny)
    return one_component(n_values, mean, variance + least)


def _split(mixture: GaussianMixture, scale: Floats, most: int) -> GaussianMixture:
    """Two components for each, of the heaviest where not all can be split: its halves along its longest axis, in units of scale."""
    k = mixture.n_components
    chosen = np.sort(np.argsort(-mixture.log_weight, kind="stable")[: most - k])
    kept = np.setdiff1d(np.arange(k), chosen)
    units = scale[:, np.newaxis] * scale
    lengths, axes = np.linalg.eigh(mixture.covariance[chosen] / units)
    # Of the half of a normal distribution above zero: its mean, in standard deviations.
    half_mean = np.sqrt(2.0 / np.pi)
    step = half_mean * scale * axes[:, :, -1] * np.sqrt(np.maximum(lengths[:, -1:], 0.0))
    covariance = mixture.covariance[chosen] - step[:, :, np.newaxis] * step[:, np.newaxis]
    mean = mixture.mean[chosen]
    halved = mixture.log_weight[chosen] - np.log(2.0)
    return GaussianMixture(
        np.concatenate([mixture.log_weight[kept], halved, halved]),
        np.concatenate([mixture.mean[kept], mean + step, mean - step]),
        np.concatenate([mixture.covariance[kept], covariance, covariance]),
        np.concatenate([mixture.log_share[kept], mixture.log_share[chosen], mixture.log_share[chosen]]),
        mixture.n_values,
    )
