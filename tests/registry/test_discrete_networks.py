"""Trained networks as BIF and networks of others as models, against all worlds, one by one."""

import itertools

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fewpass import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier, SumProductNetwork, load
from learners.circuits.columns import labels_of
from learners.circuits.structures.from_network import NetworkTooLarge
from learners.ensembles.model import EnsembleModel
from learners.models.query import Conditional, Marginal
from learners.orders.formats.bif import parse_bif
from learners.orders.formats.network_files import read_network, write_network
from learners.orders.formats.network_tables import InvalidNetwork, Network, NetworkFileError
from learners.registry.discrete_networks import NoNetwork, TooManyCells, network_model, network_of, network_text
from learners.schema.encoding.encode import encode
from tests.orders.conftest import NETWORKS, needs_networks

TOLERANCE = 1e-12


def probability(network, world):
    """P(world) by the definition: the product over the variables of p(x | parents)."""
    found = 1.0
    for name, own in network.parents.items():
        table = network.tables[name][tuple(world[parent] for parent in own)]
        found *= table[network.values[name].index(world[name])]
    return found


def worlds(network, **given):
    for values in itertools.product(*network.values.values()):
        world = dict(zip(network.values, values, strict=True))
        if all(world[name] == value for name, value in given.items()):
            yield world


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    word = np.array(["u, v", 'say "w"', "x"])[(y + (rng.random(600) < 0.3)) % 3].astype(object)
    word[::9] = None
    size = rng.normal(y, 1.0)
    flag = (size + rng.normal(size=600)) > 1
    return pa.table({"a word": word, "size": size, "flag": flag, "class": y})


@pytest.fixture(scope="module")
def tan(table):
    return TAN().fit(table, "class")


@pytest.mark.parametrize(
    "make", [NB, TAN, lambda: KDB(k=2), lambda: SKDB(k=2), lambda: KDB(k=1, estimator="hdp"), ESKDB, FewPassClassifier]
)
def test_the_text_of_a_trained_network_answers_as_the_model(make, table):
    estimator = make().fit(table, "class")
    model = estimator.model_.joint if isinstance(estimator.model_, EnsembleModel) else estimator.model_
    network = parse_bif(estimator.to_network())
    names = [model.schema.attributes[i].name for i in model.network.order]
    assert set(network.values) == {"class", *names} and "class" in network.parents["size"]
    rows = table.filter(pc.is_valid(table["a word"])).slice(0, 30)  # of a null the model also asks what it may hide
    chunk = encode(rows.combine_chunks().to_batches()[0], model.schema, with_class=False)
    answered = model.predict_proba(chunk)
    for row in range(30):
        world = {}
        for i in model.network.order:
            attribute = model.schema.attributes[i]
            # By place: how the format writes quotes within a text is its own matter.
            world[attribute.name] = network.values[attribute.name][chunk.x[i, row]]
            assert len(network.values[attribute.name]) == len(labels_of(attribute))
        joint = np.array([probability(network, world | {"class": value}) for value in network.values["class"]])
        assert joint / joint.sum() == pytest.approx(answered[row], abs=1e-6)  # tables hold logarithms as float32


@pytest.mark.parametrize("ending", ["bif", "xmlbif", "bifxml", "xml", "xdsl"])
def test_what_goes_out_comes_in_again(ending, tan, tmp_path):
    tan.to_network(tmp_path / f"net.{ending}")
    again = load(tmp_path / f"net.{ending}")
    assert isinstance(again, SumProductNetwork)
    (answer,) = again.model_.answer([Conditional("class", {"flag": "True"})])
    told = answer["distributions"]["class"]
    assert list(told.values()) == pytest.approx(tan.predict_proba({"flag": True})[0].tolist(), abs=1e-6)


def random_network(seed):
    """Of six variables, with zeros, and one that hangs together with nothing."""
    rng = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(6)]
    values = {name: tuple(f"s{j}" for j in range(rng.integers(1, 4))) for name in names}
    parents = {name: tuple(rng.permutation(names[:i])[: rng.integers(0, 3)]) for i, name in enumerate(names[:5])}
    parents["v5"] = ()
    tables = {}
    for name, own in parents.items():
        tables[name] = {}
        for context in itertools.product(*(values[parent] for parent in own)):
            p = rng.random(len(values[name])) * (rng.random(len(values[name])) < 0.7)
            p[0] += p.sum() == 0
            tables[name][context] = tuple((p / p.sum()).tolist())
    return Network(values, parents, tables)


