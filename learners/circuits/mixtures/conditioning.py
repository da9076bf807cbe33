"""Conditional distributions of the missing cells of rows under a mixture of Gaussians."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from learners.circuits.mixtures.mixture import LOG_2_PI, GaussianMixture, Observed, Rest, log_sum_exp
from learners.circuits.queries.sampling_kernels import GOLDEN
from learners.kernels.arrays import Array, Floats, Integers
from learners.kernels.random import random_bits_array

# Conditional means of so many cells and components are made at a time.
MOST_AT_A_TIME = 1 << 21


class Tree(NamedTuple):
    """Values of queried variables, their log density with the evidence, and a log bound for any values."""

    values: Floats
    log_density: float
    log_bound: float


def conditional_marginals(mixture: GaussianMixture, x: Array, variables: Sequence[int]) -> list[Floats]:
    """Return the marginal distribution of each discrete variable given each row, (n_rows, n_values); observed ones are
    certain. Raises ImpossibleEvidence.
    """
    shares = mixture.shares(x)
    marginals = []
    for v in variables:
        p = shares.T @ np.exp(mixture.shares_of(v))
        rows, codes = mixture.codes_of(x, v)
        p[rows] = 0.0
        p[rows, codes] = 1.0
        marginals.append(p)
    return marginals


def conditional_joint(mixture: GaussianMixture, x: Array, variables: Sequence[int]) -> Floats:
    """Return the joint distribution of discrete variables given each row, (n_rows, n_values, n_values, …) float64.

    Raises ImpossibleEvidence.
    """
    shares = mixture.shares(x)
    tables = np.ones((mixture.n_components, 1))
    for v in variables:
        own = np.exp(mixture.shares_of(v))
        tables = (tables[:, :, np.newaxis] * own[:, np.newaxis]).reshape(mixture.n_components, -1)
    sizes = mixture.n_values[list(variables)].tolist()
    joint: Floats = (shares.T @ tables).reshape(x.shape[1], *sizes)
    for axis, v in enumerate(variables, 1):
        rows, codes = mixture.codes_of(x, v)
        certain = np.zeros((rows.size, sizes[axis - 1]))
        certain[np.arange(rows.size), codes] = 1.0
        shape = [1] * joint.ndim
        shape[0], shape[axis] = rows.size, sizes[axis - 1]
        others = joint[rows].sum(axis=axis, keepdims=True)
        joint[rows] = others * certain.reshape(shape)
    return joint


def conditional_moments(mixture: GaussianMixture, x: Array, variables: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the expectation and variance of numeric variables given each row, (n_rows, len(variables)); observed ones
    have variance zero.

    Raises ImpossibleEvidence.
    """
    shares = mixture.shares(x)
    places = np.searchsorted(mixture.numeric, variables)
    mean, variance = np.empty((2, x.shape[1], len(variables)))
    for rows, before, rest, numbers, observed in _conditional(mixture, x):
        means, variances = (before, before) if rest is None else _cut(mixture, before, rest)
        for i, place in enumerate(places.tolist()):
            if rest is None or place not in rest.places:
                mean[rows, i], variance[rows, i] = numbers[np.searchsorted(observed.places, place)], 0.0
                continue
            at = int(np.searchsorted(rest.places, place))
            own, weight = means[:, at], shares[:, rows]
            mean[rows, i] = (weight * own).sum(axis=0)
            spread = variances[:, at] + (own - mean[rows, i]) ** 2
            variance[rows, i] = (weight * spread).sum(axis=0)
    return mean, variance


def _cut(mixture: GaussianMixture, means: Floats, rest: Rest) -> tuple[Floats, Floats]:
    """Return the expectations (n_components, u, n_rows) and variances of missing numbers, truncated to their ranges."""
    variances = np.diagonal(rest.covariance, axis1=1, axis2=2)[:, :, np.newaxis]
    box = mixture.box(means, rest) if mixture.ranges else None
    return (means, variances) if box is None else box.moments(means, variances)


def component_conditional_means(mixture: GaussianMixture, x: Array, v: int) -> Floats:
    """Return each component's expectation of a numeric variable, (n_components, n_rows) float64; NaN in rows that have
    it.
    """
    place = int(np.searchsorted(mixture.numeric, v))
    conditional = np.full((mixture.n_components, x.shape[1]), np.nan)
    for rows, means, rest, _, _ in _conditional(mixture, x):
        if rest is not None and place in rest.places:
            conditional[:, rows] = means[:, int(np.searchsorted(rest.places, place))]
    return conditional


