"""Edge and ancestor probabilities, causal effects, and the posterior given edges outside the model's lattice."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from learners.kernels.arrays import Floats, Integers, Mask
from learners.kernels.scaled_arithmetic import NOTHING, scaled_superset_sums
from learners.orders.lattice.coverage import order_posterior_with_coverage
from learners.orders.lattice.graph_samples import DrawnGraphs, Graph
from learners.orders.lattice.lattice import OrderPosterior, OrderSums, Scaled, scaled_family_scores
from learners.orders.lattice.lattice_kernels import add_lattice_step_weights, scaled_product_ratios
from learners.orders.parameters import OrderParameters
from learners.orders.queries.query_kernels import (
    average_over_subsets,
    descendant_probabilities,
    graph_causal_effects,
    source_causal_effects,
    subset_regression_coefficients,
)
from learners.orders.scores.bdeu_bge import BGe
from learners.orders.scores.known_edges import (
    Edges,
    ImpossibleEdges,
    condition_scores_on_edges,
    find_directed_cycle,
    format_directed_path,
    format_edge,
)
from learners.orders.scores.scores import Edge, FamilyScores, StructurePrior, node_scores_with_prior

# The lattice of a question: known edges leave fewer orders, and somebody waits.
MOST_SETS = 100_000
KEPT = 4


class ConditionalPosteriors:
    """Posteriors given known edges, each with a lattice grown around these edges; the latest are cached.

    parameters: those used for learning. most: maximum number of parents of a node.
    """

    def __init__(self, posterior: OrderPosterior, parameters: OrderParameters, names: Sequence[str], most: int) -> None:
        self.posterior, self.names, self.most = posterior, list(names), most
        self.parameters = replace(parameters, sets=min(parameters.sets, MOST_SETS))
        self.prior = parameters.structure_prior(names)
        self._kept: OrderedDict[Edges, OrderPosterior] = OrderedDict()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[ConditionalPosteriors], tuple[object, ...]]:
        """Pickle without the cached posteriors and the lock."""
        return ConditionalPosteriors, (self.posterior, self.parameters, self.names, self.most)

    @property
    def can_add(self) -> bool:
        """True if parents that are not candidates can be scored: moments are stored, distinct rows are not."""
        return self.posterior.bge is not None

    def check(self, edges: Edges) -> None:
        """Refuse edges that no graph allowed by the prior has. Raises ImpossibleEdges, naming the edges at fault."""
        for edge in sorted(edges.present & self.prior.forbidden):
            raise ImpossibleEdges(f"the prior forbids {format_edge(edge, self.names)}")
        together = edges.present | self.prior.required
        cycle = find_directed_cycle(together)
        if cycle:
            path = format_directed_path(cycle, self.names)
            raise ImpossibleEdges(f"{path} is a cycle, together with the edges that the prior requires")
        for node, name in enumerate(self.names):
            n_parents = sum(child == node for _, child in together)
            if n_parents > self.most:
                raise ImpossibleEdges(f"{name!r} would have {n_parents} parents, and may have {self.most}")

    def given(self, edges: Edges, pause: Callable[[], None] | None = None) -> OrderPosterior:
        """Return the posterior given edges that passed `check` and `check_known_edges`.

        `pause` is called often, and may raise to stop the search.
        """
        with self._lock:
            kept_posterior = self._kept.get(edges)
            if kept_posterior is not None:
                self._kept.move_to_end(edges)
                return kept_posterior
        posterior = self._posterior_given(edges, pause)
        with self._lock:
            self._kept[edges] = posterior
            while len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return posterior

    def _posterior_given(self, edges: Edges, pause: Callable[[], None] | None) -> OrderPosterior:
        own = self.posterior
        scores = own.scores
        if own.bge is not None:
            scores = add_present_edge_candidates(scores, own.bge, self.prior, edges.present, self.most)
        scores = condition_scores_on_edges(scores, edges)
        if own.sets is None:
            return OrderPosterior(scores, None, own.coverage, own.bge, own.standard)
        return order_posterior_with_coverage(
            scores, self.parameters, own.bge, own.standard, None if pause is None else lambda *_: pause()
        )


def add_present_edge_candidates(
    scores: FamilyScores, bge: BGe, prior: StructurePrior, present: frozenset[Edge], most: int
) -> FamilyScores:
    """Add the parents of present edges to the candidates; the tables of other nodes are unchanged."""
    candidates: list[Integers] = list(scores.candidates)
    tables = [scores.of(node) for node in range(scores.d)]
    for node, own in enumerate(scores.candidates):
        wider = np.union1d(own, np.array([parent for parent, child in present if child == node], np.int64))
        if wider.size > own.size:
            candidates[node] = wider
            tables[node] = node_scores_with_prior(bge.family_scores(node, wider, most), node, wider, scores.d, prior)
    return FamilyScores(tuple(candidates), np.concatenate(tables))


# 3^d numbers for each source: seconds at 13, minutes at 16.
MOST_EXACT = 13


def posterior_family_probabilities(sums: OrderSums) -> Floats:
    """Return the posterior probability of each family, in the layout of the scores, (total,) float64."""
    numbers, _ = scaled_family_scores(sums.scores)
    total = sums.scores.logs.size
    # For each family, the sum over the orders in which its parents precede its node.
    weights = Scaled(np.zeros(total), np.full(total, NOTHING, np.int32))
    add_lattice_step_weights(sums.lattice, *sums.before, *sums.after, *weights)
    for node in range(sums.scores.d):
        scaled_superset_sums(*weights.of(sums.scores.part(node)))
    q = numbers.mantissa
    z = (float(sums.after.mantissa[0]), int(sums.after.exponent[0]))
    scaled_product_ratios(*numbers, *weights, z, q)
    return q


def posterior_edge_probabilities(sums: OrderSums) -> Floats:
    """Return the posterior probability of the edge from i to j, [i, j], (d, d) float64.

    References: Koivisto (2006), Advances in exact Bayesian structure discovery in Bayesian networks, section 3.
    """
    scores = sums.scores
    q = posterior_family_probabilities(sums)
    probabilities = np.zeros((scores.d, scores.d))
    for node, candidates in enumerate(scores.candidates):
        own = q[scores.part(node)]
        for bit in range(candidates.size - 1, -1, -1):
            with_bit = own[1 << bit : 2 << bit]
            probabilities[candidates[bit], node] = np.cumsum(with_bit)[-1]  # one after the other, unlike np.sum
            own = own[: 1 << bit] + with_bit
    return np.clip(probabilities, 0.0, 1.0)


def expected_hamming_distance(probabilities: Floats, parents: Graph) -> float:
    """Return the expected structural Hamming distance between a graph and graphs with these edge probabilities.

    The distance counts the pairs of nodes that two graphs connect differently: with an edge or without, or with
    opposite directions. So its expectation follows from the edge probabilities, whatever their dependence.

    probabilities (d, d) float64.
    References: Tsamardinos, Brown, Aliferis (2006), The max-min hill-climbing Bayesian network structure learning
    algorithm, section 5.1.
    """
    alike = 1.0 - probabilities - probabilities.T  # no edge
    for node, own in enumerate(parents):
        for parent in own:
            alike[parent, node] = alike[node, parent] = probabilities[parent, node]
    return float(np.sum(np.triu(1.0 - alike, 1)))


def directed_path_probabilities(sums: OrderSums) -> Floats:
    """Return the exact probability of a directed path from i to j, [i, j], (d, d) float64; requires the lattice of all
    orders.

    References: Parviainen, Koivisto (2011), section 4.
    """
    scores, lattice, d = sums.scores, sums.lattice, sums.scores.d
    ternary = np.zeros(1 << d, np.int64)
    for node in range(d):
        ternary[1 << node : 2 << node] = ternary[: 1 << node] + 3**node
    shares, p = sums.step_shares(), np.empty(3**d)
    full = (1 << d) - 1
    sets = np.arange(1 << d)
    probabilities = np.zeros((d, d))
    for source in range(d):
        p[:] = 0.0
        descendant_probabilities(source, d, lattice, shares, *sums.alpha, scores.starts, scores.byte_places, ternary, p)
        of_descendants = p[ternary[full] + ternary]
        for node in range(d):
            if node != source:
                probabilities[source, node] = of_descendants[(sets >> node) & 1 == 1].sum()
    return np.clip(probabilities, 0.0, 1.0)


def ancestor_relations(graphs: DrawnGraphs) -> Mask:
    """Return whether graph g has a directed path from i to j, [g, i, j], (n, d, d) bool."""
    n, d = graphs.parents.shape
    rows, bits = np.arange(n), np.arange(d, dtype=np.uint64)
    above = np.zeros((n, d), np.uint64)
    for node in graphs.orders.T:
        own = graphs.parents[rows, node]
        is_parent = (own[:, np.newaxis] >> bits) & np.uint64(1) > 0
        above[rows, node] = own | np.bitwise_or.reduce(np.where(is_parent, above, np.uint64(0)), axis=1)
    return (above[:, np.newaxis] >> bits[:, np.newaxis]) & np.uint64(1) > 0


# Draws are made so many at a time.
BLOCK = 500


def mean_causal_effects(sums: OrderSums, bge: BGe) -> Floats:
    """Return the exact expected effect of i on j, [i, j], over orders, graphs and coefficients, (d, d) float64.

    The parameters of different nodes are independent given the graph, so the expectation of a product of their
    coefficients is the product of their means.

    References: Wang, Wicker, Kwiatkowska (2022), section 4.4 and appendix C.
    """
    scores, lattice, d = sums.scores, sums.lattice, sums.scores.d
    tables = _mean_coefficients(sums, bge)
    betas = np.concatenate([table.ravel() for table in tables])
    beta_starts = np.cumsum([0, *(table.size for table in tables)])
    most = max(1, *(candidates.size for candidates in scores.candidates))
    candidates = np.full((d, most), -1, np.int64)
    for node, own in enumerate(scores.candidates):
        candidates[node, : own.size] = own
    shares, means = sums.step_shares(), np.empty((d, d))
    effects = np.empty((lattice.sets.size, d))
    for source in range(d):
        effects[:] = 0.0
        source_causal_effects(source, lattice, shares, betas, beta_starts, scores.starts, candidates, effects)
        means[source] = effects[-1]
    return means


def mean_causal_effects_bytes(sums: OrderSums) -> int:
    """Return the memory that `mean_causal_effects` needs, in bytes."""
    tables = sum(8 * candidates.size << candidates.size for candidates in sums.scores.candidates)
    return 2 * tables + 8 * sums.lattice.nodes.size + 8 * sums.lattice.sets.size * sums.scores.d


def _mean_coefficients(sums: OrderSums, bge: BGe) -> list[Floats]:
    """Return for each node the mean coefficients given that its parents are within a set of candidates, (2^k, k)."""
    numbers, _ = scaled_family_scores(sums.scores)
    scale = bge.scale
    tables = []
    for node, candidates in enumerate(sums.scores.candidates):
        k = candidates.size
        members = np.concatenate([candidates, [node]])
        table = np.empty((1 << k, k))
        subset_regression_coefficients(
            np.ascontiguousarray(scale[np.ix_(members, members)]), np.empty((k + 1, k + 1, k + 1)), table
        )
        average_over_subsets(table, *numbers.of(sums.scores.part(node)))
        tables.append(table)
    return tables


def draw_causal_effects(graphs: DrawnGraphs, bge: BGe, seed: int) -> tuple[Floats, Floats]:
    """Return effects in drawn graphs, (n, d, d) float64 each: with their mean coefficients, and with coefficients drawn
    from the posterior.
    """
    n, d = graphs.parents.shape
    rng = np.random.default_rng([seed, 1])
    means, draws = np.empty((n, d, d)), np.empty((n, d, d))
    degrees = bge.degrees + np.bitwise_count(graphs.parents) + 1.0
    for first in range(0, n, BLOCK):
        part = slice(first, min(first + BLOCK, n))
        size = part.stop - part.start
        graph_causal_effects(
            bge.scale,
            graphs.orders[part],
            graphs.parents[part],
            rng.chisquare(degrees[part]),
            rng.standard_normal((size, d, d)),
            means[part],
            draws[part],
        )
    return means, draws
