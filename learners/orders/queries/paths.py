"""Probabilities of ancestor relations."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats, Mask
from learners.orders.lattice.forward_backward import OrderSums
from learners.orders.lattice.graphs import DrawnGraphs
from learners.orders.queries.path_kernels import ancestor_shares, ancestors

# 3^d numbers for each source: seconds at 13, minutes at 16.
MOST_EXACT = 13


def path_probabilities(sums: OrderSums) -> Floats:
    """(d, d) float64: [i, j] the probability of a directed path from i to j, exactly; of the lattice of all orders.

    References: Parviainen, Koivisto (2011), section 4.
    """
    scores, lattice, d = sums.scores, sums.lattice, sums.scores.d
    ternary = np.zeros(1 << d, np.int64)
    for node in range(d):
        ternary[1 << node : 2 << node] = ternary[: 1 << node] + 3**node
    shares, p = sums.step_shares(), np.empty(3**d)
    full = (1 << d) - 1
    sets = np.arange(1 << d)
    found = np.zeros((d, d))
    for source in range(d):
        p[:] = 0.0
        ancestor_shares(source, d, lattice, shares, *sums.alpha, scores.starts, scores.byte_places, ternary, p)
        of_descendants = p[ternary[full] + ternary]
        for node in range(d):
            if node != source:
                found[source, node] = of_descendants[(sets >> node) & 1 == 1].sum()
    return np.clip(found, 0.0, 1.0)


def ancestor_relations(graphs: DrawnGraphs) -> Mask:
    """(n, d, d) bool: [g, i, j] whether graph g has a directed path from i to j."""
    n, d = graphs.parents.shape
    found = np.empty((n, d, d), np.uint8)
    ancestors(graphs.orders, graphs.parents, found)
    return found.astype(bool)