@pytest.mark.parametrize("seed", range(12))
def test_imported_networks_answer_as_all_their_worlds(seed):
    network = random_network(seed)
    model = network_model(network)
    joint = {tuple(world.values()): probability(network, world) for world in worlds(network)}
    queries = [Marginal(dict(zip(network.values, values, strict=True))) for values in joint]
    told = [answer["probability"] for answer in model.answer(queries)]
    assert told == pytest.approx(list(joint.values()), abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_networks_go_through_all_formats_and_come_back_the_same(seed, tmp_path):
    network = again = random_network(seed)
    for form in ("bif", "xmlbif", "xdsl", "bif"):
        path = tmp_path / f"net.{form}"
        path.write_text(write_network("any", again, form))
        again = read_network(path)
        assert again.values == network.values and again.parents == network.parents
        for name in network.values:
            assert again.probabilities(name) == network.probabilities(name)
    imported = network_of(load(path).model_)
    assert imported.values == network.values and imported.parents == network.parents
    for name in network.values:
        assert np.allclose(imported.probabilities(name), network.probabilities(name), rtol=0, atol=TOLERANCE)
    ask = [Conditional(name) for name in network.values]
    assert [a["distributions"] for a in load(path).model_.answer(ask)] == [
        {name: pytest.approx(p, abs=TOLERANCE) for name, p in a["distributions"].items()}
        for a in network_model(network).answer(ask)
    ]


@needs_networks
@pytest.mark.parametrize("name", ["asia", "cancer", "earthquake", "sachs", "survey", "alarm", "insurance"])
def test_networks_of_other_authors_are_read(name):
    network = read_network(NETWORKS / f"{name}.bif")
    model = network_model(network)
    (answer,) = model.answer([Conditional()])
    for column, told in answer["distributions"].items():
        assert sum(told.values()) == pytest.approx(1)
        if not network.parents[column]:
            assert list(told.values()) == pytest.approx(network.tables[column][()], abs=1e-6)


COIN = "variable coin { type discrete [ 2 ] { head, tail }; }"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variable x { type continuous; }", "'x' of the network has no values"),
        ("variable x { type discrete [ 2 ] { a, a }; }", "has the same value twice"),
        (COIN + "probability ( coin ) { table 0.5, 0.6; }", "that sum to 1.1, or a negative one"),
        (COIN + "probability ( coin ) { table 1.5, -0.5; }", "or a negative one"),
        (COIN, "'coin' of the network has no probabilities"),
        (COIN + "probability ( coin ) { table 1; }", r"has 1 probabilities and 2 values"),
        (COIN + COIN.replace("coin", "b") + "probability ( coin ) { table 1, 0; } probability ( b | coin ) { (head) 1, 0; }",
         r"has no probabilities for \('tail',\)"),
        (COIN + COIN.replace("coin", "b") + "probability ( coin | b ) { table 1, 0, 1, 0; } probability ( b | coin ) { table 1, 0, 0, 1; }",
         "is its own ancestor: "),
        (COIN + COIN.replace("coin", "b") + "probability ( coin ) { table 1, 0; } probability ( b | coin ) { table 1, 0, 1; }",
         "has 3 probabilities in its table and needs 4"),
        (COIN + COIN.replace("coin", "b") + "probability ( coin ) { table 1, 0; } probability ( b | coin ) { (edge) 1, 0; }",
         r"has probabilities for \('edge',\), which are no values"),
    ],
)  # fmt: skip
def test_texts_that_are_no_network_are_refused(text, message):
    with pytest.raises(InvalidNetwork, match=message):
        network_model(parse_bif(text))


def test_what_is_no_network_or_too_large_is_refused(table, tmp_path):
    circuit = SumProductNetwork().fit(table, "class")
    with pytest.raises(NoNetwork, match="A model of kind 'circuit' is no Bayesian network"):
        circuit.to_network()
    many = pa.table(
        {name: [f"{i % 97}" for i in range(2000)] for name in "abc"} | {"class": [i % 2 for i in range(2000)]}
    )
    with pytest.raises(TooManyCells, match="more than 1,048,576 that a file may have"):
        network_text(KDB(k=2, columns=dict.fromkeys("abc", "nominal")).fit(many, "class").model_, "m")
    with pytest.raises(NetworkTooLarge, match="max_edges=10"):
        network_model(random_network(0), max_edges=10)
    (tmp_path / "bad.bif").write_text("network a {\n}\nvariabel b {\n}")
    with pytest.raises(NetworkFileError, match="line 3"):
        load(tmp_path / "bad.bif")
