"""Chow-Liu trees as circuits: maximum spanning trees by mutual information."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks, log_normalised_weights
from learners.counts.information import x_log_x
from learners.counts.pairwise import PairwiseCounts
from learners.errors import EmptyStatistic
from learners.kernels.arrays import Floats, Integers

# As in classifiers: two values within this many nats count as equal, and the column order decides.
TIE_NATS = 1e-12
CELLS_AT_A_TIME = 1 << 22


class PairTables:
    """Tables of all pairs of variables, without classes and missing values.

    The codes of a variable are those of its attribute without the code for missing values; a row with a missing
    value is not counted for the pairs of that attribute. The class, if there is one, is the last variable. Raises
    EmptyStatistic if `pairs` has counted no rows.
    """

    def __init__(self, pairs: PairwiseCounts) -> None:
        if not pairs.n_rows:
            raise EmptyStatistic("No rows were counted, so no circuit can be built.")
        self.pairs = pairs
        self.with_class = pairs.schema.target is not None
        self.missing = np.array([a.first_code for a in pairs.schema.attributes], np.int64)
        self.n_values = pairs.sizes - self.missing
        if self.with_class:
            self.n_values = np.append(self.n_values, pairs.schema.n_classes)

    @property
    def n_variables(self) -> int:
        """Number of attributes, plus the class if it is a variable."""
        return self.n_values.size

    def margin(self, v: int) -> Integers:
        """Return the rows with each value, (n_values[v],) int64."""
        if v == self.pairs.sizes.size:
            return self.pairs.class_counts
        return self.pairs.margins[v].sum(axis=1)[self.missing[v] :]

    def table(self, u: int, v: int) -> Integers:
        """Return the rows with each pair of values, (n_values[u], n_values[v]) int64; u and v differ."""
        n_attributes = self.pairs.sizes.size
        if n_attributes in (u, v):
            with_class: Integers = self.pairs.margins[min(u, v)][self.missing[min(u, v)] :]
            return with_class if v == n_attributes else with_class.T
        return self.pairs.table(u, v).sum(axis=2)[self.missing[u] :, self.missing[v] :]

    def mutual_information(self) -> Floats:
        """Mutual information in nats, (n_variables, n_variables) float64, symmetric, zero on the diagonal, never
        negative.
        """
        sizes, n_classes = self.pairs.sizes, self.pairs.schema.n_classes
        i, j = np.triu_indices(sizes.size, 1)
        # The tables lie one after the other in the order of the pairs.
        ends = np.cumsum(sizes[i] * sizes[j] * n_classes)
        starts = ends - sizes[i] * sizes[j] * n_classes
        information = np.zeros((self.n_variables, self.n_variables))
        # All tables of one shape at once: for hundreds of variables a loop over pairs would take minutes.
        shape = np.stack([sizes[i], sizes[j], self.missing[i], self.missing[j]])
        shapes, group = np.unique(shape, axis=1, return_inverse=True)
        for which, (v_i, v_j, m_i, m_j) in enumerate(shapes.T.tolist()):
            members = np.flatnonzero(group == which)
            at_a_time = max(1, CELLS_AT_A_TIME // (v_i * v_j * n_classes))
            for part in np.split(members, range(at_a_time, members.size, at_a_time)):
                cells = starts[part][:, np.newaxis] + np.arange(v_i * v_j * n_classes)
                tables = self.pairs.counts[cells].reshape(-1, v_i, v_j, n_classes).sum(axis=3)[:, m_i:, m_j:]
                information[i[part], j[part]] = _information(tables)
        if self.with_class:
            for v in range(sizes.size):
                information[v, -1] = _information(self.table(v, sizes.size)[np.newaxis])[0]
        return information + information.T


def _information(tables: Integers) -> Floats:
    """Return the mutual information in each of the tables (m, v_i, v_j), (m,) float64."""
    n = tables.sum(axis=(1, 2))
    value = x_log_x(tables).sum(axis=(1, 2)) + x_log_x(n)
    value -= x_log_x(tables.sum(axis=1)).sum(axis=1) + x_log_x(tables.sum(axis=2)).sum(axis=1)
    return np.maximum(value / np.maximum(n, 1), 0.0)


class Tree(NamedTuple):
    """A rooted tree over variables."""

    order: Integers  # (n,) int64: children before parents, the root last
    parent: Integers  # (n,) int64: of each variable; -1 for the root


def maximum_spanning_tree(weights: Floats) -> Tree:
    """Return the spanning tree of maximum total weight (n, n), rooted at its centre so that it is shallow.

    Ties, to 1e-12, are broken by the order of the variables.

    References: Chow, Liu (1968), section III; the algorithm is Prim's.
    """
    n = weights.shape[0]
    ranks = np.round(weights / TIE_NATS)
    neighbours: list[list[int]] = [[] for _ in range(n)]
    best, nearest = ranks[0].copy(), np.zeros(n, np.int64)
    best[0] = -np.inf
    outside = np.ones(n, np.bool_)
    outside[0] = False
    for _ in range(n - 1):
        v = int(np.argmax(best))
        u = int(nearest[v])
        neighbours[u].append(v)
        neighbours[v].append(u)
        outside[v], best[v] = False, -np.inf
        is_nearer = outside & (ranks[v] > best)
        best[is_nearer] = ranks[v][is_nearer]
        nearest[is_nearer] = v
    order, parent = _walk(neighbours, _centre(neighbours))
    return Tree(np.array(order[::-1], np.int64), parent)


def _walk(neighbours: list[list[int]], start: int) -> tuple[list[int], Integers]:
    """Traverse breadth first; returns the visiting order, and the predecessor of each variable."""
    parent = np.full(len(neighbours), -1, np.int64)
    order = [start]
    for v in order:
        for u in neighbours[v]:
            if u != parent[v]:
                parent[u] = v
                order.append(u)
    return order, parent


def _centre(neighbours: list[list[int]]) -> int:
    """Return the middle of a longest path."""
    one_end = _walk(neighbours, 0)[0][-1]
    order, parent = _walk(neighbours, one_end)
    path = [order[-1]]
    while parent[path[-1]] >= 0:
        path.append(int(parent[path[-1]]))
    return path[len(path) // 2]


def chow_liu(pairs: PairwiseCounts) -> Circuit:
    """Learn the tree-shaped network closest to the data, as a circuit with one sum per value of each inner variable.

    Each context is smoothed by one row distributed like the variable's marginal, which is smoothed by one uniform
    row. Raises EmptyStatistic if `pairs` has counted no rows.

    It has Σ v_i v_parent(i) edges, up to a constant.
    References: Chow, Liu (1968).
    """
    tables = PairTables(pairs)
    tree = maximum_spanning_tree(tables.mutual_information())
    blocks = Blocks(tables.n_values)
    messages: list[list[Integers]] = [[] for _ in range(tables.n_variables)]
    for v in tree.order.tolist():
        indicators = blocks.indicators(v)
        products = blocks.products(np.stack([indicators, *messages[v]], axis=1))
        parent = int(tree.parent[v])
        own = smoothed_marginal(tables, v)
        p = own[np.newaxis] if parent < 0 else smoothed_conditional_table(tables.table(parent, v), own)
        sums = blocks.sums(np.broadcast_to(products, p.shape), log_normalised_weights(p))
        if parent >= 0:
            messages[parent].append(sums)
    return blocks.circuit()


def smoothed_marginal(tables: PairTables, v: int) -> Floats:
    """Return the smoothed distribution of a variable, (n_values[v],) float64."""
    margin = tables.margin(v).astype(np.float64)
    p = margin + 1.0 / margin.size
    return p / p.sum()


def smoothed_conditional_table(table: Integers, own: Floats) -> Floats:
    """Return the smoothed distribution of a variable for each value of another, (n_parent_values, n_values) float64."""
    smoothed: Floats = (table + own) / (table.sum(axis=1, keepdims=True) + 1.0)
    return smoothed
