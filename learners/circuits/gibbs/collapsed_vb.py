"""Collapsed variational inference: a factorised posterior of weights and leaf parameters, each row's tree summed out exactly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy

from learners.arrays import Floats
from learners.circuits.gibbs.leaf_kernels import FIRST, SECOND, SQUARES, TOTAL, N
from learners.circuits.gibbs.priors import Prior, family_of
from learners.circuits.gibbs.sampler import RowBlocks, Tallies
from learners.circuits.gibbs.whole import Parts, parts_with, tree_of, work_of
from learners.circuits.gibbs.whole_kernels import expect
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON

LOG_2_PI = float(np.log(2 * np.pi))


class Expected(NamedTuple):
    """Expected rows at each sum and leaf, as `Tallies` with fractions: with the prior, the variational posterior.

    Attributes
    ----------
    counts : (n_sums, n_children) float64
    leaf : (n_leaves, 8) float64
    cells : (n_cells,) float64
    """

    counts: Floats
    leaf: Floats
    cells: Floats


class Iterated(NamedTuple):
    """One iteration.

    Attributes
    ----------
    posterior : Expected
        After it.
    bound : float
        Lower bound of the log evidence by the posterior before it, in nats.
    """

    posterior: Expected
    bound: float


def started(tallies: Tallies) -> Expected:
    """The posterior of rows that are each at one place, to begin with."""
    return Expected(tallies.counts.astype(np.float64), np.array(tallies.leaf), tallies.cells.astype(np.float64))


def iterated(prior: Prior, rows: RowBlocks, posterior: Expected) -> Iterated:
    """Expected counts of all rows by the posterior's expected logarithms, and the bound of the posterior that these come from.

    The log likelihood of a row is convex in the logarithms of weights and in the natural parameters of leaves, so by Jensen's
    inequality its expectation is at least the log likelihood at their expectations. The bound is that, less the divergence of the
    posterior from the prior. No iteration makes it smaller.

    Parameters
    ----------
    prior : Prior
    rows : RowBlocks
    posterior : Expected

    References
    ----------
    Zhao, Adel, Gordon, Amos (2016), "Collapsed variational inference for sum-product networks", section 3; leaf parameters in
    the same way are ours.
    """
    shape = prior.shape
    parts, tree, work = expected_parts(prior, posterior), tree_of(shape), work_of(shape)
    following = Expected(
        np.zeros((shape.n_sums, shape.n_children)), np.array(prior.leaf), np.zeros(max(1, prior.n_cells))
    )
    flow, total = np.empty_like(work.values), 0.0
    for _, x in rows.blocks():
        total += expect(tree, parts, work, x, flow, following.counts, following.leaf, following.cells)
    return Iterated(following, total - divergence(prior, posterior))


class _Gaussian(NamedTuple):
    """Normal-Gamma: mean, rows of the mean, shape, rate."""

    mean: Floats
    rho: Floats
    shape: Floats
    rate: Floats


def _gaussian(prior: Prior, leaf: Floats) -> _Gaussian:
    n, total, squares, mean, b = leaf[family_of(leaf) == GAUSSIAN][:, [N, TOTAL, SQUARES, FIRST, SECOND]].T
    rho = prior.strengths.rho + n
    rate = b + 0.5 * np.maximum(squares - total**2 / rho, 0.0)
    return _Gaussian(mean + total / rho, rho, prior.strengths.gaussian + n / 2, rate)


def _gamma(prior: Prior, leaf: Floats, family: int) -> tuple[Floats, Floats]:
    """Shape and rate of the rates of exponential or Poisson leaves."""
    n, total, beta = leaf[family_of(leaf) == family][:, [N, TOTAL, FIRST]].T
    if family == EXPONENTIAL:
        return prior.strengths.exponential + n, beta + total
    return prior.strengths.poisson + total, beta + n


def expected_parts(prior: Prior, posterior: Expected) -> Parts:
    """The circuit of the expected logarithms, which is less than one in all."""
    family, natural = family_of(posterior.leaf), np.zeros((len(posterior.leaf), 4))
    own = _gaussian(prior, posterior.leaf)
    is_gaussian = family == GAUSSIAN
    log_precision = scipy.special.digamma(own.shape) - np.log(own.rate)
    natural[is_gaussian, 0] = 0.5 * (log_precision - LOG_2_PI - 1 / own.rho)
    natural[is_gaussian, 1] = 0.5 * own.shape / own.rate
    natural[is_gaussian, 2] = own.mean
    for code in (EXPONENTIAL, POISSON):
        shape, rate = _gamma(prior, posterior.leaf, code)
        natural[family == code, 0], natural[family == code, 1] = (
            scipy.special.digamma(shape) - np.log(rate),
            shape / rate,
        )
    pseudo = posterior.cells + prior.strengths.categorical
    log_cells = scipy.special.digamma(pseudo) - scipy.special.digamma(_per_leaf(prior, pseudo))
    alpha = posterior.counts + prior.strengths.alpha
    return parts_with(
        prior,
        natural,
        log_cells,
        scipy.special.digamma(alpha) - scipy.special.digamma(alpha.sum(axis=1, keepdims=True)),
    )


def _per_leaf(prior: Prior, cells: Floats) -> Floats:
    """(n_cells,) float64: the sum over the cells of each cell's leaf."""
    leaf = prior.leaf[family_of(prior.leaf) == CATEGORICAL]
    sums = np.ones(cells.size)
    if leaf.size:
        sizes = leaf[:, SECOND].astype(np.int64)
        order = np.argsort(leaf[:, FIRST], kind="stable")
        starts = leaf[order, FIRST].astype(np.int64)
        sums[:] = np.repeat(np.add.reduceat(cells, starts), sizes[order])
    return sums


