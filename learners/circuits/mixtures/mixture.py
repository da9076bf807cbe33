"""A mixture whose components are one Gaussian of all numeric columns, optionally truncated to a box, and a distribution
of each discrete one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence, InvalidCircuit, InvalidEvidence
from learners.circuits.evaluation.leaf_distributions import (
    normal_interval_log_probability,
    truncated_leaf_moments,
    truncated_normal_quantiles,
)
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN
from learners.circuits.mixtures.kernels import add_gaussian_log_densities
from learners.circuits.structures.text import CircuitBuilder
from learners.kernels.arrays import Array, Arrays, Floats, Integers, Mask, read_only_array

# Correlations between columns in ranges that are rounding errors.
INDEPENDENT = 1e-9


class DependentRanges(InvalidEvidence):
    """Raised for ranges of dependent columns, whose joint probability has no closed form."""

    def __init__(self) -> None:
        super().__init__(
            "No exact formula exists for ranges of several columns that depend on each other: give a range for only one of them, or "
            "request samples for a marginal, a conditional, moments or imputations (--sample, or sampling in Python and JSON)."
        )


class Box(NamedTuple):
    """Columns that are independent given the observed ones, each restricted to a range."""

    places: Integers  # (r,) int64: among the columns that are not observed
    mean: Floats  # (n_components, r, n_rows) float64: before they are cut
    deviation: Floats  # (n_components, r) float64
    slope: Floats  # (n_components, u, r) float64: of every unobserved column for each unit of those in ranges
    ends: Floats  # (r, 2) float64

    @property
    def standard_ends(self) -> tuple[Floats, Floats]:
        """Return the ends in standard deviations from the mean, (n_components, r, n_rows) float64 each."""
        scale = self.deviation[:, :, np.newaxis]
        return (self.ends[:, :1] - self.mean) / scale, (self.ends[:, 1:] - self.mean) / scale

    @property
    def log_mass(self) -> Floats:
        """Return the log probability of the box, (n_components, n_rows) float64."""
        return normal_interval_log_probability(*self.standard_ends).sum(axis=1)

    def moments(self, means: Floats, variances: Floats) -> tuple[Floats, Floats]:
        """Return means and variances (n_components, u, n_rows) of all unobserved columns in the box, from those before
        truncation.

        References: Pearson (1903), On the influence of natural selection on the variability and correlation of organs,
        section 3.
        """
        own = np.empty((2, *self.mean.shape))
        for k, i, row in np.ndindex(self.mean.shape):
            leaf = np.array([self.mean[k, i, row], self.deviation[k, i]])
            own[:, k, i, row] = truncated_leaf_moments(GAUSSIAN, leaf, *self.ends[i])
        gain = own[1] - self.deviation[:, :, np.newaxis] ** 2
        means, variances = means + self.slope @ (own[0] - self.mean), variances + self.slope**2 @ gain
        means[:, self.places], variances[:, self.places] = own
        return means, variances

    def moved(self, drawn: Floats, k: int, rows: Integers) -> Floats:
        """Map numbers drawn from a component without the box to numbers in the box, (n, u) float64.

        A column's quantile becomes its quantile in the truncated distribution, and the others follow. Their
        distribution is correct because their residuals are independent of the columns in the box.
        """
        scale, before = self.deviation[k], drawn[:, self.places]
        mean = self.mean[k][:, rows].T
        low, high = (ends[k][:, rows].T for ends in self.standard_ends)
        z = truncated_normal_quantiles(low, high, scipy.special.ndtr((before - mean) / scale))
        after = np.clip(mean + scale * z, *self.ends.T)
        found: Floats = drawn + (after - before) @ self.slope[k].T
        found[:, self.places] = after
        return found


def conditional_range_box(places: Integers, means: Floats, covariance: Floats, ends: Floats) -> Box:
    """Create the box of the columns (r,) among the unobserved ones, whose `means` and `covariance` are given.

    Raises DependentRanges if the columns are dependent given the observed ones.
    """
    own = covariance[:, places[:, np.newaxis], places]
    deviation = np.sqrt(np.diagonal(own, axis1=1, axis2=2))
    correlation = own / (deviation[:, :, np.newaxis] * deviation[:, np.newaxis])
    if (np.abs(correlation - np.eye(places.size)) > INDEPENDENT).any():
        raise DependentRanges
    slope = covariance[:, :, places] / deviation[:, np.newaxis] ** 2
    return Box(places, means[:, places], deviation, slope, ends)


LOG_2_PI = float(np.log(2.0 * np.pi))
# Number of patterns of observed columns that are kept.
MOST_PATTERNS = 64
NAMES = ("log_weight", "mean", "covariance", "log_share", "n_values")
SUMS_TO_ONE = 1e-6
# Kind and parameters.
Leaf = tuple[int, Floats]


class Observed(NamedTuple):
    """The components' densities of the observed numeric columns: sub-vectors of the means, sub-blocks of the
    covariances.
    """

    places: Integers  # (m,) int64: of the observed ones among the numeric columns
    mean: Floats  # (n_components, m) float64
    inverse: Floats  # (n_components, m, m) float64: of the Cholesky factor of each covariance: lower triangles
    constant: Floats  # (n_components,) float64: log density at the mean


class Rest(NamedTuple):
    """The other numeric columns given the observed ones."""

    places: Integers  # (u,) int64
    slope: Floats  # (n_components, u, m) float64: of their expectation for each unit of what is observed
    covariance: Floats  # (n_components, u, u) float64


@dataclass(frozen=True, eq=False)
class GaussianMixture:
    """A mixture in whose components the discrete columns are independent of each other and of the numeric ones, which
    are correlated.

    Raises InvalidCircuit if shapes do not match, shares do not add up to one, or a covariance is not positive
    definite.

    References: Bishop (2006), Pattern Recognition and Machine Learning, sections 2.3.1, 2.3.2 and 9.2.
    """

    log_weight: Floats  # (n_components,) float64
    mean: Floats  # (n_components, d) float64: of the numeric columns
    covariance: Floats  # (n_components, d, d) float64
    # (n_components, n_codes) float64: of the values of each discrete column, one column after the other.
    log_share: Floats
    n_values: Integers  # (n_variables,) int64: size of each domain; 0 of numeric columns
    # In which variables lie where they are not observed. Not stored: it is evidence.
    ranges: Mapping[int, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in NAMES:
            dtype = np.int64 if name == "n_values" else np.float64
            object.__setattr__(self, name, read_only_array(np.asarray(getattr(self, name), dtype).view()))
        _check(self)

    @property
    def n_components(self) -> int:
        """Number of Gaussians."""
        return self.log_weight.size

    @cached_property
    def numeric(self) -> Integers:
        """Numeric variables."""
        return np.flatnonzero(self.n_values == 0)

    @cached_property
    def discrete(self) -> Integers:
        """Discrete variables."""
        return np.flatnonzero(self.n_values > 0)

    @cached_property
    def starts(self) -> Integers:
        """Start of each variable's shares, (n_variables + 1,) int64."""
        return np.concatenate([[0], np.cumsum(self.n_values)])

    @cached_property
    def _patterns(self) -> dict[bytes, tuple[Observed, Rest | None]]:
        return {}

    def shares_of(self, v: int) -> Floats:
        """Return the log shares of a discrete variable's values, (n_components, n_values) float64."""
        return self.log_share[:, self.starts[v] : self.starts[v + 1]]

    def observed(self, is_observed: Mask) -> tuple[Observed, Rest | None]:
        """Return the components' distributions of the observed columns and of the rest."""
        key = is_observed.tobytes()
        pattern = self._patterns.get(key)
        if pattern is None:
            pattern = _divided(self.mean, self.covariance, is_observed)
            for old in list(self._patterns)[: max(0, len(self._patterns) - MOST_PATTERNS + 1)]:
                self._patterns.pop(old, None)
            self._patterns[key] = pattern
        return pattern

    def groups(self, x: Array) -> Iterator[tuple[Integers, Floats, Observed, Rest | None]]:
        """Group rows (n_variables, n_rows) by their observed numeric columns; yields positions, observed values (m, n),
        and the components.
        """
        numbers = x[self.numeric].astype(np.float64, copy=False)
        known = ~np.isnan(numbers)
        if known.all():
            yield np.arange(x.shape[1]), read_only_array(numbers), *self.observed(known[:, 0])
            return
        packed = np.packbits(known, axis=0)
        _, first, which = np.unique(packed, axis=1, return_index=True, return_inverse=True)
        for group, at in enumerate(first.tolist()):
            rows = np.flatnonzero(which.ravel() == group)
            yield rows, read_only_array(numbers[np.ix_(known[:, at], rows)]), *self.observed(known[:, at])

    def log_joint(self, x: Array) -> Floats:
        """Return the log density of each row's observed cells with each component, (n_components, n_rows) float64.

        Missing is NaN, or for a discrete variable a code outside its domain. Raises DependentRanges.
        """
        logs = np.repeat(self.log_weight[:, np.newaxis], x.shape[1], axis=1)
        if not x.shape[1]:
            return logs
        for v in self.discrete.tolist():
            rows, codes = self.codes_of(x, v)
            logs[:, rows] += self.shares_of(v)[:, codes]
        for rows, numbers, own, rest in self.groups(x):
            if rows.size == x.shape[1]:
                add_gaussian_log_densities(numbers, own.mean, own.inverse, own.constant, logs)
            else:
                part = np.zeros((self.n_components, rows.size))
                add_gaussian_log_densities(numbers, own.mean, own.inverse, own.constant, part)
                logs[:, rows] += part
            if self.ranges and rest is not None:
                box = self.box(self.expectations(numbers, own, rest), rest)
                logs[:, rows] += box.log_mass if box else 0.0
        return logs

    def expectations(self, numbers: Floats, observed: Observed, rest: Rest) -> Floats:
        """Return the expectation of the missing numeric columns given the observed ones, `numbers`, (n_components, u,
        n_rows) float64.
        """
        means = rest.slope @ (numbers - observed.mean[:, :, np.newaxis])
        means += self.mean[:, rest.places, np.newaxis]
        return means

    def box(self, means: Floats, rest: Rest) -> Box | None:
        """Return the box of the ranges of missing columns, with expectations `means`; None without ranges. Raises
        DependentRanges.
        """
        ends = {int(v): own for v, own in self.ranges.items() if v in self.numeric[rest.places]}
        places = np.searchsorted(self.numeric[rest.places], np.array([*ends], np.int64))
        return (
            conditional_range_box(places, means, rest.covariance, np.array([*ends.values()], np.float64))
            if ends
            else None
        )

    def codes_of(self, x: Array, v: int) -> tuple[Integers, Integers]:
        """Return the rows in which a discrete variable is observed, and its codes there."""
        rows = np.flatnonzero((x[v] >= 0) & (x[v] < self.n_values[v]))
        return rows, x[v, rows].astype(np.int64)

    def log_density(self, x: Array) -> Floats:
        """Return the log density of each row's observed cells, (n_rows,) float64; a log probability if no number is
        observed.
        """
        return log_sum_exp(self.log_joint(x))

    def shares(self, x: Array) -> Floats:
        """Return the probability of each component given each row, (n_components, n_rows) float64.

        Raises ImpossibleEvidence, naming a row of probability zero.
        """
        logs = self.log_joint(x)
        most = logs.max(axis=0, initial=-np.inf)
        impossible = np.flatnonzero(most == -np.inf)
        if impossible.size:
            raise ImpossibleEvidence(int(impossible[0]))
        shares = np.exp(logs - most)
        shares /= shares.sum(axis=0)
        return shares

    def diagonal(self) -> Circuit:
        """Return a circuit of the same components without correlations.

        It has the same variables, domains and marginal distributions, but no dependence between numeric columns
        within a component.
        """
        spread = np.sqrt(np.diagonal(self.covariance, axis1=1, axis2=2))
        place = {v: i for i, v in enumerate(self.numeric.tolist())}

        def leaf(component: int, v: int) -> Leaf:
            if self.n_values[v]:
                return CATEGORICAL, self.shares_of(v)[component]
            return GAUSSIAN, np.array([self.mean[component, place[v]], spread[component, place[v]]])

        leaves = [[leaf(component, v) for v in range(self.n_values.size)] for component in range(self.n_components)]
        return product_mixture_circuit(self.log_weight, leaves, self.n_values)

    def to_arrays(self) -> dict[str, Array]:
        """Return the parameters by name."""
        return {name: getattr(self, name) for name in NAMES}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> GaussianMixture:
        """Build the mixture from the output of `to_arrays`. Raises InvalidCircuit if an array is missing, or they are
        not a valid mixture.
        """
        for name in NAMES:
            if name not in arrays:
                raise InvalidCircuit(f"has no array {name!r}")
        log_weight, mean, covariance, log_share, n_values = (arrays[name] for name in NAMES)
        return cls(log_weight, mean, covariance, log_share, n_values)


