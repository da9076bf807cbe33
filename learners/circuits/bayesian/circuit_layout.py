"""Draw weights and leaf parameters given the assignment of rows, and locate them in a circuit's arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learners.circuits.bayesian.collapsed_sampler import Tallies
from learners.circuits.bayesian.leaf_kernels import CENTRE, FIRST, SECOND, SQUARES, TOTAL, N
from learners.circuits.bayesian.priors import Prior, Shape, Strengths, complete_tree_sum_counts, leaf_families
from learners.circuits.circuit import Circuit, CircuitArrays
from learners.circuits.kernels import CATEGORICAL, EXPONENTIAL, GAUSSIAN, POISSON, PRODUCT, SUM
from learners.kernels.arrays import Array, Floats, Integers, concatenate_ranges

# A gamma variate of a small shape may be below all doubles; no weight is zero and no spread infinite.
LEAST = 1e-300


class Parameters(NamedTuple):
    """Parameters of one circuit."""

    weight: Floats  # (n_sums, n_children) float64: of each child of a sum; they add up to one
    # (n_leaves,) float64: Gaussian mean, less its column's centre; rate of exponential and Poisson leaves; else 0.
    first: Floats
    second: Floats  # (n_leaves,) float64: Gaussian standard deviation; else 0
    cells: Floats  # (n_cells,) float64: probabilities of the values of categorical leaves


def draw_posterior_parameters(random: np.random.Generator | None, prior: Prior, tallies: Tallies) -> Parameters:
    """Draw weights and leaf parameters from their posterior given the rows at each sum and leaf; without `random`,
    return the means.

    References: Yokoi, Sato (2024), algorithm 2 and table 8.
    """
    weight = _shares(random, tallies.counts + prior.strengths.alpha)
    leaf, own = tallies.leaf, prior.strengths
    family = leaf_families(leaf)
    first, second = draw_leaf_parameters(random, own, leaf)
    cells = np.zeros(tallies.cells.size)
    for size in np.unique(leaf[family == CATEGORICAL, SECOND]).astype(np.int64):
        starts = leaf[(family == CATEGORICAL) & (leaf[:, SECOND] == size), FIRST].astype(np.int64)
        places = starts[:, np.newaxis] + np.arange(size)
        cells[places] = _shares(random, tallies.cells[places] + own.categorical)
    return Parameters(weight, first, second, cells)


def draw_leaf_parameters(random: np.random.Generator | None, own: Strengths, leaf: Floats) -> tuple[Floats, Floats]:
    """Draw the parameters (n_leaves,) of numeric leaves (n_leaves, 8) from their posterior; without `random`, return
    the means.

    The mean spread of a Gaussian leaf is that of the mean precision plus the uncertainty of its mean; the mean
    rate is used for rates.
    """
    family = leaf_families(leaf)
    first, second = np.zeros(len(leaf)), np.zeros(len(leaf))
    gaussian = family == GAUSSIAN
    n, total, squares, mean, b = leaf[gaussian][:, [N, TOTAL, SQUARES, FIRST, SECOND]].T
    rho = own.rho + n
    rate = b + 0.5 * np.maximum(squares - total**2 / rho, 0.0)
    first[gaussian] = mean + total / rho
    if random is None:
        second[gaussian] = np.sqrt(rate / (own.gaussian + n / 2) * (1.0 + 1.0 / rho))
    else:
        second[gaussian] = np.sqrt(rate / draw_gamma_or_mean(random, own.gaussian + n / 2))
        first[gaussian] += second[gaussian] * random.standard_normal(n.size) / np.sqrt(rho)
    for code, shape in ((EXPONENTIAL, own.exponential), (POISSON, own.poisson)):
        chosen = family == code
        n, total, beta = leaf[chosen][:, [N, TOTAL, FIRST]].T
        of_shape, of_rate = (n, total) if code == EXPONENTIAL else (total, n)
        first[chosen] = draw_gamma_or_mean(random, shape + of_shape) / (beta + of_rate)
    return first, second


def draw_gamma_or_mean(random: np.random.Generator | None, shape: Array) -> Floats:
    """Return gamma variates, or their means without `random`."""
    return np.asarray(shape if random is None else np.maximum(random.standard_gamma(shape), LEAST))


def _shares(random: np.random.Generator | None, pseudo_counts: Array) -> Floats:
    """Return a Dirichlet variate for each row, or its mean."""
    weights = draw_gamma_or_mean(random, pseudo_counts)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Layout:
    """Mapping of a Bayesian circuit's parameters to those of a circuit."""

    template: CircuitArrays  # with zeros for weights and leaf parameters
    edge: Integers  # (n_sums, n_children) int64: where the weight of each child of a sum is
    parameter: Integers  # (n_leaves,) int64: where the parameters of each leaf start
    cell: Integers  # (n_cells,) int64: where the probability of each value of a categorical leaf is
    centre: Floats  # (n_leaves,) float64: what the means of Gaussian leaves are told less of
    # gaussian, rate (n_leaves,) bool
    gaussian: np.ndarray
    rate: np.ndarray

    @property
    def n_parameters(self) -> int:
        """Number of weights and leaf parameters of one draw."""
        return self.edge.size + int(self.template.leaf_starts[-1])

    def vector(self, parameters: Parameters) -> Floats:
        """Return the weights of the sums' edges followed by the leaf parameters, in circuit order, (n_parameters,)
        float64.
        """
        leaves = np.zeros(int(self.template.leaf_starts[-1]))
        at = self.parameter[self.gaussian]
        leaves[at] = parameters.first[self.gaussian] + self.centre[self.gaussian]
        leaves[at + 1] = parameters.second[self.gaussian]
        leaves[self.parameter[self.rate]] = parameters.first[self.rate]
        leaves[self.cell] = np.log(parameters.cells[: self.cell.size])
        # Edges of sums come in the order of the nodes: the last sum of the sampler first.
        return np.concatenate([parameters.weight[::-1].ravel(), leaves])

    def circuit_of(self, vector: Floats) -> Circuit:
        """Return the circuit of a parameter vector, as returned by `vector`."""
        logs = np.zeros(self.template.children.size)
        logs[self.edge[::-1].ravel()] = np.log(vector[: self.edge.size])
        return Circuit(self.template._replace(log_weight=logs, leaf_parameters=vector[self.edge.size :]))

    def circuit(self, parameters: Parameters) -> Circuit:
        """Return the circuit of one draw."""
        return self.circuit_of(self.vector(parameters))


