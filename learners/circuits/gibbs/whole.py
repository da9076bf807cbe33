"""The complete tree with weights and leaf parameters of its own, as kernels that walk all of it want it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.arrays import Floats, Integers, frozen
from learners.circuits.gibbs.layout import halves_of, sizes_of
from learners.circuits.gibbs.leaf_kernels import CENTRE, FIRST
from learners.circuits.gibbs.parameters import LEAST, Parameters
from learners.circuits.gibbs.priors import Prior, family_of
from learners.circuits.gibbs.shape import Shape
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON

HALF_LOG_2_PI = 0.5 * np.log(2 * np.pi)
# Numbers that a block of rows takes at the leaves: it should stay in the cache.
BLOCK_NUMBERS = 1 << 18


class Tree(NamedTuple):
    """Where children are.

    Attributes
    ----------
    left, right : (n_sums, n_children) int64
        The sums at the halves of each child; of a sum over leaves the leaf, and -1.
    column : (n_leaf_sums,) int64
    """

    left: Integers
    right: Integers
    column: Integers


class Parts(NamedTuple):
    """Of one circuit; the leaves' log densities as `whole_kernels` reads them.

    Attributes
    ----------
    leaf : (n_leaves, 8) float64
    natural : (n_leaves, 4) float64
    log_cells : (n_cells,) float64
    weight, log_weight : (n_sums, n_children) float64
    """

    leaf: Floats
    natural: Floats
    log_cells: Floats
    weight: Floats
    log_weight: Floats


class Work(NamedTuple):
    """Scratch for a block of rows."""

    logs: Floats
    peak: Floats
    shares: Floats
    values: Floats
    scale: Floats
    in_logs: Floats


def tree_of(shape: Shape) -> Tree:
    """The tree of a shape."""
    size = sizes_of(shape.n_columns, shape.n_children)
    left, right = np.full((2, shape.n_sums, shape.n_children), -1, np.int64)
    inner = np.flatnonzero(size > 1)
    if inner.size:
        left[inner], right[inner] = halves_of(shape, inner, size[inner])
    left[size == 1] = np.arange(shape.n_leaf_sums * shape.n_children).reshape(-1, shape.n_children)
    return Tree(frozen(left), frozen(right), shape.column)


def work_of(shape: Shape) -> Work:
    """Scratch for as many rows as stay in the cache."""
    n_leaves = shape.n_leaf_sums * shape.n_children
    block = int(np.clip(BLOCK_NUMBERS // n_leaves, 1, 64))
    return Work(
        np.empty((n_leaves, block)),
        np.empty((shape.n_columns, block)),
        np.empty((n_leaves, block)),
        np.empty((shape.n_sums, block)),
        np.empty(block),
        np.empty(shape.n_sums),
    )


def parts_of(prior: Prior, parameters: Parameters) -> Parts:
    """Weights and leaves of a circuit with these parameters."""
    family, natural = family_of(prior.leaf), np.zeros((len(prior.leaf), 4))
    first, second = parameters.first, parameters.second
    gaussian = family == GAUSSIAN
    natural[gaussian, 0] = -np.log(second[gaussian]) - HALF_LOG_2_PI
    natural[gaussian, 1] = 0.5 / second[gaussian] ** 2
    natural[gaussian, 2] = first[gaussian]
    rate = (family == EXPONENTIAL) | (family == POISSON)
    natural[rate, 0], natural[rate, 1] = np.log(first[rate]), first[rate]
    log_cells = np.log(np.maximum(parameters.cells, LEAST))
    return _parts(prior, natural, log_cells, np.log(parameters.weight))


def _parts(prior: Prior, natural: Floats, log_cells: Floats, log_weight: Floats) -> Parts:
    categorical = family_of(prior.leaf) == CATEGORICAL
    natural[categorical, 0] = prior.leaf[categorical, FIRST]
    natural[:, 3] = prior.leaf[:, CENTRE]
    return Parts(prior.leaf, natural, log_cells, np.exp(log_weight), log_weight)


def parts_with(prior: Prior, natural: Floats, log_cells: Floats, log_weight: Floats) -> Parts:
    """Weights and leaves whose logarithms are given; they need not add up to one."""
    return _parts(prior, natural, log_cells, log_weight)
