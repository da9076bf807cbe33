"""How far a posterior over structures is from a known network."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats, Mask
from learners.orders.lattice.graph_samples import Graph
from learners.orders.queries.graph_scores import WeightedGraphs, family_log_marginal_likelihood
from learners.orders.scores.bdeu_bge import BDeu, BGe


def adjacency(parents: Graph) -> Mask:
    """Return whether there is an edge from i to j, [i, j], (d, d) bool."""
    edges = np.zeros((len(parents), len(parents)), bool)
    for node, own in enumerate(parents):
        edges[list(own), node] = True
    return edges


def essential_graph(edges: Mask) -> tuple[Mask, Mask]:
    """Return the directed and the undirected edges, (d, d) bool each, of the essential graph of a graph.

    An edge is directed if all graphs that imply the same independences have it in this direction. The undirected ones
    stand in both places.

    References
    ----------
    Meek (1995), Causal inference and causal explanation with background knowledge, section 2.1.
    """
    joined = edges | edges.T
    apart = ~joined & ~np.eye(len(edges), dtype=bool)
    directed = np.zeros_like(edges)
    for child in range(len(edges)):
        own = np.flatnonzero(edges[:, child])
        directed[own[apart[np.ix_(own, own)].any(axis=1)], child] = True  # parents that are not joined collide
    while True:
        loose = joined & ~directed & ~directed.T
        steps = directed.astype(np.int32)
        is_new = loose & ((steps.T @ apart > 0) | (steps @ steps > 0))
        # Two paths a - c -> b over nodes that are not joined.
        for a, b in np.argwhere(loose & ~is_new & (loose.astype(np.int32) @ steps > 1)):
            between = np.flatnonzero(loose[a] & directed[:, b])
            is_new[a, b] = apart[np.ix_(between, between)].any()
        if not is_new.any():
            return directed, loose
        directed |= is_new


def essential_hamming_distance(one: Mask, other: Mask) -> int:
    """Count the pairs of nodes that the essential graphs of two graphs (d, d) join differently."""
    (directed, loose), (directed_of_other, loose_of_other) = essential_graph(one), essential_graph(other)
    differs = (directed != directed_of_other) | (loose != loose_of_other)
    return int(np.triu(differs | differs.T, 1).sum())


def expected_essential_hamming_distance(drawn: WeightedGraphs, edges: Mask) -> tuple[float, float]:
    """Return the mean distance between the essential graphs of drawn graphs and of a graph, and its standard error.

    References
    ----------
    Wang, Wicker, Kwiatkowska (2022), section 6.1: E-SHD.
    """
    distinct, place = np.unique(drawn.graphs.parents, axis=0, return_inverse=True)
    nodes = np.arange(len(edges), dtype=np.uint64)
    each = ((distinct[:, np.newaxis, :] >> nodes[:, np.newaxis]) & np.uint64(1)).astype(bool)
    distances = np.array([essential_hamming_distance(graph, edges) for graph in each], np.float64)
    mean, error = drawn.mean(distances[place.reshape(-1)])
    return float(mean), float(error)


def expected_log_marginal_likelihood(drawn: WeightedGraphs, score: BGe | BDeu) -> tuple[float, float]:
    """Return the mean log marginal likelihood, under drawn graphs, of the rows that a score is of; and its standard error.

    References
    ----------
    Wang, Wicker, Kwiatkowska (2022), section 6.1: MLL, where the rows are held out.
    """
    d = drawn.graphs.parents.shape[1]
    logs = np.empty(drawn.graphs.parents.shape)
    for node in range(d):
        sets, place = np.unique(drawn.graphs.parents[:, node], return_inverse=True)
        members = [tuple(i for i in range(d) if own >> i & 1) for own in sets.tolist()]
        of_sets = np.array([family_log_marginal_likelihood(score, node, own) for own in members])
        logs[:, node] = of_sets[place.reshape(-1)]
    mean, error = drawn.mean(logs.sum(axis=1))
    return float(mean), float(error)


def mean_squared_effect_error(effects: Floats, known: Floats) -> float:
    """Return the mean squared difference of causal effects (d, d) over the pairs of different nodes.

    References
    ----------
    Wang, Wicker, Kwiatkowska (2022), section 6.1: MSE-CE.
    """
    pairs = ~np.eye(len(known), dtype=bool)
    return float(np.mean((effects - known)[pairs] ** 2))


def area_under_roc_curve(is_true: Mask, probabilities: Floats) -> float:
    """Return how often something true (n,) is more probable than something false; NaN if all or nothing is true."""
    n_true = int(is_true.sum())
    n_false = is_true.size - n_true
    if not n_true or not n_false:
        return float("nan")
    _, place, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place.reshape(-1)]  # equal ones share theirs
    return float((ranks[is_true].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))