def log_sum_exp(logs: Floats) -> Floats:
    """Return the log of the sums over the first axis, (n,) float64; -inf if all are -inf."""
    most = logs.max(axis=0, initial=-np.inf)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(most == -np.inf, -np.inf, most + np.log(np.exp(logs - most).sum(axis=0)))


def _check(mixture: GaussianMixture) -> None:
    k = mixture.log_weight.size
    d = mixture.mean.shape[-1] if mixture.mean.ndim == 2 else -1
    shapes = (mixture.log_weight.ndim, mixture.mean.shape, mixture.covariance.shape, mixture.log_share.shape)
    if mixture.n_values.ndim != 1 or (mixture.n_values < 0).any():
        raise InvalidCircuit("has invalid domains")
    if not k or shapes != (1, (k, d), (k, d, d), (k, int(mixture.n_values.sum()))) or d != mixture.numeric.size:
        raise InvalidCircuit("has means, covariances or shares of inconsistent shapes")
    if not d:
        raise InvalidCircuit("is a mixture of Gaussians without a numeric column")
    totals = [
        log_sum_exp(mixture.log_weight),
        *(log_sum_exp(mixture.shares_of(v).T) for v in mixture.discrete.tolist()),
    ]
    if any((np.abs(total) > SUMS_TO_ONE).any() or np.isnan(total).any() for total in totals):
        raise InvalidCircuit("has weights or shares that do not add up to one")
    if not np.isfinite(mixture.mean).all() or not np.isfinite(mixture.covariance).all():
        raise InvalidCircuit("has a mean or covariance that is not finite")
    mixture.observed(np.ones(d, np.bool_))


