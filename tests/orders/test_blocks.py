"""Lattices of some orders: sums against enumeration, growth, closed-form weights, and coverage against the exact mass."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.models.query import Edges, Effects, Graph, Graphs, Paths
from learners.orders.lattice.coverage import (
    OrderTarget,
    _promising,
    clopper_pearson_coverage,
    draw_markov_chain_orders,
    grow_lattice_sets,
    lattice_coverage,
    order_prefix_sets,
)
from learners.orders.lattice.lattice import lattice_from_node_sets, lattice_of_all_orders, lattice_order_sums
from learners.orders.queries.edges import posterior_edge_probabilities
from learners.orders.scores.scores import StructurePrior
from tests.naive import orders as naive
from tests.orders.problems import bge_of, family_scores, gaussian_table, learned


def scores_of(d, seed=1, n=25):
    return family_scores(bge_of(gaussian_table(d, n, seed)), StructurePrior())


def log_alphas(scores):
    """log of the sum over parent sets of a node within a set of nodes, by definition."""

    def log_alpha(node, before):
        within = [
            float(score)
            for index, score in enumerate(scores.of(node))
            if all((before >> int(own)) & 1 for bit, own in enumerate(scores.candidates[node]) if (index >> bit) & 1)
        ]
        return np.logaddexp.reduce(within)

    return log_alpha


def weighted_orders(scores):
    """Every order, the sets that it begins with, and the log of its weight."""
    log_alpha = log_alphas(scores)
    for order in itertools.permutations(range(scores.d)):
        before = [sum(1 << node for node in order[:step]) for step in range(scores.d + 1)]
        yield order, before, sum(log_alpha(node, before[step]) for step, node in enumerate(order))


def naive_log_z(scores, sets):
    """By every order of which all beginnings are among the sets."""
    allowed = set(sets.tolist())
    logs = [log for _, before, log in weighted_orders(scores) if allowed.issuperset(before)]
    return np.logaddexp.reduce(logs) if logs else -math.inf


@st.composite
def some_sets(draw, d=4):
    inner = draw(st.sets(st.integers(1, (1 << d) - 2), max_size=(1 << d) - 2))
    return np.array(sorted({0, (1 << d) - 1} | inner), np.uint64)


@given(sets=some_sets())
def test_a_lattice_sums_the_orders_whose_beginnings_it_has(sets):
    scores = scores_of(4)
    sums = lattice_order_sums(scores, lattice_from_node_sets(sets, scores))
    assert sums.log_z == pytest.approx(naive_log_z(scores, sets), abs=1e-9)


def test_the_lattice_of_all_sets_is_complete():
    scores = scores_of(6)
    some, complete = lattice_from_node_sets(np.arange(64, dtype=np.uint64), scores), lattice_of_all_orders(scores)
    for ours, theirs in zip(some, complete, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@given(sets=some_sets())
def test_promising_sets_add_what_they_promise(sets):
    """Of four nodes at most three follow, so that nothing is left out."""
    scores = scores_of(4)
    target = OrderTarget.of(scores)
    before = naive_log_z(scores, sets)
    if before == -math.inf:
        return
    found, gains = _promising(target, lattice_from_node_sets(sets, scores), 1e-6)
    for one, gain in zip(found, gains, strict=True):
        after = naive_log_z(scores, np.sort(np.append(sets, one)))
        # What comes in or goes on by sets that are not followers in the lattice is not foreseen.
        assert math.exp(after - before) - 1 >= gain * (1 - 1e-9)


def test_growth_ends_with_all_orders_and_raises_the_bound():
    scores = scores_of(7)
    target = OrderTarget.of(scores)
    sets = np.unique(order_prefix_sets(draw_markov_chain_orders(target, 1, seed=1, n_chains=1)))
    bounds = []
    for most in (20, 60, 128):
        sets = grow_lattice_sets(target, sets, most)
        bounds.append(lattice_order_sums(scores, lattice_from_node_sets(sets, scores)).log_z)
    exact = lattice_order_sums(scores, lattice_of_all_orders(scores))
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(exact.log_z, abs=1e-9)
    found = posterior_edge_probabilities(lattice_order_sums(scores, lattice_from_node_sets(sets, scores)))
    np.testing.assert_allclose(found, posterior_edge_probabilities(exact), atol=1e-9)


def elbo(scores, lattice, log_weights):
    """Evidence lower bound of a circuit whose sum nodes are the sets and whose leaves are at their optimum, by enumeration."""
    log_alpha = log_alphas(scores)
    edges = {}
    for s in range(lattice.sets.size):
        own = slice(lattice.starts[s], lattice.starts[s + 1])
        total = np.logaddexp.reduce(log_weights[own])
        for edge in range(own.start, own.stop):
            edges[s, int(lattice.nodes[edge])] = (int(lattice.targets[edge]), log_weights[edge] - total)
    bound = 0.0
    for order in itertools.permutations(range(scores.d)):
        at, log_q, log_p, before = 0, 0.0, 0.0, 0
        for node in order:
            if (at, node) not in edges:
                break
            at, log_weight = edges[at, node]
            log_q += log_weight
            log_p += log_alpha(node, before)
            before |= 1 << node
        else:
            bound += math.exp(log_q) * (log_p - log_q)
    return bound


def test_no_step_improves_the_closed_form():
    """At the weights alpha B(target) / B(set), the bound is log Z of the lattice, its gradient zero, and all else is worse."""
    scores = scores_of(4)
    sets = np.array([0, 1, 2, 4, 3, 5, 6, 12, 7, 13, 14, 15], np.uint64)
    lattice = lattice_from_node_sets(np.sort(sets), scores)
    sums = lattice_order_sums(scores, lattice)
    log_after = np.log(sums.after.mantissa) + 256 * math.log(2) * sums.after.exponent
    log_alpha = log_alphas(scores)
    best = np.empty(lattice.nodes.size)
    for s in range(lattice.sets.size):
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            node = int(lattice.nodes[edge])
            shifted = log_alpha(node, int(lattice.sets[s])) - sums.shifts[node]
            best[edge] = shifted + log_after[lattice.targets[edge]] - log_after[s]
    bound = elbo(scores, lattice, best)
    assert bound == pytest.approx(sums.log_z, abs=1e-9)
    for edge in range(best.size):
        step = np.zeros(best.size)
        step[edge] = 1e-4
        slope = (elbo(scores, lattice, best + step) - elbo(scores, lattice, best - step)) / 2e-4
        assert slope == pytest.approx(0.0, abs=1e-6)
    rng = np.random.default_rng(1)
    for size in (0.01, 0.1, 1.0):
        assert elbo(scores, lattice, best + size * rng.normal(size=best.size)) < bound


def test_chains_draw_orders_as_often_as_they_are_probable():
    scores = scores_of(4)
    orders, _, logs = zip(*weighted_orders(scores), strict=True)
    expected = np.exp(logs - np.logaddexp.reduce(logs))
    n = 4000
    drawn = draw_markov_chain_orders(OrderTarget.of(scores), n, seed=3, n_chains=2)
    found = [tuple(order) for order in drawn.reshape(-1, 4).tolist()]
    for order, p in zip(orders, expected, strict=True):
        assert abs(found.count(order) / (2 * n) - p) < 5 * math.sqrt(p * (1 - p) / (2 * n))
    np.testing.assert_array_equal(draw_markov_chain_orders(OrderTarget.of(scores), 5, seed=3, n_chains=2), drawn[:, :5])


def test_chains_heed_required_edges():
    x = gaussian_table(5, 30, 2)
    scores = family_scores(bge_of(x), StructurePrior(required=frozenset({(4, 3), (3, 2), (2, 1), (1, 0)})))
    drawn = draw_markov_chain_orders(OrderTarget.of(scores), 10, seed=1)
    assert (drawn == np.arange(5)[::-1]).all()


def test_coverage_is_the_mass_of_the_lattice():
    """The interval, with some room for 20 lattices at once, holds the exact mass; and the mass of graphs is larger."""
    scores = scores_of(8, seed=3, n=15)
    target = OrderTarget.of(scores)
    exact = lattice_order_sums(scores, lattice_of_all_orders(scores))
    orders = draw_markov_chain_orders(target, 60, seed=9)
    first = np.unique(order_prefix_sets(draw_markov_chain_orders(target, 2, seed=1, n_chains=2)))
    for most in (30, 60, 100, 150):
        sets = grow_lattice_sets(target, first, most)
        lattice = lattice_from_node_sets(sets, scores)
        mass = math.exp(lattice_order_sums(scores, lattice).log_z - exact.log_z)
        found = lattice_coverage(target, lattice, orders, seed=1)
        assert found.orders.low - 0.03 <= mass <= found.orders.high + 0.03
        assert found.graphs.share >= found.orders.share
        assert found.n_draws == 480


def test_a_graph_is_covered_if_any_of_its_orders_is():
    """One order alone covers every graph that has it among its orders."""
    scores = scores_of(4, seed=5)
    target = OrderTarget.of(scores)
    orders = draw_markov_chain_orders(target, 400, seed=4)
    order = (2, 0, 3, 1)
    sets = np.unique(order_prefix_sets(np.array(order)))
    found = lattice_coverage(target, lattice_from_node_sets(sets, scores), orders, seed=2)

    def log_family(node, parents):
        return float(scores.of(node)[scores.index(node, parents)])

    graphs, weights, _ = naive.graph_posterior(log_family, 4)
    place = {node: step for step, node in enumerate(order)}
    share = sum(
        weight
        for graph, weight in zip(graphs, weights, strict=True)
        if all(place[parent] < place[node] for node, own in enumerate(graph) for parent in own)
    )
    assert abs(found.graphs.share - share) < 5 * math.sqrt(share * (1 - share) / 3200) + 0.01


def test_intervals_of_shares():
    """Clopper and Pearson's; draws that differ between chains more than within count fewer."""
    independent = np.zeros((1, 50), bool)
    independent[0, :10] = True
    share = clopper_pearson_coverage(independent)
    assert (share.share, share.low, share.high) == pytest.approx((0.2, 0.100, 0.337), abs=1e-3)
    stuck = np.zeros((4, 50), bool)
    stuck[0] = True
    assert clopper_pearson_coverage(stuck).high > 0.75
    whole, nothing = clopper_pearson_coverage(np.ones((2, 50), bool)), clopper_pearson_coverage(np.zeros((2, 50), bool))
    assert (whole.share, whole.high) == (1.0, 1.0)
    assert whole.low == pytest.approx(0.025 ** (1 / 100))
    assert (nothing.share, nothing.low) == (0.0, 0.0)


