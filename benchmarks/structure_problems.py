"""Structure problems with known answers, and how far an answer is from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from learners.orders.bge import BGe

Array = np.ndarray[Any, Any]
NETWORKS = Path(__file__).parent.parent.parent / "shared" / "data" / "networks"
NOISE_VARIANCE = 0.1
N_TEST = 1000


@dataclass(frozen=True)
class Problem:
    """A linear Gaussian network and rows drawn from it.

    Parameters
    ----------
    graph : (d, d) bool
        [i, j] whether there is an edge from i to j.
    effects : (d, d) float64
        [i, j] how much j changes when i is set one unit higher.
    train, test : (n, d) float64
    """

    graph: Array
    effects: Array
    train: Array
    test: Array


def linear_gaussian(d: int, n: int, seed: int) -> Problem:
    """An Erdős–Rényi graph of 2d expected edges, weights N(0, 1) and noise of variance 0.1 (Wang et al. 2022, appendix F)."""
    rng = np.random.default_rng([seed, d])
    order = rng.permutation(d)
    above = np.triu(rng.random((d, d)) < 4 / (d - 1), 1)
    graph = np.zeros((d, d), bool)
    graph[np.ix_(order, order)] = above
    effects = np.linalg.inv(np.eye(d) - graph * rng.normal(size=(d, d)))
    noise = rng.normal(size=(n + N_TEST, d)) * np.sqrt(NOISE_VARIANCE)
    rows = noise @ effects
    return Problem(graph, effects, rows[:n], rows[n:])


def bge_of(rows: Array) -> BGe:
    """The score of rows as they are."""
    deviations = rows - rows.mean(axis=0)
    return BGe(len(rows), rows.mean(axis=0), deviations.T @ deviations)


def auroc(truth: Array, scores: Array) -> float:
    """Area under the ROC curve; NaN if all are true or none is."""
    n_true = int(truth.sum())
    n_false = truth.size - n_true
    if not n_true or not n_false:
        return float("nan")
    ranks = rankdata(scores)
    return float((ranks[truth].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))


def off_diagonal(d: int) -> Array:
    """(d, d) bool: the pairs of different columns."""
    return ~np.eye(d, dtype=bool)


def essential_graph(graph: Array) -> tuple[Array, Array]:
    """The directed and the undirected edges (d, d) of the CPDAG of a graph: v-structures, then Meek's rules (1995)."""
    adjacent = graph | graph.T
    apart = ~adjacent & off_diagonal(len(graph))
    directed = np.zeros_like(graph)
    for child in range(len(graph)):
        parents = np.flatnonzero(graph[:, child])
        collides = parents[apart[np.ix_(parents, parents)].any(axis=1)]
        directed[collides, child] = True
    while True:
        loose = adjacent & ~directed & ~directed.T
        away = (directed.T.astype(np.int32) @ apart.astype(np.int32)) > 0
        along = (directed.astype(np.int32) @ directed.astype(np.int32)) > 0
        new = loose & (away | along)
        for a, b in zip(*np.nonzero(loose & ~new), strict=True):
            between = np.flatnonzero(loose[a] & directed[:, b])
            new[a, b] = apart[np.ix_(between, between)].any()
        if not new.any():
            return directed, loose
        directed |= new


def shd(one: Array, other: Array) -> int:
    """Pairs of columns that are joined differently in the CPDAGs of two graphs."""
    (directed, loose), (of_other, loose_of_other) = essential_graph(one), essential_graph(other)
    different = (directed != of_other) | (loose != loose_of_other)
    return int(np.triu(different | different.T, 1).sum())


class TestScores:
    """Log marginal likelihoods of further rows, family by family."""

    __test__ = False

    def __init__(self, rows: Array) -> None:
        self.bge = bge_of(rows)
        self.scale, self.constants = self.bge.scale, self.bge.constants(rows.shape[1] - 1)
        self._known: dict[tuple[int, bytes], float] = {}

    def __call__(self, graph: Array) -> float:
        """Of a graph (d, d)."""
        return sum(self._family(node, graph[:, node]) for node in range(len(graph)))

    def _family(self, node: int, is_parent: Array) -> float:
        key = (node, is_parent.tobytes())
        if key not in self._known:
            parents = np.flatnonzero(is_parent)
            r = self.scale[np.ix_(parents, parents)]
            log_det = np.linalg.slogdet(r)[1] if parents.size else 0.0
            cross = self.scale[parents, node]
            rest = self.scale[node, node] - (cross @ np.linalg.solve(r, cross) if parents.size else 0.0)
            half = (self.bge.degrees + parents.size) / 2
            self._known[key] = float(self.constants[parents.size] - log_det / 2 - (half + 0.5) * np.log(rest))
        return self._known[key]


def of_sample(problem: Problem, graphs: Array, weights: Array | None = None) -> dict[str, float]:
    """Expected SHD between CPDAGs and expected test log likelihood of graphs (n, d, d), each as probable as its weight."""
    distinct, place = np.unique(graphs.reshape(len(graphs), -1), axis=0, return_inverse=True)
    shares = np.bincount(place.ravel(), weights, len(distinct))
    shares = shares / shares.sum()
    d, score = len(problem.graph), TestScores(problem.test)
    found = {"e_shd": 0.0, "mll": 0.0}
    for row, share in zip(distinct, shares.tolist(), strict=True):
        graph = row.reshape(d, d)
        found["e_shd"] += share * shd(graph, problem.graph)
        found["mll"] += share * score(graph)
    return found


def effects_error(problem: Problem, effects: Array) -> float:
    """Mean squared error over the pairs of different columns."""
    pairs = off_diagonal(len(problem.graph))
    return float(np.mean((effects - problem.effects)[pairs] ** 2))


def known_edges(problem: Problem, n: int, seed: int) -> list[tuple[int, int]]:
    """Some true edges; all, if there are fewer."""
    edges = np.argwhere(problem.graph)
    chosen = np.random.default_rng([seed, n]).permutation(len(edges))[:n]
    return [(int(a), int(b)) for a, b in edges[chosen]]


def auroc_of_rest(problem: Problem, probabilities: Array, known: list[tuple[int, int]]) -> float:
    """AUROC over the pairs that are not known."""
    pairs = off_diagonal(len(problem.graph))
    for a, b in known:
        pairs[a, b] = False
    return auroc(problem.graph[pairs], probabilities[pairs])
