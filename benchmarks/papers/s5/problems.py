"""Linear Gaussian problems of the paper's appendix F, and the posterior of ours over their graphs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from benchmarks.papers.page import Measured, mean_and_error, table
from learners.orders.lattice.lattice import OrderPosterior
from learners.orders.order_learning import learn_order_posterior
from learners.orders.parameters import OrderParameters
from learners.orders.queries.edges import draw_causal_effects, mean_causal_effects, posterior_edge_probabilities
from learners.orders.queries.graph_scores import draw_weighted_graphs
from learners.orders.queries.known_network import (
    area_under_roc_curve,
    expected_essential_hamming_distance,
    expected_log_marginal_likelihood,
    mean_squared_effect_error,
)
from learners.orders.scores.bdeu_bge import BGe, Standard
from learners.orders.scores.scores import StructurePrior

N_ROWS, N_TEST, N_DRAWS, NOISE_VARIANCE = 100, 1000, 300, 0.1
Array = np.ndarray
SETTINGS = (
    "the posterior is exact where memory allows (d = 16) and a lattice of orders elsewhere, not an OrderSPN that variational inference fits to samples of DiBS or Gadget",
    "graphs and rows are other random draws than the paper's",
)


class Problem(NamedTuple):
    """The graph, [i, j] whether i is a parent of j; its effects, and rows drawn from it."""

    graph: Array
    effects: Array
    train: Array
    test: Array


def problem(d: int, seed: int) -> Problem:
    """An Erdős–Rényi graph of 2d expected edges, weights N(0, 1), noise of variance 0.1, 100 rows and 1,000 to test on."""
    rng = np.random.default_rng([seed, d])
    order = rng.permutation(d)
    graph = np.zeros((d, d), bool)
    graph[np.ix_(order, order)] = np.triu(rng.random((d, d)) < 4 / (d - 1), 1)
    effects = np.linalg.inv(np.eye(d) - graph * rng.normal(size=(d, d)))
    rows = rng.normal(size=(N_ROWS + N_TEST, d)) * np.sqrt(NOISE_VARIANCE) @ effects
    return Problem(graph, effects, rows[:N_ROWS], rows[N_ROWS:])


def bge_of(rows: Array) -> BGe:
    """The score of rows as they are, as in the paper."""
    deviations = rows - rows.mean(axis=0)
    return BGe(len(rows), rows.mean(axis=0), deviations.T @ deviations)


def posterior_of(one: Problem, seed: int, sets: int) -> tuple[OrderPosterior, OrderParameters]:
    """The posterior over graphs given the training rows."""
    d = len(one.graph)
    parameters = OrderParameters(sets=sets, seed=seed)
    learned = learn_order_posterior(
        bge_of(one.train), StructurePrior(), parameters, d - 1, Standard.none(d), lambda *_: None
    )
    return learned, parameters


def off_diagonal(d: int) -> Array:
    """The pairs of different columns."""
    return ~np.eye(d, dtype=bool)


def scores(one: Problem, seed: int, sets: int) -> dict[str, float]:
    """E-SHD, MLL, AUROC and MSE-CE of figure 2, and the coverage."""
    posterior, _ = posterior_of(one, seed, sets)
    sums, pairs, score = posterior.prior_sums, off_diagonal(len(one.graph)), bge_of(one.train)
    drawn = draw_weighted_graphs(sums, N_DRAWS, seed, "order")
    edges = posterior_edge_probabilities(sums)
    is_exact = posterior.coverage.is_exact
    effects = (
        mean_causal_effects(sums, score) if is_exact else draw_causal_effects(drawn.graphs, score, seed)[0].mean(axis=0)
    )
    return {
        "E-SHD": expected_essential_hamming_distance(drawn, one.graph)[0],
        "MLL": expected_log_marginal_likelihood(drawn, bge_of(one.test))[0],
        "AUROC": area_under_roc_curve(one.graph[pairs], edges[pairs]),
        "MSE-CE": mean_squared_effect_error(effects, one.effects),
        "orders covered": 1.0 if is_exact else posterior.coverage.orders.share,
    }


def known_edges(one: Problem, n: int, seed: int) -> list[tuple[int, int]]:
    """Some true edges; all, if there are fewer."""
    edges = np.argwhere(one.graph)
    chosen = np.random.default_rng([seed, n]).permutation(len(edges))[:n]
    return [(int(a), int(b)) for a, b in edges[chosen]]


def figure_2(d: int, seeds: int, sets: int, text: str) -> Measured:
    """The four metrics at one number of columns."""
    results = [scores(problem(d, seed), seed, sets) for seed in range(seeds)]
    digits = {"E-SHD": 1, "MLL": 1, "AUROC": 3, "MSE-CE": 4, "orders covered": 2}
    rows = [[name, mean_and_error([one[name] for one in results], n)] for name, n in digits.items()]
    return Measured(
        [text, "", *table(["metric", "ours"], rows)],
        f"Erdős–Rényi graphs of {d} columns and {2 * d} expected edges, {N_ROWS} rows; MLL on {N_TEST:,} further rows.",
        f"0 to {seeds - 1}; the paper has 30.",
        f"means and standard errors over problems; E-SHD and MLL from {N_DRAWS} drawn graphs each.",
        SETTINGS,
    )
