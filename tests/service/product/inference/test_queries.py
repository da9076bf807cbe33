"""Queries from their checks to their answers: of a network that is too large for a circuit, and of a posterior over structures."""

import numpy as np
import pyarrow as pa
import pytest

from fewpass import ESKDB, KDB, Conditional, Edges, Map, Marginal, Sampling, StructurePosterior
from learners.circuits.queries.likelihoods import read_evidence
from learners.registry.networks.likelihood_weighting import NotSampled
from learners.registry.networks.network_answers import compile_model_circuit
from service.product.inference import queries
from service.product.inference.query_checks import check_queries


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 300)
    return pa.table({name: np.char.mod("v%d", (y + rng.integers(0, 2, 300)) % 3) for name in "abc"} | {"class": y})


@pytest.mark.parametrize("make", [KDB, lambda: ESKDB(members=2), StructurePosterior])
def test_samples_are_limited_checked_and_answered(table, make, monkeypatch):
    estimator = make()
    model = (
        estimator.fit(table) if isinstance(estimator, StructurePosterior) else estimator.fit(table, "class")
    ).model_
    asked = [Conditional("class", {"a": "v1"}, sampling=Sampling(0.01, 60.0)), Marginal(sampling=Sampling(0.01, 60.0))]
    exact = queries.answer_model_queries(model, asked)
    assert all("sampled" not in each for each in exact)

    # Too many probabilities for any table, too little memory for an exact answer.
    monkeypatch.setattr("learners.registry.networks.model_networks.MOST_CELLS", 0)
    monkeypatch.setattr(
        queries, "compiled_network", lambda model: compile_model_circuit(model, max_edges=0, most_bytes=0)
    )
    limited = queries.limit_queries(model, asked, 100, 20.0)
    assert [query.sampling.time_limit_s for query in limited] == [10.0, 10.0]
    check_queries(model, limited)
    queries.check_query_answer_size(model, limited, 100)
    told = queries.answer_model_queries(model, limited)
    p, q = told[0]["distributions"]["class"], exact[0]["distributions"]["class"]
    assert all(abs(p[c] - q[c]) <= 4 * told[0]["standard_errors"]["class"][c] for c in p)
    assert told[1]["probability"] == 1.0 and "sampled" not in told[1]
    (by_itself,) = queries.answer_model_queries(model, [Conditional("class", {"a": "v1"})])
    assert by_itself["sampled"]["largest_error"] <= 0.002
    with pytest.raises(NotSampled, match="'map'"):
        queries.answer_model_queries(model, [Map(("a",))])


def test_evidence_is_read_once(table, monkeypatch):
    """By what a request does: the size of its answers follows from the names of the columns."""
    model, read = KDB().fit(table, "class").model_, []
    monkeypatch.setattr(
        "learners.circuits.queries.queries.read_evidence", lambda *given: read.append(given) or read_evidence(*given)
    )
    asked = queries.limit_queries(model, [Map(evidence={"a": "v1"}), Conditional("b", {"class": 1})], 100, 20.0)
    queries.check_query_answer_size(model, asked, 100)
    assert not read
    best, _ = queries.answer_model_queries(model, asked)
    assert len(read) == 2 and best["assignment"].keys() == {"b", "c", "class"}


def test_a_posterior_answers_about_structures_and_about_its_best_graph():
    """In the order in which queries of both kinds are asked."""
    rng = np.random.default_rng(2)
    a = rng.choice(["x", "y"], 200)
    model = StructurePosterior().fit(pa.table({"a": a, "b": np.where(rng.random(200) < 0.8, a, "z")})).model_
    asked = [Conditional(("a",), {"b": "x"}), Edges(), Map(evidence={"b": "y"})]
    check_queries(model, asked)
    queries.check_query_answer_size(model, queries.limit_queries(model, asked, 10, 5.0), 100)
    first, edges, best = queries.answer_model_queries(model, asked)
    assert first["graph"] == best["graph"] == "best" and best["assignment"] == {"a": "y"}
    assert first["distributions"]["a"]["x"] > 0.9
    assert edges["kind"] == "edges" and "graph" not in edges
    assert queries.answer_model_queries(model, [Edges()])[0] == edges