def table(d, n=60, seed=6):
    x = gaussian_table(d, n, seed)
    return pa.table({f"x{i}": x[:, i] for i in range(d)})


def test_blocks_with_all_sets_answer_as_exact_does():
    exact, blocks = learned(table(6)), learned(table(6), method="blocks", sets=100)
    coverage = blocks.posterior.coverage
    assert not coverage.is_exact
    assert coverage.orders.share == coverage.graphs.share == 1.0
    np.testing.assert_allclose(blocks.probabilities, exact.probabilities, atol=1e-9)
    told = blocks.answer([Edges()])[0]["coverage"]
    assert told["orders"] == 1.0
    assert told["orders_interval"][0] > 0.98
    assert told["n_draws"] == 200


def test_blocks_of_few_sets_say_so_and_heed_candidates():
    x = np.random.default_rng(8).normal(size=(60, 12))
    noise = pa.table({f"x{i}": column for i, column in enumerate(x.T)})
    model = learned(noise, method="blocks", sets=600, candidates=5, draws=80)
    assert model.posterior.sets.size == 600
    assert max(own.size for own in model.posterior.scores.candidates) == 5
    coverage = model.posterior.coverage
    assert coverage.orders.share < coverage.graphs.share  # of independent columns every order has the same graphs
    assert coverage.graphs.low <= coverage.graphs.share <= coverage.graphs.high
    assert not any(told["is_exact"] for told in model.answer([Paths(n=50), Effects(n=50)]))
    corrected = model.answer([Graphs(n=50, prior="graph")])[0]
    assert sum(graph["weight"] for graph in corrected["graphs"]) == pytest.approx(1.0)
    header, arrays = model.to_arrays()
    assert type(model).from_arrays(header, arrays).answer([Graph()]) == model.answer([Graph()])
