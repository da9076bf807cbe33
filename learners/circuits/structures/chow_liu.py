"""Chow-Liu trees as circuits."""

from __future__ import annotations

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks, log_shares
from learners.circuits.structures.trees import PairTables, Tree, maximum_spanning_tree
from learners.counts.pairs.pairwise import PairwiseCounts
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers


def chow_liu(pairs: PairwiseCounts, *, pseudo_count: float = 1.0, with_class: bool | None = None) -> Circuit:
    """The tree-shaped network closest to the data, as a circuit with one sum per value of each inner variable.

    Parameters
    ----------
    pseudo_count : float
        Rows, spread like the variable's own values, that are added to each context; its own values get them uniformly.
    with_class : bool, optional
        Whether the class is the last variable; by default if the schema has a target.

    Returns
    -------
    Circuit
        Of Σ v_i v_parent(i) edges, up to a constant.

    Raises
    ------
    EmptyStatistic
        If `pairs` has counted no rows.
    InvalidParameter
        If the pseudo-count is negative.

    References
    ----------
    Chow, Liu (1968).
    """
    if not pseudo_count >= 0:
        raise InvalidParameter("pseudo_count", pseudo_count, "use zero or more rows")
    tables = PairTables(pairs, with_class)
    return tree_circuit(tables, maximum_spanning_tree(tables.mutual_information()), pseudo_count)


def tree_circuit(tables: PairTables, tree: Tree, pseudo_count: float) -> Circuit:
    """The circuit of a tree with the given counts."""
    blocks = Blocks(tables.n_values)
    messages: list[list[Integers]] = [[] for _ in range(tables.n_variables)]
    for v in tree.order.tolist():
        indicators = blocks.indicators(v)
        products = blocks.products(np.stack([indicators, *messages[v]], axis=1))
        parent = int(tree.parent[v])
        own = smoothed_margin(tables, v, pseudo_count)
        p = own[np.newaxis] if parent < 0 else conditional(tables.table(parent, v), own, pseudo_count)
        sums = blocks.sums(np.broadcast_to(products, p.shape), log_shares(p))
        if parent >= 0:
            messages[parent].append(sums)
    return blocks.circuit()


def smoothed_margin(tables: PairTables, v: int, pseudo_count: float) -> Floats:
    """(n_values[v],) float64: the distribution of a variable."""
    margin = tables.margin(v)
    p = margin + pseudo_count / margin.size
    return p / p.sum() if p.sum() > 0 else np.full(margin.size, 1.0 / margin.size)


def conditional(table: Integers, own: Floats, pseudo_count: float) -> Floats:
    """(n_parent_values, n_values) float64: the distribution of a variable for each value of another."""
    n = table.sum(axis=1, keepdims=True)
    # A value of the parent that no row has tells nothing of the child.
    return np.where(n + pseudo_count > 0, (table + pseudo_count * own) / np.maximum(n + pseudo_count, 1e-300), own)
