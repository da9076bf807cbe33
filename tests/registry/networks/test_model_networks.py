"""Networks that answer as circuits do: the best graph of a posterior, and files."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from fewpass import StructurePosterior
from learners.models.query import Conditional, Graph, Map, Marginal, Moments, Sample
from learners.orders.formats.bif import parse_bif
from learners.orders.formats.network_tables import Network
from learners.registry.discrete_networks import network_model
from tests.strategies import up_to


def random_network(seed, d=5):
    """A random acyclic network of d variables of 2 or 3 values, with zeros; some have no parents."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(d)
    values = {f"x{v}": tuple("abc"[: int(rng.integers(2, 4))]) for v in range(d)}
    parents, tables = {}, {}
    for place, v in enumerate(order.tolist()):
        n = int(rng.integers(0, min(place, 3) + 1))
        own = tuple(f"x{u}" for u in rng.choice(order[:place], n, replace=False))
        parents[f"x{v}"] = own
        rows = {}
        for key in itertools.product(*(values[name] for name in own)):
            p = rng.dirichlet(np.ones(len(values[f"x{v}"])))
            p = np.where(p < 0.1, 0.0, p)
            rows[key] = tuple((p / p.sum()).tolist())
        tables[f"x{v}"] = rows
    return Network(values, parents, tables)


def joint_of(network):
    """Every assignment and its probability, by the definition."""
    names = list(network.values)
    for cell in itertools.product(*network.values.values()):
        row = dict(zip(names, cell, strict=True))
        p = 1.0
        for name in names:
            given = tuple(row[parent] for parent in network.parents[name])
            p *= network.tables[name][given][network.values[name].index(row[name])]
        yield row, p


@pytest.mark.parametrize("seed", up_to(40, 200))
def test_a_network_of_a_file_answers_as_enumeration_does(seed):
    network = random_network(seed)
    model = network_model(network)
    cells = list(joint_of(network))
    evidence = dict(list(max(cells, key=lambda cell: cell[1])[0].items())[seed % 4 : seed % 4 + 2])
    held = [(row, p) for row, p in cells if all(row[name] == value for name, value in evidence.items())]
    total = sum(p for _, p in held)
    marginal, conditional, best, sample = model.answer(
        [Marginal(evidence), Conditional(evidence=evidence), Map(evidence=evidence), Sample(50, evidence)]
    )
    assert marginal["probability"] == pytest.approx(total, abs=1e-10)
    for name, told in conditional["distributions"].items():
        for value, p in told.items():
            expected = sum(q for row, q in held if row[name] == value) / total
            assert p == pytest.approx(expected, abs=1e-10)
    assert np.exp(best["log_probability"]) == pytest.approx(max(p for _, p in held), abs=1e-10)
    possible = [row for row, p in held if p > 0]
    assert all(row in possible for row in sample["rows"])


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
