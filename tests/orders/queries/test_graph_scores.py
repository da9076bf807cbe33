"""Graphs that the tables or the lattice of a posterior do not hold: scored by their own families."""

import numpy as np
import pyarrow as pa
import pytest

from learners.models.query import Edges, Score
from learners.orders.lattice.graph_samples import graph_parent_bitsets
from learners.orders.queries.graph_scores import UnscoredFamily, estimate_log_order_count
from learners.registry.model_kinds import load_model
from tests.naive import orders as naive
from tests.naive.orders import naive_bdeu
from tests.orders.problems import EXACT, learned, log_fair, naive_bge, standardised


def wide(n=400, d=24, seed=0):
    """The first column is the sum of six others and noise."""
    x = np.random.default_rng(seed).normal(size=(n, d))
    x[:, 0] = x[:, 1:7].sum(axis=1) + 0.1 * x[:, 0]
    return pa.table({f"c{i:02}": x[:, i] for i in range(d)})


def parity(n=1500, seed=2):
    x = np.random.default_rng(seed).integers(0, 2, (n, 6))
    x[:, 5] = x[:, :5].sum(axis=1) % 2
    return pa.table({f"b{i}": pa.array(np.array(["no", "yes"])[x[:, i]]) for i in range(6)}), x.T


def random_graph(d, rng, most):
    """Parents of each node along a random order."""
    order, found = rng.permutation(d), [()] * d
    for place, node in enumerate(order.tolist()):
        size = int(rng.integers(0, min(most, place) + 1))
        found[node] = tuple(sorted(rng.choice(order[:place], size, replace=False).tolist()))
    return tuple(found)


def score_of(model, graph):
    names = model.names
    edges = tuple(f"{names[parent]}->{names[node]}" for node, own in enumerate(graph) for parent in own)
    return model.answer([Score(edges=edges)])[0]


@pytest.mark.parametrize(
    ("d", "n_graphs"), [(24, 20), *(pytest.param(d, 1000, marks=pytest.mark.faults) for d in (24, 32))]
)
def test_a_graph_beyond_candidates_and_lattice_has_its_score_and_says_so(d, n_graphs):
    table = wide(d=d)
    model = learned(table, method="blocks", candidates=4, sets=300, draws=16)
    log_of = naive_bge(standardised(table)[0])
    rng = np.random.default_rng(3)
    for graph in [random_graph(d, rng, 7) for _ in range(n_graphs)]:
        told = score_of(model, graph)
        expected = sum(log_of(node, own) + log_fair(d, len(own)) for node, own in enumerate(graph))
        assert told["log_score"] == pytest.approx(expected, rel=1e-9)
        assert told["log_posterior"] <= 0
        assert not told["is_covered"]
        is_outside = any(set(own) - set(model.posterior.scores.candidates[v].tolist()) for v, own in enumerate(graph))
        assert any("no candidate parent" in note for note in told["notes"]) == is_outside
    best = model.best.parents
    assert score_of(model, best)["is_covered"]


def test_edges_from_no_candidate_have_an_estimated_probability_and_never_zero():
    x = np.random.default_rng(5).normal(size=(40, 4))
    x[:, 3] += 0.4 * x[:, 0] + 0.3 * x[:, 1]
    table = pa.table({name: x[:, i] for i, name in enumerate("abcd")})
    full, few = learned(table), learned(table, candidates=2)
    assert "outside" not in full.answer([Edges()])[0]
    told = few.answer([Edges()])[0]
    outside = [pair for pair in told["edges"] if not pair.get("is_candidate", True)]
    assert len(outside) == 4 == told["outside"]["n_edges"]
    assert 0 < told["outside"]["mass"] < 1
    truth = {(pair["from"], pair["to"]): pair["probability"] for pair in full.answer([Edges()])[0]["edges"]}
    for pair in outside:
        expected = pytest.approx(truth[pair["from"], pair["to"]], abs=0.1 + 4 * pair["standard_error"])
        assert 0 < pair["probability"] == expected


def test_more_parents_than_the_limit_are_counted_from_the_rows_that_are_kept():
    table, codes = parity()
    model = learned(table, max_parents=4)
    graph = ((), (), (), (), (), (0, 1, 2, 3, 4))
    log_of = naive_bdeu(codes, [2] * 6, 1.0)
    expected = sum(log_of(node, own) + log_fair(6, len(own)) for node, own in enumerate(graph))
    header, arrays = model.to_arrays()
    for one in (model, load_model(header, arrays)):
        told = score_of(one, graph)
        assert told["log_score"] == pytest.approx(expected, rel=1e-10)
        assert told["log_odds"] > 500
        assert "'b5' has 5 parents, and the tables hold at most 4: scored by the family itself" in told["notes"]
    with pytest.raises(UnscoredFamily, match="no score of 'b5' with the parents"):
        score_of(learned(table, max_parents=4, keep_rows=False), graph)


def test_a_graph_that_the_prior_forbids_is_impossible_in_words():
    told = score_of(learned(wide(d=4), forbidden=["c01->c00"]), ((1,), (), (), ()))
    assert told["log_score"] == -np.inf
    assert told["notes"] == ["the prior forbids the parents of 'c00' ('c01'), so the graph is impossible"]


def test_the_orders_of_a_graph_are_estimated():
    graph = ((), (0,), (0,), (1, 2), (), (4,))
    log, error = estimate_log_order_count(graph_parent_bitsets(graph), 7)
    assert log == pytest.approx(np.log(naive.n_orders(graph)), abs=5 * error)


def test_parity_is_found_by_default_and_an_answer_names_its_limits():
    table, _ = parity()
    model = learned(table)
    told = model.answer([Edges()])[0]
    assert told["coverage"] == EXACT
    assert sum(map(len, model.best.parents)) == 5
    assert model.facts["columns_at_limit"] == []
    few = learned(table, max_parents=2)
    assert few.answer([Edges()])[0]["coverage"]["limits"] == {"max_parents": 2, "candidates": None}
    at_limit = [name for name, own in zip(few.names, few.best.parents, strict=True) if len(own) == 2]
    assert few.facts["columns_at_limit"] == at_limit
