"""What the benchmarks of structures measure by: CPDAGs, distances, test scores, and draws from known networks."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.structure_problems import (
    TestScores,
    auroc,
    auroc_of_rest,
    bge_of,
    essential_graph,
    known_edges,
    linear_gaussian,
    shd,
)
from benchmarks.structures_networks import sampled
from benchmarks.structures_paper import order_of, table
from tests.naive import orders as naive
from tests.orders.conftest import needs_networks
from tests.orders.problems import gaussian_table, naive_bge


def matrix(parents):
    found = np.zeros((len(parents),) * 2, bool)
    for node, own in enumerate(parents):
        found[list(own), node] = True
    return found


def invariants(graph):
    """Skeleton and v-structures, which Markov-equivalent graphs share (Verma, Pearl 1990)."""
    joined = graph | graph.T
    d = len(graph)
    collisions = {
        (a, c, b)
        for c in range(d)
        for a in range(d)
        for b in range(a)
        if graph[a, c] and graph[b, c] and not joined[a, b]
    }
    return joined.tobytes(), frozenset(collisions)


def test_the_essential_graph_has_the_edges_that_all_equivalent_graphs_direct_alike():
    """Of all 29,281 graphs of five nodes."""
    classes = {}
    for parents in naive.all_graphs(5):
        graph = matrix(parents)
        classes.setdefault(invariants(graph), []).append(graph)
    assert len(classes) == 8782
    for graphs in list(classes.values())[::23]:
        always = np.logical_and.reduce(graphs)
        directed, loose = essential_graph(graphs[0])
        np.testing.assert_array_equal(directed, always)
        np.testing.assert_array_equal(loose, (graphs[0] | graphs[0].T) & ~always & ~always.T)
        assert shd(graphs[0], graphs[-1]) == 0


def test_distances_count_pairs():
    chain, collider, empty = matrix(((), (0,), (1,))), matrix(((), (0, 2), ())), np.zeros((3, 3), bool)
    assert (shd(chain, collider), shd(chain, empty), shd(collider, empty)) == (2, 2, 2)


def test_test_scores_are_marginal_likelihoods():
    x = gaussian_table(4, 30, 1)
    log_family, graph = naive_bge(x), ((1,), (), (0, 1), (2,))
    expected = sum(log_family(node, own) for node, own in enumerate(graph))
    assert TestScores(x)(matrix(graph)) == pytest.approx(expected)


def test_problems_are_as_the_paper_draws_them():
    problems = [linear_gaussian(16, 100, seed) for seed in range(40)]
    n_edges = np.array([problem.graph.sum() for problem in problems])
    assert abs(n_edges.mean() - 32) < 5 * n_edges.std() / np.sqrt(40)
    problem = problems[0]
    residual = problem.test @ np.linalg.inv(problem.effects)
    assert residual.var() == pytest.approx(0.1, rel=0.05)
    assert bge_of(problem.train).n_rows == 100
    known = known_edges(problem, 8, 1)
    assert len(set(known)) == 8
    assert all(problem.graph[edge] for edge in known)
    order = order_of(problem.graph).tolist()
    assert all(order.index(a) < order.index(b) for a, b in np.argwhere(problem.graph))
    assert auroc_of_rest(problem, problem.graph.astype(float), known) == 1.0
    assert auroc(np.array([True, False, True]), np.array([1.0, 1.0, 2.0])) == 0.75


@needs_networks
def test_rows_are_drawn_from_the_network():
    graph, rows, names, values = sampled("asia", 20_000, 1)
    assert graph.sum() == 8
    share = {name: np.mean(rows[:, i] == values[i].index("yes")) for i, name in enumerate(names)}
    assert share["smoke"] == pytest.approx(0.5, abs=0.02)
    assert share["lung"] == pytest.approx(0.055, abs=0.01)
    either = rows[:, names.index("either")] == values[names.index("either")].index("yes")
    causes = [rows[:, names.index(name)] == values[names.index(name)].index("yes") for name in ("lung", "tub")]
    np.testing.assert_array_equal(either, causes[0] | causes[1])


def test_results_become_a_table():
    entry = dict.fromkeys(("e_shd", "auroc", "mll", "mse_effects", "auroc_4", "auroc_8", "auroc_16", "seconds"), 0.5)
    told = table([entry | {"d": 16, "method": "fewpass", "seed": seed} for seed in range(2)])
    assert "| 16 | fewpass | 2 | 0.5 ± 0.0 | 0.500 ± 0.000 |" in told
