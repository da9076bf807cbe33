"""Single graphs: the most probable one, draws, and the number of orders of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from learners.kernels.arrays import Floats, Integers, Mask, Uint8s, Uint64s
from learners.kernels.scaled_arithmetic import scaled_exp, scaled_log
from learners.orders.lattice.draw_kernels import draw_lattice_orders, draw_subsets, subset_partial_sums
from learners.orders.lattice.lattice import OrderSums, Scaled
from learners.orders.lattice.lattice_kernels import Lattice, best_lattice_orders, count_graph_orders_in_lattice
from learners.orders.scores.scores import FamilyScores

Graph = tuple[tuple[int, ...], ...]


def bitset_nodes(set_of_nodes: int) -> tuple[int, ...]:
    """Return the nodes of a set, ascending."""
    return tuple(node for node in range(int(set_of_nodes).bit_length()) if (int(set_of_nodes) >> node) & 1)


def graph_parent_bitsets(graph: Sequence[Iterable[int]]) -> Uint64s:
    """Return the parents of each node as bits, (d,) uint64."""
    return np.array([sum(1 << parent for parent in parents) for parents in graph], np.uint64)


@dataclass(frozen=True)
class BestGraph:
    """A most probable graph."""

    parents: Graph  # of each node
    log_score: float  # sum of the log scores of its families


def best_graph(scores: FamilyScores, lattice: Lattice) -> BestGraph:
    """Return the graph with the largest score among those with an order in the lattice; one must be possible.

    Among equal parent sets of a node, the result has one from which no parent can be dropped without loss.

    References: Silander, Myllymäki (2006), A simple approach for finding the globally optimal Bayesian network
    structure.
    """
    best = scores.logs.copy()
    for node in range(scores.d):
        _max_subsets(best[scores.part(node)])
    n = lattice.sets.size
    value, last = np.empty(n), np.empty(n, np.int64)
    best_lattice_orders(lattice, best, value, last)
    parents: list[tuple[int, ...]] = [()] * scores.d
    at = n - 1
    while at > 0:
        edge = int(last[at])
        node = int(lattice.nodes[edge])
        part = scores.part(node)
        index = _smallest(best[part], int(lattice.places[edge]) - part.start)
        parents[node] = tuple(scores.candidates[node][bit] for bit in bitset_nodes(index))
        at = int(np.searchsorted(lattice.starts, edge, side="right")) - 1
    graph = tuple(tuple(map(int, of_node)) for of_node in parents)
    return BestGraph(graph, scores.log_score(graph))


def _max_subsets(logs: Floats) -> None:
    """Compute the maximum over all subsets of each set, with sets as bits of the index; logs (2^k,) in place."""
    h = 1
    while h < logs.size:
        halves = logs.reshape(-1, 2, h)
        np.maximum(halves[:, 1], halves[:, 0], out=halves[:, 1])
        h *= 2


def _smallest(best: Floats, index: int) -> int:
    """Return a minimal subset with the same maximum over its subsets."""
    for bit in range(index.bit_length()):
        if (index >> bit) & 1 and best[index ^ (1 << bit)] == best[index]:
            index ^= 1 << bit
    return index


@dataclass(frozen=True)
class DrawnGraphs:
    """Graphs drawn from the posterior, each with an order."""

    parents: Uint64s  # (n, d) uint64: the parents of each node as bits
    orders: Uint8s  # (n, d) uint8: the nodes in turn
    log_scores: Floats  # (n,) float64: sums of the log scores of the families

    def adjacency(self) -> Mask:
        """Return whether graph g has the edge from i to j, [g, i, j], (n, d, d) bool."""
        nodes = np.arange(self.parents.shape[1], dtype=np.uint64)
        return ((self.parents[:, np.newaxis, :] >> nodes[:, np.newaxis]) & np.uint64(1)).astype(bool)


def draw_graphs(sums: OrderSums, n: int, seed: int) -> DrawnGraphs:
    """Draw independent graphs from the posterior under the order prior, reproducible by seed.

    `sums.log_z` must be finite.
    """
    scores, d = sums.scores, sums.scores.d
    rng = np.random.default_rng(seed)
    orders, places = np.empty((n, d), np.uint8), np.empty((n, d), np.int64)
    draw_lattice_orders(sums.lattice, *sums.alpha, *sums.after, rng.random((n, d)), orders, places)
    parents, log_scores = draw_parent_sets(scores, places, rng)
    return DrawnGraphs(parents, orders, log_scores)


def draw_parent_sets(scores: FamilyScores, places: Integers, rng: np.random.Generator) -> tuple[Uint64s, Floats]:
    """Draw parent sets within sets of candidates in proportion to their scores; returns them as bits, (n, d) uint64.

    Also returns the log scores (n,) float64 of the resulting graphs; places (n, d) int64 are the indices of each
    node's candidate sets in the scores.
    """
    parents, log_scores = np.zeros(places.shape, np.uint64), np.zeros(len(places))
    for node, candidates in enumerate(scores.candidates):
        index = places[:, node] - scores.starts[node]
        # A parent set within each set of candidates.
        numbers, k, logs = Scaled.empty(1 << candidates.size), candidates.size, scores.of(node)
        scaled_exp(logs, float(logs.max()), *numbers)
        sums, exponents = np.empty((k + 1, logs.size)), np.empty((k + 1, logs.size), np.int32)
        subset_partial_sums(*numbers, sums, exponents)
        draw_subsets(sums, exponents, rng.random((len(places), k)), index)
        log_scores += scores.of(node)[index]
        for bit, other in enumerate(candidates.tolist()):
            parents[:, node] |= ((index >> bit) & 1).astype(np.uint64) << np.uint64(other)
    return parents, log_scores


def log_graph_order_counts(lattice: Lattice, parents: Uint64s) -> Floats:
    """Return the log number of lattice orders of each graph (n, d) uint64, (n,) float64; equal graphs are evaluated
    once.
    """
    distinct, place = np.unique(parents, axis=0, return_inverse=True)
    m, e = np.empty(lattice.sets.size), np.empty(lattice.sets.size, np.int32)
    return np.array([scaled_log(*count_graph_orders_in_lattice(lattice, row, m, e)) for row in distinct])[place.ravel()]