def _conditional(
    mixture: GaussianMixture, x: Array
) -> Iterator[tuple[Integers, Floats, Rest | None, Floats, Observed]]:
    """Yield rows with the components' expectations (n_components, u, n_rows) of their missing numbers."""
    for every, numbers, observed, rest in mixture.groups(x) if x.shape[1] else ():
        u = 0 if rest is None else rest.places.size
        step = max(1, MOST_AT_A_TIME // max(1, mixture.n_components * u))
        for at in range(0, every.size, step):
            rows, own = every[at : at + step], numbers[:, at : at + step]
            means = np.empty((mixture.n_components, 0, rows.size))
            if rest is not None:
                means = mixture.expectations(own, observed, rest)
            yield rows, means, rest, own, observed


def draw_missing_cells(mixture: GaussianMixture, x: Array, n: int, seed: int, places: Integers) -> Floats:
    """Draw the missing cells of each row jointly given the others, (n_rows, n, n_variables) float64.

    A draw depends on the seed, its row's place (n_rows,) and its own number. Raises ImpossibleEvidence.
    """
    shares = mixture.shares(x)
    out = np.empty((x.shape[1], n, x.shape[0]))
    out[:] = np.where(_is_known(mixture, x), x, np.nan).T[:, np.newaxis]
    for first in range(0, x.shape[1], 1024):
        some = slice(first, min(first + 1024, x.shape[1]))
        _draw(mixture, x[:, some], shares[:, some], seeded_uniforms(seed, places[some], n, x.shape[0] + 1), out[some])
    return out


def _is_known(mixture: GaussianMixture, x: Array) -> Array:
    sizes = mixture.n_values[:, np.newaxis]
    return np.where(sizes > 0, (x >= 0) & (x < sizes), ~np.isnan(x))


def _draw(mixture: GaussianMixture, x: Array, shares: Floats, u: Floats, out: Floats) -> None:
    """Fill OUT out (n_rows, n, n_variables) from uniform numbers u (n_rows, n, n_variables + 1), the first of which
    chooses the component.
    """
    chosen = _chosen(shares.T[:, np.newaxis], u[:, :, 0])
    for v in mixture.discrete.tolist():
        codes = _chosen(np.exp(mixture.shares_of(v))[chosen], u[:, :, v + 1])
        out[:, :, v] = np.where(np.isnan(out[:, :, v]), codes, out[:, :, v])
    normal = scipy.special.ndtri(u[:, :, mixture.numeric + 1])
    for rows, means, rest, _, _ in _conditional(mixture, x):
        if rest is None:
            continue
        variables = mixture.numeric[rest.places]
        box = mixture.box(means, rest) if mixture.ranges else None
        for k in np.unique(chosen[rows]).tolist():
            at, draw = np.nonzero(chosen[rows] == k)
            factor = np.linalg.cholesky(rest.covariance[k])
            drawn = means[k][:, at].T + normal[rows[at], draw][:, rest.places] @ factor.T
            drawn = drawn if box is None else box.moved(drawn, k, at)
            out[rows[at][:, np.newaxis], draw[:, np.newaxis], variables] = drawn


def _chosen(p: Floats, u: Floats) -> Integers:
    """Return the positions that uniform numbers u select from distributions p along the last axis."""
    passed = np.cumsum(p, axis=-1)
    index: Integers = (passed < (u * passed[..., -1])[..., np.newaxis]).sum(axis=-1)
    return np.minimum(index, p.shape[-1] - 1)


def seeded_uniforms(seed: int, places: Integers, n: int, width: int) -> Floats:
    """Return numbers in (0, 1), (n_rows, n, width) float64, each a function of the seed, its row's place and its
    position: SplitMix64.
    """
    with np.errstate(over="ignore"):
        rows = random_bits_array(random_bits_array(np.array([seed], np.uint64)) + places.astype(np.uint64) * GOLDEN)
        own = np.arange(1, n * width + 1, dtype=np.uint64) * GOLDEN
        z = random_bits_array(rows[:, np.newaxis] + own)
    return (((z >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53).reshape(places.size, n, width)


def best_component_modes(mixture: GaussianMixture, x: Array, variables: Sequence[int], n_trees: int) -> list[Tree]:
    """Return the components' modes of the given variables given one row, densest first; other variables are summed out.

    Queried numbers are searched in their ranges. The bound treats ranges of other variables as certain. The
    n_trees components with the highest modes are compared by the density of the whole mixture. Raises
    ImpossibleEvidence.
    """
    alone = replace(mixture, ranges={})
    alone.shares(x)
    logs = alone.log_joint(x)[:, 0]
    ((_, means, rest, _, _),) = _conditional(mixture, x)
    values = np.empty((mixture.n_components, len(variables)))
    numeric = [i for i, v in enumerate(variables) if not mixture.n_values[v]]
    for i, v in enumerate(variables):
        if mixture.n_values[v]:
            own = mixture.shares_of(v)
            values[:, i] = own.argmax(axis=1)
            logs = logs + own.max(axis=1)
    if numeric:
        assert rest is not None
        places = np.searchsorted(rest.places, np.searchsorted(mixture.numeric, [variables[i] for i in numeric]))
        own = rest.covariance[:, places[:, np.newaxis], places]
        ends = np.array([mixture.ranges.get(variables[i], (-np.inf, np.inf)) for i in numeric])
        values[:, numeric], squares = _modes(means[:, places, 0], own, ends)
        _, log_size = np.linalg.slogdet(own)
        logs = logs - 0.5 * (log_size + len(numeric) * LOG_2_PI + squares)
    tried = np.argsort(-logs, kind="stable")[:n_trees]
    rows = np.repeat(np.asarray(x, np.float64), tried.size, axis=1)
    rows[list(variables)] = values[tried].T
    densities = mixture.log_density(rows)
    bound = max(float(log_sum_exp(logs)), float(densities.max()))
    order = np.argsort(-densities, kind="stable").tolist()
    return [Tree(values[tried[place]], float(densities[place]), bound) for place in order]


def _modes(means: Floats, covariance: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Return each component's mode (n_components, m) within ends (m, 2), and its squared distance from the mean.

    References: Stark, Parker (1995), Bounded-variable least squares: an algorithm and applications.
    """
    modes, squares = means.copy(), np.zeros(len(means))
    # An end by itself is a range of no width, which the solver does not take.
    bounds = ends[:, 0], np.maximum(ends[:, 1], np.nextafter(ends[:, 0], np.inf))
    for k in np.flatnonzero(((means < ends[:, 0]) | (means > ends[:, 1])).any(axis=1)).tolist():
        inverse = np.linalg.inv(np.linalg.cholesky(covariance[k]))
        solved = scipy.optimize.lsq_linear(inverse, inverse @ means[k], bounds, "bvls", tol=1e-15)
        modes[k] = np.clip(solved.x, *ends.T)
        squares[k] = ((inverse @ (modes[k] - means[k])) ** 2).sum()
    return modes, squares
