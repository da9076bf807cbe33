"""Distances of posteriors from known networks: by enumeration, and as scikit-learn has them."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from learners.orders.lattice.graph_samples import DrawnGraphs, graph_parent_bitsets
from learners.orders.queries.graph_scores import WeightedGraphs, family_log_marginal_likelihood
from learners.orders.queries.known_network import (
    adjacency,
    area_under_roc_curve,
    essential_graph,
    essential_hamming_distance,
    expected_essential_hamming_distance,
    expected_log_marginal_likelihood,
    mean_squared_effect_error,
)
from learners.orders.scores.bdeu_bge import BGe
from tests.naive import orders as naive

GRAPHS = naive.all_graphs(4)


def independences(parents):
    """The pairs that are joined, and the colliders of pairs that are not: alike for graphs of one class (Verma, Pearl 1990)."""
    joined = {frozenset((a, b)) for b, own in enumerate(parents) for a in own}
    colliders = {
        (pair, b) for b, own in enumerate(parents) for pair in combinations(own, 2) if frozenset(pair) not in joined
    }
    return frozenset(joined), frozenset(colliders)


def classes():
    found = {}
    for parents in GRAPHS:
        found.setdefault(independences(parents), []).append(adjacency(parents))
    return found


def test_edges_are_directed_where_all_graphs_of_the_class_agree():
    assert len(classes()) == 185  # Gillispie, Perlman (2001), table 1
    for members in classes().values():
        always, ever = np.all(members, axis=0), np.any(members, axis=0)
        for graph in members:
            directed, loose = essential_graph(graph)
            assert np.array_equal(directed, always)
            assert np.array_equal(loose, (ever | ever.T) & ~always & ~always.T)
            assert essential_hamming_distance(graph, members[0]) == 0


def test_distance_counts_pairs():
    chain = adjacency(((), (0,), (1,), ()))
    collider = adjacency(((), (0, 2), (), ()))
    assert essential_hamming_distance(chain, collider) == 2, "both edges of the collider have directions"
    assert essential_hamming_distance(chain, adjacency(((), (), (), ()))) == 2


def drawn(graphs, weights):
    bits = np.stack([graph_parent_bitsets(graph) for graph in graphs])
    weights = np.asarray(weights, np.float64)
    return WeightedGraphs(
        DrawnGraphs(bits, np.zeros(bits.shape, np.uint8), np.zeros(len(bits))), weights / weights.sum(), False
    )


def test_expectations_weigh_the_graphs():
    rng = np.random.default_rng(0)
    some = [GRAPHS[i] for i in rng.integers(0, len(GRAPHS), 12)]
    weights = rng.random(12)
    truth = adjacency(GRAPHS[200])
    distances = [essential_hamming_distance(adjacency(graph), truth) for graph in some]
    mean, error = expected_essential_hamming_distance(drawn(some, weights), truth)
    assert mean == pytest.approx(np.average(distances, weights=weights)) and error > 0
    rows = rng.normal(size=(50, 4))
    deviations = rows - rows.mean(axis=0)
    score = BGe(len(rows), rows.mean(axis=0), deviations.T @ deviations)
    logs = [sum(family_log_marginal_likelihood(score, b, own) for b, own in enumerate(graph)) for graph in some]
    assert expected_log_marginal_likelihood(drawn(some, weights), score)[0] == pytest.approx(
        np.average(logs, weights=weights)
    )


def test_errors_of_effects_leave_the_diagonal_out():
    known = np.zeros((3, 3))
    assert (
        mean_squared_effect_error(known + np.eye(3) * 9 + np.array([[0, 1, 0], [0, 0, 0], [0, 2, 0]]), known) == 5 / 6
    )


def test_area_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    is_true, probabilities = rng.random(80) < 0.3, rng.integers(0, 20, 80) / 20
    assert area_under_roc_curve(is_true, probabilities) == pytest.approx(roc_auc_score(is_true, probabilities))
    assert np.isnan(area_under_roc_curve(np.ones(3, bool), np.ones(3)))
