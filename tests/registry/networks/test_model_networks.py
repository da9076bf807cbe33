"""The best graph of a posterior answers as a network does."""

import numpy as np
import pyarrow as pa
import pytest

from fewpass import KDB, StructurePosterior
from learners import encode
from learners.models.query import Conditional, Graph, Moments, Sample
from learners.orders.formats.bif import parse_bif
from learners.registry.discrete_networks import network_model
from learners.registry.networks.model_networks import NoJointDistribution
from learners.registry.networks.network_answers import compile_model_circuit, model_arc_network


def test_the_best_graph_of_words_answers():
    rng = np.random.default_rng(2)
    a = rng.choice(["x", "y"], 400)
    b = np.where(rng.random(400) < 0.8, a, "z")
    posterior = StructurePosterior().fit(pa.table({"a": a, "b": b, "c": rng.choice(["u", "v"], 400)}))
    told = posterior.query(Conditional(("a",), {"b": "z"}))["distributions"]["a"]
    batch = pa.RecordBatch.from_pydict({"a": ["x", "y"] * 2, "b": ["z"] * 4, "c": ["u", "u", "v", "v"]})
    shares = np.exp(posterior.model_.log_likelihood(batch)).reshape(2, 2).sum(axis=0)
    assert told["x"] == pytest.approx(shares[0] / shares.sum())
    assert posterior.query(Graph())["kind"] == "graph"
    assert posterior.network() is posterior.network()
    again = network_model(parse_bif(posterior.to_network())).answer([Conditional(("a",), {"b": "z"})])[0]
    assert again["distributions"]["a"]["x"] == pytest.approx(told["x"])


def test_the_best_graph_of_numbers_answers_by_a_gaussian():
    rng = np.random.default_rng(3)
    x = rng.normal(3.0, 2.0, 3000)
    y = 10.0 - 4.0 * x + rng.normal(0.0, 1.5, 3000)
    posterior = StructurePosterior().fit(pa.table({"x": x, "y": y, "z": rng.normal(size=3000)}))
    told = posterior.query(Moments(("y",), {"x": 5.0}))["moments"]["y"]
    slope = np.cov(x, y)[0, 1] / x.var(ddof=1)
    assert told["mean"] == pytest.approx(y.mean() + slope * (5.0 - x.mean()), abs=0.05)
    assert told["variance"] == pytest.approx(2.25, rel=0.1)
    rows = posterior.query(Sample(500, {"x": 5.0}, seed=1))["rows"]
    assert np.mean([row["y"] for row in rows]) == pytest.approx(told["mean"], abs=0.4)


def test_a_classifier_without_a_joint_distribution_answers_no_queries():
    table = pa.table({"a": ["x", "y"] * 40, "b": ["p", "p", "q", "q"] * 20, "class": ["n", "m", "n", "n"] * 20})
    model = KDB(target="class", k=1, m=1.0, back_off="cell", prune=False).fit(table).model_
    assert model.predict_proba(encode(table, model.schema)).sum(axis=1) == pytest.approx(1.0)
    with pytest.raises(NoJointDistribution, match="Train with back_off=context to query it"):
        model_arc_network(model)
    with pytest.raises(NoJointDistribution, match="back_off=cell"):
        compile_model_circuit(model)
