"""Chow-Liu trees as circuits."""

from __future__ import annotations

import numpy as np

from learners.circuits.circuit import Circuit
from learners.circuits.structures.circuit_builder import Blocks, log_shares
from learners.circuits.structures.trees import PairTables, maximum_spanning_tree
from learners.counts.pairs.pairwise import PairwiseCounts
from learners.kernels.arrays import Floats, Integers


def chow_liu(pairs: PairwiseCounts) -> Circuit:
    """The tree-shaped network closest to the data, as a circuit with one sum per value of each inner variable.

    One row, spread like the variable's own values, is added to each context; its own values get one uniformly.
    Raises EmptyStatistic if `pairs` has counted no rows.

    Returns
    -------
    Circuit
        Of Σ v_i v_parent(i) edges, up to a constant.

    References
    ----------
    Chow, Liu (1968).
    """
    tables = PairTables(pairs)
    tree = maximum_spanning_tree(tables.mutual_information())
    blocks = Blocks(tables.n_values)
    messages: list[list[Integers]] = [[] for _ in range(tables.n_variables)]
    for v in tree.order.tolist():
        indicators = blocks.indicators(v)
        products = blocks.products(np.stack([indicators, *messages[v]], axis=1))
        parent = int(tree.parent[v])
        own = smoothed_margin(tables, v)
        p = own[np.newaxis] if parent < 0 else conditional(tables.table(parent, v), own)
        sums = blocks.sums(np.broadcast_to(products, p.shape), log_shares(p))
        if parent >= 0:
            messages[parent].append(sums)
    return blocks.circuit()


def smoothed_margin(tables: PairTables, v: int) -> Floats:
    """(n_values[v],) float64: the distribution of a variable."""
    margin = tables.margin(v).astype(np.float64)
    p = margin + 1.0 / margin.size
    return p / p.sum()


def conditional(table: Integers, own: Floats) -> Floats:
    """(n_parent_values, n_values) float64: the distribution of a variable for each value of another."""
    found: Floats = (table + own) / (table.sum(axis=1, keepdims=True) + 1.0)
    return found
