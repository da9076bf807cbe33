"""Weighted drawn graphs, scores of any graph, and the estimated mass of unscored families."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.errors import LearnerError
from learners.kernels.arrays import Array, Floats, Uint64s
from learners.models.estimation import GraphPrior
from learners.orders.lattice.graph_samples import DrawnGraphs, bitset_nodes, draw_graphs, log_graph_order_counts
from learners.orders.lattice.lattice import OrderSums
from learners.orders.scores.bdeu_bge import BDeu, BGe
from learners.orders.scores.scores import FamilyScores, StructurePrior

# Sets of columns times distinct rows that are counted for one estimate.
COUNTED_CELLS = 50_000_000
# Random orders by which the orders of a graph are counted.
N_ORDERS = 4000


@dataclass(frozen=True)
class WeightedGraphs:
    """Graphs with normalised weights."""

    graphs: DrawnGraphs
    weights: Floats  # (n,) float64: they add up to one
    is_equal: bool  # whether all are 1 / n

    @property
    def effective_size(self) -> dict[str, float]:
        """Effective number of draws, `effective_sample_size`: 1 / the sum of the squared weights (Kong 1992).

        Empty if all weights are equal.
        """
        return {} if self.is_equal else {"effective_sample_size": float(1.0 / np.sum(self.weights**2))}

    def mean(self, values: Array) -> tuple[Floats, Floats]:
        """Return the weighted mean over graphs of values (n, ...), and its standard error."""
        mean = np.einsum("g,g...->...", self.weights, values, dtype=np.float64)
        squares = np.einsum("g,g...->...", self.weights**2, (values - mean) ** 2, dtype=np.float64)
        n = self.weights.size
        return mean, np.sqrt(squares * n / max(1, n - 1))

    def interval(self, values: Floats, level: float) -> tuple[Floats, Floats]:
        """Return the weighted quantiles of values (n, ...) that enclose the central share `level`."""
        order = np.argsort(values, axis=0, kind="stable")
        below = np.cumsum(self.weights[order], axis=0)
        ends = []
        for share in ((1 - level) / 2, (1 + level) / 2):
            place = np.minimum((below < share * (1 - 1e-12)).sum(axis=0), self.weights.size - 1)
            row = np.take_along_axis(order, place[np.newaxis], axis=0)
            ends.append(np.take_along_axis(values, row, axis=0)[0])
        return ends[0], ends[1]


def draw_weighted_graphs(sums: OrderSums, n: int, seed: int, prior: GraphPrior) -> WeightedGraphs:
    """Draw graphs under the order prior; for the prior over graphs, weight each by the inverse of its number of orders.

    The posterior over pairs of an order and a graph counts a graph once for each of its orders (in the lattice).
    Dividing by that number gives the posterior over graphs, as far as the lattice covers it.

    References: Ellis, Wong (2008), Learning causal Bayesian network structures from experimental data, section 4.
    """
    graphs = draw_graphs(sums, n, seed)
    if prior == "order":
        return WeightedGraphs(graphs, np.full(n, 1.0 / n), True)
    logs = -log_graph_order_counts(sums.lattice, graphs.parents)
    weights = np.exp(logs - logs.max())
    return WeightedGraphs(graphs, weights / weights.sum(), False)


class UnscoredFamily(LearnerError, ValueError):
    """Raised if the model stores no rows to score a family outside its tables."""

    def __init__(self, name: str, parents: str) -> None:
        super().__init__(
            f"The model has no score of {name!r} with the parents {parents or 'none'}, and keeps no rows to count it from. Train "
            "again, with keep_rows=true (if the distinct rows fit into 16 MiB), with these edges in required, more candidates, or a "
            "larger max_parents."
        )


def family_log_marginal_likelihood(score: BGe | BDeu, node: int, parents: tuple[int, ...]) -> float:
    """Return the log marginal likelihood of a node given any parents."""
    if isinstance(score, BGe):
        r, own, k = score.scale, list(parents), len(parents)
        variance = r[node, node] - r[node, own] @ np.linalg.solve(r[np.ix_(own, own)], r[own, node])
        log_det = float(np.linalg.slogdet(r[np.ix_(own, own)])[1])
        return float(score.constants(k)[k] - 0.5 * log_det - (score.degrees + k + 1) / 2 * np.log(variance))
    without = sum(1 << parent for parent in parents)
    both = np.array(sorted((without, without | (1 << node))), np.uint64)
    h = dict(zip(both.tolist(), score.potentials(both).tolist(), strict=True))
    return h[without | (1 << node)] - h[without]


def family_log_prior(prior: StructurePrior, node: int, parents: tuple[int, ...], d: int) -> float:
    """Return the log prior of a family, as in the tables; -inf if the prior forbids it."""
    if not set(prior.required_of(node)) <= set(parents) or any((other, node) in prior.forbidden for other in parents):
        return -np.inf
    odds = sum(prior.log_odds.get((other, node), 0.0) for other in parents)
    return float(prior.of_sizes(d)[len(parents)]) + odds


def estimate_log_order_count(parents: Uint64s, seed: int) -> tuple[float, float]:
    """Estimate the log number of orders of a graph (d,), with its standard error, by drawing one node after another.

    Each draw takes any node whose parents are already placed. The product of the numbers of choices is an
    unbiased estimate of the number of orders (Knuth 1975, Estimating the efficiency of backtrack programs).
    """
    d, rng = parents.size, np.random.default_rng(seed)
    placed, logs = np.zeros(N_ORDERS, np.uint64), np.zeros(N_ORDERS)
    bits = np.uint64(1) << np.arange(d, dtype=np.uint64)
    for _ in range(d):
        is_free = ((placed[:, np.newaxis] & bits) == 0) & ((placed[:, np.newaxis] & parents) == parents)
        logs += np.log(is_free.sum(axis=1))
        placed |= bits[np.where(is_free, rng.random(is_free.shape), -1.0).argmax(axis=1)]
    weights = np.exp(logs - logs.max())
    mean = float(weights.mean())
    return float(logs.max() + np.log(mean)), float(weights.std(ddof=1) / mean / np.sqrt(N_ORDERS))


@dataclass(frozen=True)
class OutsideMass:
    """Mass of graphs with one more parent than the tables hold, as odds against all covered graphs."""

    # odds, errors (d, d) float64: [i, j] of graphs in which i is a parent of j that the tables have not; and the
    # standard errors.
    odds: Floats
    errors: Floats
    # total, total_error: of all further parents.
    total: float
    total_error: float


def estimate_unscored_family_mass(
    drawn: WeightedGraphs,
    scores: FamilyScores,
    score: BGe | BDeu,
    prior: StructurePrior,
    absent: frozenset[tuple[int, int]],
) -> OutsideMass:
    """Estimate the mass of families with one more parent than the tables hold, by importance sampling from the covered
    graphs.

    Each sample is an order and a graph. A node earlier in the order joins the parents of a later one; the ratio
    of the two families' scores has as its mean the mass of all such graphs, relative to the covered mass. The
    estimate is unbiased.
    """
    d, graphs = scores.d, drawn.graphs
    rank = np.argsort(graphs.orders, axis=1)
    families = sorted({(node, own) for row in graphs.parents.tolist() for node, own in enumerate(row)})
    further = {key: _further(*key, scores, prior, absent) for key in families}
    n = len(graphs.parents)
    if isinstance(score, BDeu):
        n_sets = 2 * sum(map(len, further.values()))
        n = max(2, min(n, COUNTED_CELLS * n // max(1, n_sets * score.rows.n_distinct)))
        families = sorted({(node, own) for row in graphs.parents[:n].tolist() for node, own in enumerate(row)})
    ratios = _ratios(score, {key: further[key] for key in families}, prior)
    added = np.zeros((n, d, d))
    for g, row in enumerate(graphs.parents[:n].tolist()):
        for node, own in enumerate(row):
            others = further[node, own]
            added[g, others, node] = np.where(rank[g, others] < rank[g, node], ratios[node, own], 0.0)
    weights = drawn.weights[:n] / drawn.weights[:n].sum()
    part = WeightedGraphs(graphs, weights, drawn.is_equal)
    odds, errors = part.mean(added)
    total, total_error = part.mean(added.sum(axis=(1, 2)))
    return OutsideMass(odds, errors, float(total), float(total_error))


def _further(
    node: int, own: int, scores: FamilyScores, prior: StructurePrior, absent: frozenset[tuple[int, int]]
) -> list[int]:
    """Return the nodes that the prior allows to join a parent set, but whose larger set has no score in the tables."""
    parents = bitset_nodes(own)
    nodes = []
    for other in range(scores.d):
        edge = (other, node)
        if other == node or other in parents or edge in prior.forbidden or edge in absent:
            continue
        index = scores.index(node, (*parents, other))
        if index is None or scores.of(node)[index] == -np.inf:
            nodes.append(other)
    return nodes


def _ratios(
    score: BGe | BDeu, further: dict[tuple[int, int], list[int]], prior: StructurePrior
) -> dict[tuple[int, int], Floats]:
    """Return for each node and parent set the score ratio of adding each further node, at most e^600."""
    ratios = {}
    h: dict[int, float] = {}
    if isinstance(score, BDeu):
        d = int(score.sizes.size)
        larger = {own | (1 << i) for (_, own), others in further.items() for i in [*others]}
        larger |= {own | (1 << i) | (1 << node) for (node, own), others in further.items() for i in others}
        larger |= {own | bit for node, own in further for bit in (0, 1 << node)}
        sets = np.array(sorted(larger), np.uint64)
        h = dict(zip(sets.tolist(), score.potentials(sets).tolist(), strict=True))
    else:
        d = score.d
        scale, constants = score.scale, score.constants(d)
    of_sizes = prior.of_sizes(d)
    for (node, own), others in further.items():
        parents, bit = list(bitset_nodes(own)), 1 << node
        k = len(parents)
        if isinstance(score, BDeu):
            base = h[own | bit] - h[own]
            logs = np.array([h[own | bit | (1 << i)] - h[own | (1 << i)] - base for i in others])
        else:
            solved = np.linalg.solve(scale[np.ix_(parents, parents)], scale[parents])
            rest = scale - scale[:, parents] @ solved if k else scale
            pivots = np.diag(rest)[others]
            variance = rest[node, node] - rest[node, others] ** 2 / pivots
            logs = constants[k + 1] - constants[k] - 0.5 * np.log(pivots)
            logs = logs - (score.degrees + k + 2) / 2 * np.log(variance)
            logs = logs + (score.degrees + k + 1) / 2 * np.log(rest[node, node])
        logs = logs + (of_sizes[k + 1] - of_sizes[k] if k + 1 < d else -np.inf)
        logs = logs + np.array([prior.log_odds.get((i, node), 0.0) for i in others])
        ratios[node, own] = np.exp(np.minimum(logs, 600.0))
    return ratios