def _divided(mean: Floats, covariance: Floats, is_observed: Mask) -> tuple[Observed, Rest | None]:
    """Return the marginal distribution of the given columns, and the conditional distribution of the others.

    References: Bishop (2006), equations 2.81, 2.82 and 2.98.
    """
    own, others = np.flatnonzero(is_observed), np.flatnonzero(~is_observed)
    try:
        factor: Floats = np.linalg.cholesky(covariance[:, own[:, np.newaxis], own]).astype(np.float64)
    except np.linalg.LinAlgError as error:
        raise InvalidCircuit("has a covariance that is not positive definite") from error
    m = own.size
    inverse = np.zeros_like(factor)
    for k in range(len(factor)):
        inverse[k] = scipy.linalg.solve_triangular(factor[k], np.eye(m), lower=True) if m else factor[k]
    diagonal = np.diagonal(factor, axis1=1, axis2=2)
    constant = -np.log(diagonal).sum(axis=1) - 0.5 * m * LOG_2_PI
    observed = Observed(*map(read_only_array, (own, mean[:, own], inverse, constant)))
    if not others.size:
        return observed, None
    across = covariance[:, others[:, np.newaxis], own] @ np.swapaxes(inverse, 1, 2)
    slope = across @ inverse
    left = covariance[:, others[:, np.newaxis], others] - across @ np.swapaxes(across, 1, 2)
    return observed, Rest(others, slope, 0.5 * (left + np.swapaxes(left, 1, 2)))


def product_mixture_circuit(log_weight: Floats, leaves: Sequence[Sequence[Leaf]], n_values: Integers) -> Circuit:
    """Build a mixture of products with one leaf per variable, given by kind and parameters."""
    builder = CircuitBuilder(n_values)
    parts = [[builder.leaf(kind, v, p.tolist()) for v, (kind, p) in enumerate(part)] for part in leaves]
    builder.sum([builder.product(part) for part in parts], log_weight.tolist())
    return builder.circuit()
