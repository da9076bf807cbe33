"""Weights and leaf parameters of a Bayesian circuit, drawn given which rows are where."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.bayesian.sampler.leaf_kernels import FIRST, SECOND, SQUARES, TOTAL, N
from learners.circuits.bayesian.sampler.priors import Prior, Strengths, family_of
from learners.circuits.bayesian.sampler.sampler import Tallies
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON
from learners.kernels.arrays import Array, Floats

# A gamma variate of a small shape may be below all doubles; no weight is zero and no spread infinite.
LEAST = 1e-300


class Parameters(NamedTuple):
    """Of one circuit."""

    weight: Floats  # (n_sums, n_children) float64: of each child of a sum; they add up to one
    # (n_leaves,) float64: Gaussian mean, less its column's centre; rate of exponential and Poisson leaves; else 0.
    first: Floats
    second: Floats  # (n_leaves,) float64: Gaussian standard deviation; else 0
    cells: Floats  # (n_cells,) float64: probabilities of the values of categorical leaves


def parameters_given(random: np.random.Generator | None, prior: Prior, tallies: Tallies) -> Parameters:
    """Weights and leaf parameters from their posterior given the rows at each sum and leaf; without `random` its means.

    References: Yokoi, Sato (2024), algorithm 2 and table 8.
    """
    weight = _shares(random, tallies.counts + prior.strengths.alpha)
    leaf, own = tallies.leaf, prior.strengths
    family = family_of(leaf)
    first, second = leaf_parameters(random, own, leaf)
    cells = np.zeros(tallies.cells.size)
    for size in np.unique(leaf[family == CATEGORICAL, SECOND]).astype(np.int64):
        starts = leaf[(family == CATEGORICAL) & (leaf[:, SECOND] == size), FIRST].astype(np.int64)
        places = starts[:, np.newaxis] + np.arange(size)
        cells[places] = _shares(random, tallies.cells[places] + own.categorical)
    return Parameters(weight, first, second, cells)


def leaf_parameters(random: np.random.Generator | None, own: Strengths, leaf: Floats) -> tuple[Floats, Floats]:
    """First and second parameters (n_leaves,) of numeric leaves (n_leaves, 8), drawn from their posterior; without `random` means.

    The spread of a Gaussian leaf is then that of the mean precision, with what is uncertain about its mean; a rate is the mean rate.
    """
    family = family_of(leaf)
    first, second = np.zeros(len(leaf)), np.zeros(len(leaf))
    gaussian = family == GAUSSIAN
    n, total, squares, mean, b = leaf[gaussian][:, [N, TOTAL, SQUARES, FIRST, SECOND]].T
    rho = own.rho + n
    rate = b + 0.5 * np.maximum(squares - total**2 / rho, 0.0)
    first[gaussian] = mean + total / rho
    if random is None:
        second[gaussian] = np.sqrt(rate / (own.gaussian + n / 2) * (1.0 + 1.0 / rho))
    else:
        second[gaussian] = np.sqrt(rate / gamma(random, own.gaussian + n / 2))
        first[gaussian] += second[gaussian] * random.standard_normal(n.size) / np.sqrt(rho)
    for code, shape in ((EXPONENTIAL, own.exponential), (POISSON, own.poisson)):
        chosen = family == code
        n, total, beta = leaf[chosen][:, [N, TOTAL, FIRST]].T
        of_shape, of_rate = (n, total) if code == EXPONENTIAL else (total, n)
        first[chosen] = gamma(random, shape + of_shape) / (beta + of_rate)
    return first, second


def gamma(random: np.random.Generator | None, shape: Array) -> Floats:
    """Gamma variates, or without `random` their means."""
    return np.asarray(shape if random is None else np.maximum(random.standard_gamma(shape), LEAST))


def _shares(random: np.random.Generator | None, pseudo_counts: Array) -> Floats:
    """A Dirichlet variate for each row, or its mean."""
    weights = gamma(random, pseudo_counts)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
