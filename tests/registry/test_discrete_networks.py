"""Trained networks as BIF and networks of others as models, against all worlds, one by one."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from fewpass import ESKDB, KDB, NB, SKDB, TAN, FewPassClassifier, SumProductNetwork, load
from learners import Source, drive, encode, load_model
from learners.circuits.structures.from_network import NetworkTooLarge
from learners.ensembles.model import EnsembleModel
from learners.errors import LearnerError
from learners.models.evidence import Range
from learners.models.query import Conditional, Impute, Map, Marginal, Moments, Sample
from learners.orders.formats.bif import parse_bif
from learners.orders.formats.network_files import choose_network_file_format, format_network, read_network
from learners.orders.formats.network_tables import InvalidNetwork, NetworkFileError
from learners.registry import recipes
from learners.registry.discrete_networks import model_to_network, model_to_network_text, network_model
from learners.registry.kind import NoNetwork
from learners.registry.networks.model_networks import TablesTooLarge, best_graph_network
from learners.registry.networks.network_answers import answer_network_queries
from tests.naive.networks import probability, random_network
from tests.orders.conftest import NETWORKS, needs_networks
from tests.orders.problems import gaussian_table
from tests.strategies import up_to
from tests.support.orders import table_cells

TOLERANCE = 1e-12
COIN = "variable coin { type discrete [ 2 ] { head, tail }; }"


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    word = np.array(["u, v", 'say "w"', "x"])[(y + (rng.random(600) < 0.3)) % 3].astype(object)
    word[::9] = None
    size = rng.normal(y, 1.0)
    flag = (size + rng.normal(size=600)) > 1
    return pa.table({"a word": word, "size": size, "flag": flag, "class": y})


@pytest.mark.parametrize(
    "make", [NB, TAN, lambda: KDB(k=2), lambda: SKDB(k=2), lambda: KDB(k=1, estimator="hdp"), ESKDB, FewPassClassifier]
)
def test_the_text_of_a_trained_network_answers_as_the_model(make, table, tmp_path):
    estimator = make().fit(table, "class")
    model = estimator.model_.joint if isinstance(estimator.model_, EnsembleModel) else estimator.model_
    network = parse_bif(estimator.to_network(tmp_path / "net.bif"))
    assert isinstance(load(tmp_path / "net.bif"), SumProductNetwork) and read_network(tmp_path / "net.bif") == network
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
            assert len(network.values[attribute.name]) == len(attribute.unique_labels())
        joint = np.array([probability(network, world | {"class": value}) for value in network.values["class"]])
        assert joint / joint.sum() == pytest.approx(answered[row], abs=1e-6)  # tables hold logarithms as float32


@pytest.mark.parametrize("seed", up_to(3, 12))
def test_networks_of_files_become_models_that_answer_and_networks_again(seed, tmp_path):
    network = random_network(seed, 6)
    queries = [Conditional(name) for name in network.values]
    for form in ("bif", "xmlbif", "xdsl"):
        path = tmp_path / f"net.{form}"
        path.write_text(format_network("any", network, form))
        model = load(path).model_
        again = model_to_network(model)
        assert again.values == network.values and again.parents == network.parents
        for name in network.values:
            assert np.allclose(again.probabilities(name), network.probabilities(name), rtol=0, atol=TOLERANCE)
        assert same(model.answer(queries), network_model(network).answer(queries))


@pytest.mark.faults
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("program", ["pgmpy", "pyagrum"])
def test_networks_go_through_other_programs_where_they_are_installed(program, seed, tmp_path):
    """Values, names and tables: to 1e-12, and to the six digits that pyAgrum writes."""
    other, network = pytest.importorskip(program), random_network(seed, 6)
    ours, theirs = (str(tmp_path / f"{name}.{'bif' if program == 'pgmpy' else 'bifxml'}") for name in ("a", "b"))
    Path(ours).write_text(format_network("any", network, choose_network_file_format(ours, None)))
    if program == "pgmpy":
        from pgmpy.readwrite import BIFReader, BIFWriter

        BIFWriter(BIFReader(ours).get_model()).write(theirs)
    else:
        other.saveBN(other.loadBN(ours), theirs)
    again = read_network(theirs)
    assert again.values.keys() == network.values.keys()
    for name in network.values:
        tolerance = 1e-12 if program == "pgmpy" else 1e-5
        assert table_cells(again, name) == pytest.approx(table_cells(network, name), abs=tolerance)


@pytest.fixture(scope="module")
def plant():
    x = gaussian_table(5, 80, 3) * 10.0 ** np.arange(-3, 2) + 7.0
    names = ("flow", "rate (%)", "heat", "table", "e")
    return drive(recipes.learner("orders", {}, None), Source.of_table(pa.table(dict(zip(names, x.T, strict=True)))))


@pytest.mark.parametrize("form", ["bif", "sem"])
def test_networks_of_numbers_come_back_and_answer_the_same(plant, form, tmp_path):
    path = tmp_path / f"plant.{form}"
    path.write_text(model_to_network_text(plant, "plant", form))
    assert len(read_network(path).edges) > 2 and read_network(path) == model_to_network(plant)
    estimator = load(path)
    assert estimator.to_network(format=form) == path.read_text().replace("plant", "fewpass")
    model = load_model(*estimator.model_.to_arrays(), is_trusted=False)
    child, above = next((child, own) for child, own in read_network(path).parents.items() if own)
    queries = [
        Marginal({"heat": 7.1, "flow": 7.0}), Marginal({"heat": Range(6.9, 7.3)}), Moments(evidence={"e": 40.0}),
        Moments((child,), {"e": Range(0.0, 40.0)}), Impute(("table",), {"rate (%)": 7.0}), Map(evidence={"flow": 7.001}, solver="kbt"),
        Sample(3, {"heat": 7.2}), Moments((child,), do={above[0]: 8.0}),
    ]  # fmt: skip
    ours = best_graph_network(plant)
    for told, expected in zip(
        answer_network_queries(model, queries, lambda: model),
        answer_network_queries(plant, queries, ours.model),
        strict=True,
    ):
        assert same(told, {name: part for name, part in expected.items() if name != "graph"})
    assert model.structure()["edges"] and ours.parents == model.network.parents


def same(told, expected):
    """Whether numbers are equal to 1e-12 of their size, and all else is equal."""
    if isinstance(expected, dict):
        return told.keys() == expected.keys() and all(
            name == "seconds" or same(told[name], expected[name]) for name in expected
        )
    if isinstance(expected, list):
        return len(told) == len(expected) and all(map(same, told, expected))
    return told == (pytest.approx(expected, rel=TOLERANCE, abs=TOLERANCE) if isinstance(expected, float) else expected)


GAUSS = 'variable x { type continuous; }\nprobability ( x ) {\n property intercept "1";\n property deviation "2";\n}'


@pytest.mark.parametrize(
    ("ending", "text", "message"),
    [
        ("bif", GAUSS.replace('"1"', '"one"'), "line 3: expected a number, not 'one'"),
        ("bif", GAUSS.replace('"2"', '"-2"'), "line 5: expected a standard deviation above 0, not -2"),
        ("bif", GAUSS.replace("intercept", "note"), "line 5: expected an intercept, 0 coefficients and a deviation"),
        ("bif", GAUSS + COIN + "probability ( coin ) { table 0.5, 0.5; }", "'coin' of the network has values while other variables are numbers"),
        ("bif", GAUSS + GAUSS.replace("x", "y").replace("( y )", "( y | x )"), "line 9: expected an intercept, 1 coefficients"),
        ("sem", "x = 1[2]\n\ny = 2 + 3x[1]", "line 3: expected a number, not '3x'"),
        ("sem", "x = 1[2]\ny = 2 + 3*z[1]", "line 2: 'z' is not a variable"),
        ("sem", "x = 1[2]\nx = 1[2]", "line 2: variable 'x' is defined twice"),
        ("sem", "# x\nx = 1[0]", "line 2: expected a standard deviation above 0, not 0"),
        ("sem", "x = 1[inf]", "line 1: expected a number, not 'inf'"),
        ("sem", "x = 1", "line 1: expected an equation such as"),
        ("sem", "# nothing", "line 1: it has no equations"),
        ("sem", "x = 1 + 2*y[1]\ny = 1 - 2*x[1]", "is its own ancestor"),
        ("sem", "x = 1[1]\ny = 1 + 1e200*x[1]", "covariance"),
    ],
)  # fmt: skip
def test_equations_that_are_wrong_are_refused(ending, text, message, tmp_path):
    (tmp_path / f"net.{ending}").write_text(text)
    with pytest.raises(LearnerError, match=re.escape(message)):
        load(tmp_path / f"net.{ending}")


@needs_networks
@pytest.mark.parametrize(
    ("name", "n_nodes", "n_edges"),
    [("asia", 8, 8), ("cancer", 5, 4), ("earthquake", 5, 4), ("sachs", 11, 17), ("survey", 6, 6), ("alarm", 37, 46), ("insurance", 27, 52), ("hailfinder", 56, 66)],
)  # fmt: skip
def test_networks_of_other_authors_are_read(name, n_nodes, n_edges):
    network = read_network(NETWORKS / f"{name}.bif")
    assert (len(network.values), len(network.edges)) == (n_nodes, n_edges)
    model = network_model(network)
    (answer,) = model.answer([Conditional()])
    for column, told in answer["distributions"].items():
        assert sum(told.values()) == pytest.approx(1)
        if not network.parents[column]:
            assert list(told.values()) == pytest.approx(network.tables[column][()], abs=1e-6)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("variable x { type continuous; }", "'x' of the network needs values or an equation"),
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
         "has 3 probabilities in its table but needs 4"),
        (COIN + COIN.replace("coin", "b") + "probability ( coin ) { table 1, 0; } probability ( b | coin ) { (edge) 1, 0; }",
         r"has probabilities for \('edge',\), which are not values of its parents"),
    ],
)  # fmt: skip
def test_texts_that_are_no_network_are_refused(text, message):
    with pytest.raises(InvalidNetwork, match=message):
        network_model(parse_bif(text))


def test_what_is_no_network_or_too_large_is_refused(table, tmp_path):
    circuit = SumProductNetwork().fit(table, "class")
    with pytest.raises(
        NoNetwork, match="A model of kind 'circuit' is not a Bayesian network, so it cannot be exported as one"
    ):
        circuit.to_network()
    many = pa.table(
        {name: [f"{i % 97}" for i in range(2000)] for name in "abc"} | {"class": [i % 2 for i in range(2000)]}
    )
    with pytest.raises(TablesTooLarge, match="more than the 1,048,576 allowed here"):
        model_to_network_text(KDB(k=2, columns=dict.fromkeys("abc", "nominal")).fit(many, "class").model_, "m")
    with pytest.raises(NetworkTooLarge, match="max_edges=10"):
        network_model(random_network(0), max_edges=10).circuit  # noqa: B018
    (tmp_path / "bad.bif").write_text("network a {\n}\nvariabel b {\n}")
    with pytest.raises(NetworkFileError, match="line 3"):
        load(tmp_path / "bad.bif")