def divergence(prior: Prior, posterior: Expected) -> float:
    """Kullback-Leibler divergence of the posterior of all parameters from their prior, in nats."""
    alpha = prior.strengths.alpha
    total = _of_dirichlet(posterior.counts + alpha, np.full_like(posterior.counts, alpha))
    own, before = _gaussian(prior, posterior.leaf), _gaussian(prior, prior.leaf)
    total += _of_gamma(own.shape, own.rate, before.shape, before.rate)
    precision = own.shape / own.rate
    ratio = before.rho / own.rho
    total += float(0.5 * np.sum(before.rho * precision * (own.mean - before.mean) ** 2 + ratio - np.log(ratio) - 1))
    for code in (EXPONENTIAL, POISSON):
        total += _of_gamma(*_gamma(prior, posterior.leaf, code), *_gamma(prior, prior.leaf, code))
    return total + _of_cells(prior, posterior.cells)


def _of_dirichlet(q: Floats, p: Floats) -> float:
    """Summed over the rows of (n, k)."""
    logs = scipy.special.digamma(q) - scipy.special.digamma(q.sum(axis=1, keepdims=True))
    return float(
        np.sum(scipy.special.gammaln(q.sum(axis=1)) - scipy.special.gammaln(p.sum(axis=1)))
        - np.sum(scipy.special.gammaln(q) - scipy.special.gammaln(p))
        + np.sum((q - p) * logs)
    )


def _of_cells(prior: Prior, cells: Floats) -> float:
    """Of the Dirichlets of categorical leaves."""
    leaf, pseudo = prior.leaf[family_of(prior.leaf) == CATEGORICAL], prior.strengths.categorical
    total = 0.0
    for size in np.unique(leaf[:, SECOND]).astype(np.int64).tolist():
        starts = leaf[leaf[:, SECOND] == size, FIRST].astype(np.int64)
        own = cells[starts[:, np.newaxis] + np.arange(size)]
        total += _of_dirichlet(own + pseudo, np.full(own.shape, pseudo))
    return total


def _of_gamma(shape: Floats, rate: Floats, prior_shape: Floats, prior_rate: Floats) -> float:
    """Summed."""
    return float(
        np.sum(
            (shape - prior_shape) * scipy.special.digamma(shape)
            - scipy.special.gammaln(shape)
            + scipy.special.gammaln(prior_shape)
            + prior_shape * (np.log(rate) - np.log(prior_rate))
            + shape * (prior_rate - rate) / rate
        )
    )
