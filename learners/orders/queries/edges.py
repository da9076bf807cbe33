"""Probabilities of edges and of ancestor relations."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats, Mask
from learners.kernels.scaled_arithmetic import NOTHING, add_supersets
from learners.orders.lattice.forward_backward import OrderSums, Scaled, scaled_families
from learners.orders.lattice.graphs import DrawnGraphs, Graph
from learners.orders.lattice.lattice_kernels import add_weights
from learners.orders.queries.path_kernels import ancestor_shares, ancestors
from learners.orders.scores.family_kernels import family_posterior, memberships

# 3^d numbers for each source: seconds at 13, minutes at 16.
MOST_EXACT = 13


def allowing_orders(sums: OrderSums) -> Scaled:
    """(total,): for each family, the sum over the orders in which its parents precede its node."""
    total = sums.scores.logs.size
    weights = Scaled(np.zeros(total), np.full(total, NOTHING, np.int32))
    add_weights(sums.lattice, *sums.before, *sums.after, *weights)
    for node in range(sums.scores.d):
        add_supersets(*weights.of(sums.scores.part(node)))
    return weights


def family_probabilities(sums: OrderSums) -> Floats:
    """(total,) float64: the probability of each family, laid out as the scores are."""
    numbers, _ = scaled_families(sums.scores)
    weights = allowing_orders(sums)
    q = numbers.mantissa
    z = (float(sums.after.mantissa[0]), int(sums.after.exponent[0]))
    family_posterior(*numbers, *weights, z, q)
    return q


def edge_probabilities(sums: OrderSums) -> Floats:
    """(d, d) float64: [i, j] the probability of the edge from i to j.

    References: Koivisto (2006), Advances in exact Bayesian structure discovery in Bayesian networks, section 3.
    """
    scores = sums.scores
    q = family_probabilities(sums)
    found = np.zeros((scores.d, scores.d))
    for node, candidates in enumerate(scores.candidates):
        shares = np.zeros(candidates.size)
        memberships(q[scores.part(node)], shares)
        found[candidates, node] = shares
    return np.clip(found, 0.0, 1.0)


def expected_distance(probabilities: Floats, parents: Graph) -> float:
    """The structural Hamming distance of a graph that is expected of graphs with these edges.

    It counts the pairs of nodes that two graphs connect otherwise: with an edge or without, or with one turned round. So its
    expectation follows from the probabilities of edges, however these depend on each other.

    probabilities (d, d) float64.
    References: Tsamardinos, Brown, Aliferis (2006), The max-min hill-climbing Bayesian network structure learning
    algorithm, section 5.1.
    """
    alike = 1.0 - probabilities - probabilities.T  # no edge
    for node, own in enumerate(parents):
        for parent in own:
            alike[parent, node] = alike[node, parent] = probabilities[parent, node]
    return float(np.sum(np.triu(1.0 - alike, 1)))


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
