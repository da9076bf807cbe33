"""Every query against the 29,281 graphs of five columns, with and without evidence, under both priors, over all orders and a lattice."""

import math
from functools import lru_cache

import numpy as np
import pytest

from learners.models.query import Edges, Effects, Graph, Graphs, Paths, Score
from learners.orders.lattice.lattice import Coverage, OrderPosterior
from learners.orders.queries.known_network import adjacency, essential_graph
from learners.orders.queries.queries import GraphQueries
from learners.orders.scores.bdeu_bge import Standard
from learners.orders.scores.scores import StructurePrior
from tests.naive import orders as naive
from tests.orders.problems import bge_of, family_scores, gaussian_table, log_fair, naive_bge

D, N = 5, 3000
NAMES = list("abcde")
GIVEN = [((), ()), (("a->c", "d->b"), ("b->c",)), ((), ("a->b", "b->a"))]
PRIORS = ("order", "graph")


@lru_cache
def asked(method):
    bge = bge_of(gaussian_table(D, 25, 1))
    sets = None if method == "exact" else np.arange(1 << D, dtype=np.uint64)
    coverage = Coverage() if method == "exact" else Coverage(False)
    return GraphQueries(
        OrderPosterior(family_scores(bge, StructurePrior()), sets, coverage, bge, Standard.none(D)), NAMES
    )


@lru_cache
def of_all_graphs(given, prior):
    """Every graph with these edges, its probability, and log Z."""
    plain = naive_bge(gaussian_table(D, 25, 1))
    log_family = lru_cache(lambda i, p: plain(i, p) + log_fair(D, len(p)))
    present, absent = ([(NAMES.index(e[0]), NAMES.index(e[-1])) for e in edges] for edges in given)
    return naive.graph_posterior(log_family, D, prior == "order", present, absent)


MATRICES = {
    "edges": lru_cache(None)(lambda graph: naive.edge_probabilities([graph], [1.0], D)),
    "paths": lru_cache(None)(lambda graph: naive.ancestor_matrix(graph).astype(float)),
    "effects": lru_cache(None)(lambda graph: naive.effect_matrix(graph, asked("exact").posterior.bge.scale)),
}


@lru_cache
def mean_of(given, prior, what):
    graphs, weights, _ = of_all_graphs(given, prior)
    return sum(w * MATRICES[what](graph) for graph, w in zip(graphs, weights, strict=True) if w > 1e-13)


def matrix(pairs, what):
    found = np.zeros((D, D))
    for pair in pairs:
        found[NAMES.index(pair["from"]), NAMES.index(pair["to"])] = pair[what]
    return found


def parents_of(edges):
    pairs = [(NAMES.index(edge["from"]), NAMES.index(edge["to"])) for edge in edges]
    return tuple(tuple(sorted(a for a, child in pairs if child == node)) for node in range(D))


def pair_states(parents):
    """Of each pair of nodes, whether there is no edge (0), or which way it goes."""
    return np.array([(a in parents[b]) + 2 * (b in parents[a]) for a in range(D) for b in range(a)])


def check(found, expected, pairs, what):
    """Exactly; or within five standard errors of draws, and a few draws where an event is rare."""
    expected = expected - np.diag(np.diag(expected))
    if "standard_error" not in pairs[0]:
        np.testing.assert_allclose(found, expected, atol=1e-9)
        return
    error = matrix(pairs, "standard_error")
    assert np.all(np.abs(found - expected) <= 5 * error + 12 / N), what


