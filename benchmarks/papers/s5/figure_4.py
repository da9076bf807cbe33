"""The ablation: which orders the lattice holds, and whether they are weighed."""

from __future__ import annotations

import numpy as np

from benchmarks.papers.page import Measured, Page, mean_and_error, table
from benchmarks.papers.s5.problems import SETTINGS, Problem, bge_of, off_diagonal, posterior_of, problem
from learners.orders.lattice.coverage import OrderTarget, draw_markov_chain_orders, order_prefix_sets
from learners.orders.lattice.graph_samples import DrawnGraphs
from learners.orders.lattice.lattice import Coverage, OrderPosterior
from learners.orders.queries.edges import posterior_edge_probabilities
from learners.orders.queries.graph_scores import WeightedGraphs, draw_weighted_graphs
from learners.orders.queries.known_network import (
    area_under_roc_curve,
    expected_essential_hamming_distance,
    expected_log_marginal_likelihood,
)

D, N_DRAWS = 16, 160
METRICS = {"E-SHD": 1, "MLL": 1, "AUROC": 3}


def scored(one: Problem, edges: np.ndarray, drawn: WeightedGraphs) -> dict[str, float]:
    """The three metrics of figure 4."""
    pairs = off_diagonal(D)
    return {
        "E-SHD": expected_essential_hamming_distance(drawn, one.graph)[0],
        "MLL": expected_log_marginal_likelihood(drawn, bge_of(one.test))[0],
        "AUROC": area_under_roc_curve(one.graph[pairs], edges[pairs]),
    }


def of_lattice(one: Problem, whole: OrderPosterior, sets: np.ndarray, seed: int) -> dict[str, float]:
    """Orders of a lattice, weighed by the posterior: the best parameters that its structure allows."""
    sums = OrderPosterior(whole.scores, np.unique(sets), Coverage(), whole.bge, whole.standard).prior_sums
    return scored(one, posterior_edge_probabilities(sums), draw_weighted_graphs(sums, N_DRAWS, seed, "order"))


def of_equal_orders(one: Problem, whole: OrderPosterior, orders: np.ndarray, seed: int) -> dict[str, float]:
    """Each order with the same weight, its graphs by the posterior."""
    edges, parents = [], []
    for number, order in enumerate(orders):
        sums = OrderPosterior(
            whole.scores, np.unique(order_prefix_sets(order)), Coverage(), whole.bge, whole.standard
        ).prior_sums
        edges.append(posterior_edge_probabilities(sums))
        drawn = draw_weighted_graphs(sums, max(1, N_DRAWS // len(orders)), seed * 1000 + number, "order")
        parents.append(drawn.graphs.parents)
    every = np.concatenate(parents)
    graphs = DrawnGraphs(every, np.zeros(every.shape, np.uint8), np.zeros(len(every)))
    return scored(one, np.mean(edges, axis=0), WeightedGraphs(graphs, np.full(len(every), 1 / len(every)), True))


def variants(one: Problem, seed: int, n_chains: int) -> dict[str, dict[str, float]]:
    """Every variant on one problem."""
    whole, _ = posterior_of(one, seed, 400_000)
    n_orders, rng = 12 * n_chains, np.random.default_rng(seed)
    orders = draw_markov_chain_orders(OrderTarget.of(whole.scores), 12, seed, n_chains).reshape(-1, D)
    at_random = np.stack([rng.permutation(D) for _ in range(n_orders)])
    sums = whole.prior_sums
    return {
        "random: random orders, equal weights": of_equal_orders(one, whole, at_random, seed),
        "parameters only: the lattice of random orders, weighed": of_lattice(one, whole, order_prefix_sets(at_random), seed),
        "structure only: orders of a chain, equal weights": of_equal_orders(one, whole, orders, seed),
        "both: the lattice of the chain's orders, weighed": of_lattice(one, whole, order_prefix_sets(orders), seed),
        "all orders (the product)": scored(one, posterior_edge_probabilities(sums), draw_weighted_graphs(sums, N_DRAWS, seed, "order")),
    }  # fmt: skip


def measure(is_quick: bool) -> Measured:
    """Means over problems."""
    seeds, n_chains = (3, 2) if is_quick else (30, 8)
    results = [variants(problem(D, seed), seed, n_chains) for seed in range(seeds)]
    rows = [
        [name, *(mean_and_error([one[name][metric] for one in results], digits) for metric, digits in METRICS.items())]
        for name in results[0]
    ]
    text = (
        "The paper draws a figure without numbers: random is by far the worst; structure alone does well in AUROC, parameters alone in E-SHD "
        "and MLL, better than Gadget in E-SHD; both together are best."
    )
    return Measured(
        [text, "", *table(["variant", *METRICS], rows)],
        f"problems of {D} columns, 100 rows; {12 * n_chains} orders in each lattice.",
        f"0 to {seeds - 1}; the paper has 30.",
        f"means and standard errors over problems; E-SHD and MLL from about {N_DRAWS} drawn graphs.",
        (
            *SETTINGS,
            "structure and parameters come from our lattice: sets of columns instead of partitions, and exact weights instead of fitted ones",
        ),
    )


PAGE = Page("S5", "s5-figure-4", "Figure 4: ablation", measure)
