"""Posteriors over structures as circuits: each graph is as probable as enumeration says, also when read from a file."""

import math

import numpy as np
import pyarrow as pa
import pytest

from fewpass import StructurePosterior
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.structures.text import parse_text, to_text
from learners.models.query import Conditional, Map, Sample
from learners.registry.networks import order_circuits
from learners.registry.networks.order_circuits import TooManyParentSets
from tests.naive import orders as naive
from tests.naive.orders import naive_bdeu
from tests.orders.problems import gaussian_table, log_fair, naive_bge

NAMES = ["a", "b", "c", "d"]


def numbers(**parameters):
    x = gaussian_table(4, 40, 3)
    posterior = StructurePosterior(**parameters).fit(pa.table(dict(zip(NAMES, x.T, strict=True))))
    return posterior, naive_bge((x - x.mean(axis=0)) / x.std(axis=0))


def words():
    codes = np.random.default_rng(5).integers(0, 2, (3, 50))
    codes[2] = np.where(codes[2] == 1, codes[0], codes[1])
    table = pa.table({name: [f"{name}{v}" for v in own] for name, own in zip(NAMES[:3], codes, strict=True)})
    return StructurePosterior().fit(table), naive_bdeu(codes, [2, 2, 2], 1.0)


def world_of(model, graph):
    """The codes of a graph."""
    told = [", ".join(NAMES[parent] for parent in sorted(own)) or "(none)" for own in graph]
    return [attribute.values.index(own) for attribute, own in zip(model.schema.attributes, told, strict=True)]


@pytest.mark.parametrize("problem", [numbers, words])
def test_a_world_is_a_graph_with_its_probability(problem):
    posterior, log_family = problem()
    model = posterior.order_circuit()
    d = model.schema.n_attributes
    graphs, weights, _ = naive.graph_posterior(lambda i, own: log_family(i, own) + log_fair(d, len(own)), d)
    worlds = np.array([world_of(model, graph) for graph in graphs]).T
    again = parse_text(to_text(model.circuit, model.schema).splitlines(), "text")
    for circuit in (model.circuit, again):
        np.testing.assert_allclose(np.exp(log_values(circuit, worlds)), weights, rtol=1e-5, atol=1e-12)
    assert np.sum(weights) == pytest.approx(1.0)
    shares = model.answer([Conditional(("a",))])[0]["distributions"]["a"]
    expected = sum(w for graph, w in zip(graphs, weights, strict=True) if set(graph[0]) == {1})
    assert shares["b"] == pytest.approx(expected, rel=1e-5, abs=1e-12)
    best = model.answer([Map()])[0]
    assert best["log_probability"] == pytest.approx(math.log(max(weights)), rel=1e-5)


def test_limits_and_known_edges_leave_what_is_possible():
    posterior, _ = numbers(max_parents=1, required=["a->b"], method="blocks", sets=100)
    model = posterior.order_circuit()
    assert model.schema.attributes[1].values == ("a",)
    assert all("," not in value for attribute in model.schema.attributes for value in attribute.values)
    rows = model.answer([Sample(200)])[0]["rows"]
    edges = posterior.edge_probabilities_
    for i, parent in enumerate(NAMES):
        share = np.mean([row["d"] == parent for row in rows])
        assert share == pytest.approx(edges[i, 3], abs=5 * math.sqrt(0.25 / 200))


def test_too_many_parent_sets_are_refused(monkeypatch):
    monkeypatch.setattr(order_circuits, "MOST_PARAMETERS", 100)
    with pytest.raises(TooManyParentSets, match="256 parameters in its leaves, more than 100"):
        numbers()[0].order_circuit()