@pytest.mark.parametrize("method", ["exact", "blocks"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("given", GIVEN)
def test_means_over_graphs(method, prior, given):
    present, absent = given
    queries = {"present": present, "absent": absent, "prior": prior, "n": N, "seed": 5}
    for kind, what, told in (
        (Edges, "edges", "probability"),
        (Paths, "paths", "probability"),
        (Effects, "effects", "mean"),
    ):
        answer = asked(method).answer(kind(**queries))
        check(matrix(answer[what], told), mean_of(given, prior, what), answer[what], what)
        if kind is Edges:
            assert ("effective_sample_size" in answer) == (prior == "graph")
        if kind is Paths:
            assert answer["is_exact"] == (method == "exact" and prior == "order")


@pytest.mark.parametrize("method", ["exact", "blocks"])
@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("given", GIVEN)
def test_drawn_graphs(method, prior, given):
    present, absent = given
    query = Graphs(N, present=present, absent=absent, prior=prior, seed=6)
    answer = asked(method).answer(query)
    assert asked(method).answer(query) == answer
    graphs, weights, _ = of_all_graphs(given, prior)
    expected = dict(zip(graphs, weights, strict=True))
    under_order = dict(zip(*of_all_graphs(given, "order")[:2], strict=True))
    of_draws = {parents_of(graph["edges"]): graph for graph in answer["graphs"]}
    assert sum(graph["count"] for graph in answer["graphs"]) == N
    for parents, graph in of_draws.items():
        # Told is the log posterior under the order prior, in which the graphs are drawn.
        assert graph["log_posterior"] == pytest.approx(math.log(under_order[parents]), abs=1e-8)
        share = under_order[parents]
        assert abs(graph["count"] / N - share) < 5 * math.sqrt(share * (1 - share) / N) + 4 / N
        if prior == "graph":
            # As many draws as are expected, each of the same weight.
            error = expected[parents] / math.sqrt(N * share) + graph["weight"] / graph["count"]
            assert abs(graph["weight"] - expected[parents]) < 6 * error
    most = max(expected, key=expected.get)
    assert most in of_draws


@pytest.mark.parametrize("method", ["exact", "blocks"])
@pytest.mark.parametrize("given", GIVEN)
def test_the_best_graph(method, given):
    present, absent = given
    best = asked(method).answer(Graph(present, absent))
    _, by_score, log_z = of_all_graphs(given, "graph")
    top = int(np.argmax(by_score))
    assert best["log_score"] == pytest.approx(math.log(by_score[top]) + log_z)
    under_order = dict(zip(*of_all_graphs(given, "order")[:2], strict=True))
    assert best["log_posterior"] == pytest.approx(math.log(under_order[parents_of(best["edges"])]), abs=1e-8)


states = lru_cache(None)(pair_states)
essential = lru_cache(None)(lambda graph: essential_graph(adjacency(graph)))


def essential_distance(one, other):
    """The pairs of nodes that the essential graphs of two graphs join differently."""
    differs = (essential(one)[0] != essential(other)[0]) | (essential(one)[1] != essential(other)[1])
    return np.triu(differs | differs.T, 1).sum()


@lru_cache
def of_the_other(row):
    """The expected structural Hamming distances of one of all graphs: edge by edge, and of essential graphs."""
    graphs, weights, _ = of_all_graphs(GIVEN[0], "order")
    other = naive.all_graphs(D)[row]
    likely = [(graph, w) for graph, w in zip(graphs, weights, strict=True) if w > 1e-12]
    plain = sum(w * np.sum(states(graph) != states(other)) for graph, w in likely)
    return plain, sum(w * essential_distance(graph, other) for graph, w in likely if w > 1e-9)


@pytest.mark.parametrize("method", ["exact", "blocks"])
def test_any_other_graph(method):
    _, all_scores, all_z = of_all_graphs(GIVEN[0], "graph")
    order_weights = dict(zip(*of_all_graphs(GIVEN[0], "order")[:2], strict=True))
    for row in (0, 1000, 20_000):
        parents = naive.all_graphs(D)[row]
        edges = tuple(f"{NAMES[a]}->{NAMES[b]}" for b, own in enumerate(parents) for a in own)
        told = asked(method).answer(Score(edges))
        assert told["log_score"] == pytest.approx(math.log(all_scores[row]) + all_z, abs=1e-8)
        assert told["log_posterior"] == pytest.approx(math.log(order_weights[parents]), abs=1e-8)
        assert told["log_odds"] == pytest.approx(math.log(all_scores[row] / all_scores.max()), abs=1e-8)
        expected, of_essential_graphs = of_the_other(row)
        assert told["expected_shd"] == pytest.approx(expected, abs=1e-6)
        error = told["expected_essential_shd_error"]
        assert told["expected_essential_shd"] == pytest.approx(of_essential_graphs, abs=4 * error + 0.02)