def build_circuit_layout(prior: Prior) -> Layout:
    """Build the layout of a prior's circuit, whose variables are the prior's columns.

    Each sum follows its children, products or leaves, and precedes its parent: the last sum of the sampler's
    order comes first.
    """
    shape, n_children = prior.shape, prior.shape.n_children
    n_sums, width = shape.n_sums, n_children + 1
    size = columns_per_sum(shape.n_columns, n_children)
    family, leaf_column = leaf_families(prior.leaf), prior.leaf_column
    is_leaf_sum = size == 1
    first_node = (n_sums - 1 - np.arange(n_sums)) * width
    leaf_node = (first_node[is_leaf_sum][:, np.newaxis] + np.arange(n_children)).ravel()
    inner = np.flatnonzero(~is_leaf_sum)
    product = first_node[inner][:, np.newaxis] + np.arange(n_children)
    kind = np.full(n_sums * width, SUM, np.int8)
    variable = np.full(kind.size, -1, np.int64)
    kind[leaf_node], variable[leaf_node], kind[product.ravel()] = family, leaf_column, PRODUCT
    n_below = np.select([kind == SUM, kind == PRODUCT], [n_children, 2], 0)
    child_starts = np.concatenate([[0], np.cumsum(n_below)])
    children = np.empty(child_starts[-1], np.int64)
    edge = child_starts[first_node + n_children][:, np.newaxis] + np.arange(n_children)
    children[edge] = first_node[:, np.newaxis] + np.arange(n_children)
    left, right = left_and_right_child_sums(shape, inner, size[inner])
    at = child_starts[product]
    children[at], children[at + 1] = (first_node[half] + n_children for half in (left, right))
    n_values = np.array([column.n_values for column in prior.columns], np.int64)
    n_parameters = np.zeros(kind.size, np.int64)
    n_parameters[leaf_node] = np.select([family == CATEGORICAL, family == GAUSSIAN], [n_values[leaf_column], 2], 1)
    leaf_starts = np.concatenate([[0], np.cumsum(n_parameters)])
    parameter = leaf_starts[leaf_node]
    categorical = np.flatnonzero(family == CATEGORICAL)
    sizes = prior.leaf[categorical, SECOND].astype(np.int64)
    cell = np.empty(int(sizes.sum()), np.int64)
    cell[concatenate_ranges(prior.leaf[categorical, FIRST].astype(np.int64), sizes)] = concatenate_ranges(
        parameter[categorical], sizes
    )
    nothing = np.empty(0)
    template = CircuitArrays(kind, child_starts, children, nothing, variable, leaf_starts, nothing, n_values)
    gaussian = family == GAUSSIAN
    return Layout(template, edge, parameter, cell, prior.leaf[:, CENTRE], gaussian, ~gaussian & (family != CATEGORICAL))


def columns_per_sum(n_columns: int, n_children: int) -> Integers:
    """Return the number of columns of each sum, (n_sums,) int64."""
    known: dict[int, Integers] = {1: np.ones(1, np.int64)}

    def sizes(m: int) -> Integers:
        if m not in known:
            halves = np.concatenate([sizes(m - m // 2), sizes(m // 2)])
            known[m] = np.concatenate([[m], np.tile(halves, n_children)])
        return known[m]

    return sizes(n_columns)


def left_and_right_child_sums(shape: Shape, sums: Integers, size: Integers) -> tuple[Integers, Integers]:
    """Return the sums at the left and right half of every child, (n, n_children) int64 each."""
    left_sums, right_sums = np.zeros((2, int(size.max(initial=1)) + 1), np.int64)
    for m in np.unique(size).tolist():
        left_sums[m] = complete_tree_sum_counts(m - m // 2, shape.n_children)[0]
        right_sums[m] = complete_tree_sum_counts(m // 2, shape.n_children)[0]
    stride = (left_sums + right_sums)[size]
    left = sums[:, np.newaxis] + 1 + np.arange(shape.n_children) * stride[:, np.newaxis]
    return left, left + left_sums[size][:, np.newaxis]
