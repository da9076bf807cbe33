"""Every answer over all orders against the enumeration of every graph."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.orders.lattice.graph_samples import draw_graphs, graph_parent_bitsets
from learners.orders.lattice.lattice import lattice_of_all_orders, lattice_order_sums
from learners.orders.queries.edges import (
    draw_causal_effects,
    posterior_edge_probabilities,
    posterior_family_probabilities,
)
from learners.orders.scores.known_edges import Edges, ImpossibleEdges, check_known_edges, find_directed_cycle
from learners.orders.scores.scores import FamilyScores, StructurePrior
from tests.naive import orders as naive
from tests.orders.problems import bge_of, family_scores, gaussian_table


def test_the_enumeration_is_complete():
    assert [len(naive.all_graphs(d)) for d in range(1, 6)] == [1, 3, 25, 543, 29_281]


def test_effects_of_one_graph_have_the_spread_of_their_coefficients():
    """Of the graph 0 -> 1 they have a t distribution with known scale."""
    bge = bge_of(gaussian_table(3, 25, 1))
    scores = family_scores(bge, StructurePrior())
    others = frozenset((a, b) for a in range(3) for b in range(3) if a != b) - {(0, 1)}
    sums = lattice_order_sums(scores, lattice_of_all_orders(scores), Edges(frozenset({(0, 1)}), others))
    drawn = draw_graphs(sums, 20_000, seed=1)
    assert (drawn.parents == graph_parent_bitsets([(), (0,), ()])).all()
    effects = draw_causal_effects(drawn, bge, seed=5)[1][:, 0, 1]
    r = bge.scale
    degrees = bge.degrees + 2
    variance = (r[1, 1] - r[0, 1] ** 2 / r[0, 0]) / r[0, 0] / (degrees - 2)
    assert effects.var() == pytest.approx(variance, rel=5 * math.sqrt(2.5 / effects.size))


@settings(max_examples=15)
@given(
    d=st.integers(1, 4),
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.1, 10.0, 2000.0]),
    most=st.integers(0, 3),
)
def test_scores_of_any_size_and_candidates_of_any_number_are_summed(d, seed, spread, most):
    """Log scores that differ by thousands: what a number of a single exponent could not hold."""
    rng = np.random.default_rng(seed)
    candidates = tuple(
        np.sort(rng.permutation([j for j in range(d) if j != i])[: rng.integers(0, d)]).astype(np.int64)
        for i in range(d)
    )
    tables = [rng.normal(size=1 << own.size) * spread for own in candidates]
    for table in tables:
        table[np.bitwise_count(np.arange(table.size, dtype=np.uint64)) > most] = -np.inf
    scores = FamilyScores(candidates, np.concatenate(tables))

    def log_family(node, parents):
        index = scores.index(node, parents)
        return -math.inf if index is None else float(scores.of(node)[index])

    graphs, weights, log_z = naive.graph_posterior(log_family, d)
    sums = lattice_order_sums(scores, lattice_of_all_orders(scores))
    assert sums.log_z == pytest.approx(log_z, abs=1e-7)
    expected = naive.edge_probabilities(graphs, weights, d)
    np.testing.assert_allclose(posterior_edge_probabilities(sums), expected, atol=1e-9)
    for node in range(d):
        own = posterior_family_probabilities(sums)[scores.starts[node] : scores.starts[node + 1]]
        assert own.sum() == pytest.approx(1.0)


def test_impossible_edges_are_named():
    names = ["a", "b", "c", "d"]
    scores = family_scores(bge_of(gaussian_table(4, 20, 1)), StructurePrior(forbidden=frozenset({(3, 0)})), most=1)
    for edges, message in (
        (Edges(frozenset({(3, 0)})), "'d' is not among the 2 candidate parents of 'a'"),
        (Edges(frozenset({(0, 2), (1, 2)})), "no parent set of 'c' that the prior allows agrees with a->c, b->c"),
    ):
        with pytest.raises(ImpossibleEdges, match=message):
            check_known_edges(edges, scores, names)
    check_known_edges(Edges(frozenset({(0, 1), (1, 2)}), frozenset({(3, 0), (3, 2)})), scores, names)


@given(edges=st.sets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_cycles_are_found(edges):
    edges = {(a, b) for a, b in edges if a != b}
    parents = [tuple(a for a, b in edges if b == node) for node in range(6)]
    cycle = find_directed_cycle(edges)
    assert bool(cycle) != naive.is_acyclic(parents)
    assert all((a, b) in edges for a, b in zip(cycle, cycle[1:], strict=False))
    assert not cycle or cycle[0] == cycle[-1]
