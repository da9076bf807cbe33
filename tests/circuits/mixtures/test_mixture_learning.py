"""Mixtures of Gaussians from tables: what is chosen, what the model answers, and what is refused."""

import numpy as np
import pyarrow as pa
import pytest

from learners import encode, load_model
from learners.circuits.errors import InvalidEvidence
from learners.circuits.mixtures import component_search
from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.circuits.queries.column_values import fill_cells, nameable
from learners.errors import InvalidParameter, SchemaError
from learners.models.query import Conditional, Impute, Map, Marginal, Moments, Sample, Surprise
from tests.circuits.answer_circuits import learned
from tests.support.passes import same


def table_of(n, seed=0, missing=0.0):
    """Two columns that are nearly a function of each other, a third one, and a group on which they depend."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    a = rng.normal(size=n) + 3.0 * group
    b = 2.0 * a + 0.05 * rng.normal(size=n)
    c = rng.normal(size=n) - 2.0 * group
    numbers = {name: pa.array(x, mask=rng.random(n) < missing) for name, x in (("a", a), ("b", b), ("c", c))}
    return pa.table(numbers | {"group": np.where(group, "x", "y")})


@pytest.fixture(scope="module")
def model():
    return learned(table_of(1500), "group", structure="gaussian-mixture")


@pytest.fixture
def few_passes(monkeypatch):
    """For what does not depend on how near to its peak EM comes, nor on which covariance is the best."""
    monkeypatch.setattr(component_search, "MOST_PASSES", 8)
    monkeypatch.setattr(component_search, "POOLED", component_search.POOLED[:1])


def test_structure_auto_takes_the_mixture_where_columns_are_functions_of_each_other():
    table = table_of(700)
    found = learned(table, leaves="gaussian", minutes=0.001)
    assert isinstance(found, GaussianModel)
    told = found.facts["gaussians"]
    assert told["valid"] > told["valid_of_circuit"] + 0.5
    tree = learned(table, leaves="gaussian", structure="chow-liu")
    test = encode(table_of(1000, 1), found.schema)
    assert found.log_likelihood(test).mean() > tree.log_likelihood(test).mean() + 0.5


def test_structure_auto_keeps_the_circuit_and_tells_what_the_mixture_had(few_passes):
    rng = np.random.default_rng(0)
    # Independent columns of two peaks each: a mixture of whole rows needs 1,024 components.
    x = rng.integers(0, 2, (10, 700)) * 8.0 + rng.normal(size=(10, 700))
    table = pa.table({f"x{i}": own for i, own in enumerate(x)})
    found = learned(table, leaves="gaussian", minutes=0.001)
    assert type(found) is CircuitModel
    told = found.facts["gaussians"]
    assert told["valid"] < told["valid_of_circuit"] - 1.0
    assert {size["components"] for size in told["tried"]} >= {1, 2}


def test_masses_are_not_compared_with_densities():
    rng = np.random.default_rng(0)
    table = pa.table({"a": rng.integers(0, 9, 900), "b": rng.normal(size=900)})
    found = learned(table, leaves="auto", minutes=0.001)
    assert type(found) is CircuitModel
    assert "column 'a' has masses" in found.facts["gaussians"]["left_out"]
    with pytest.raises(SchemaError, match="column 'a' has masses, not a density"):
        learned(table, leaves="auto", minutes=0.001, structure="gaussian-mixture")


def test_a_table_without_numbers_and_other_learning_are_refused():
    table = pa.table({"a": ["x", "y"] * 30, "b": ["u", "v"] * 30})
    with pytest.raises(SchemaError, match="no column is numeric"):
        learned(table, structure="gaussian-mixture")
    with pytest.raises(InvalidParameter, match="learned by em"):
        learned(table, structure="gaussian-mixture", learning="adf")


def test_the_same_on_any_number_of_threads_and_with_so_many_components_as_wanted(few_passes):
    table = table_of(400, missing=0.1)
    one, two = (learned(table, threads=threads, structure="gaussian-mixture", states=3) for threads in (1, 2))
    assert one.mixture.n_components == 3 and same(one, two)


def test_missing_numbers_teach_nothing_wrong(few_passes):
    test, logs = table_of(1000, 1), []
    for share in (0.0, 0.2):
        found = learned(table_of(1500, 0, share), structure="gaussian-mixture", states=4)
        logs.append(found.log_likelihood(encode(test, found.schema)).mean())
    assert logs[1] > logs[0] - 0.1


def test_it_is_read_back_as_it_was(model):
    header, arrays = model.to_arrays()
    again = load_model(header, arrays, is_trusted=False)
    assert isinstance(again, GaussianModel) and same(again, model)
    chunk = encode(table_of(50, 2), model.schema)
    np.testing.assert_array_equal(again.predict_proba(chunk), model.predict_proba(chunk))
    tables = model.tables()
    assert set(tables) == {"columns", "components", "means", "covariances", "shares"}
    assert tables["components"]["weight"].to_numpy().sum() == pytest.approx(1.0)
    assert model.structure()["circuit"]["columns_of_each_gaussian"] == 3


def test_it_classifies(model):
    test = table_of(1000, 1)
    p = model.predict_proba(encode(test, model.schema))
    truth = np.array(test["group"].to_pylist())
    assert (np.array(model.schema.classes)[p.argmax(axis=1)] == truth).mean() > 0.95
    np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_queries_agree_with_each_other(model):
    given = {"a": 1.0, "group": "x"}
    marginal, more, moments, imputed, surprise = model.answer(
        [Marginal(given), Marginal(given | {"b": 2.0}), Moments((), given), Impute((), given), Surprise(given, n=50)]
    )
    assert moments["log_evidence"] == marginal["log_probability"] == surprise["log_likelihood"]
    assert marginal["density"] == pytest.approx(np.exp(marginal["log_probability"]))
    # b is 2 a, with an error of .05.
    assert moments["moments"]["b"]["mean"] == pytest.approx(2.0, abs=0.02)
    assert moments["moments"]["b"]["variance"] == pytest.approx(0.05**2, rel=0.3)
    assert imputed["imputed"]["b"]["value"] == moments["moments"]["b"]["mean"]
    # The most that a normal density with this variance can add.
    most = -0.5 * np.log(2 * np.pi * 0.05**2)
    assert more["log_probability"] - marginal["log_probability"] == pytest.approx(most, abs=0.4)
    (only,) = model.answer([Conditional(("group",), {"a": 3.0, "c": -2.0})])
    assert only["distributions"]["group"]["x"] > 0.9
    (together,) = model.answer([Conditional(("group",), {"a": 3.0, "c": -2.0}, joint=True)])
    assert together["distribution"][0]["probability"] == pytest.approx(only["distributions"]["group"]["x"])
    (drawn,) = model.answer([Sample(200, {"a": 1.0})])
    assert np.mean([row["b"] for row in drawn["rows"]]) == pytest.approx(2.0, abs=0.05)


def test_rows_that_lack_different_columns_are_filled_together(model):
    """The first lacks a number, the second the group alone, the third another number."""
    x = np.array([[np.nan, 1.0, 3.0], [2.0, 2.0, np.nan], [0.0, 0.0, -2.0], [0.0, np.nan, 0.0]])
    found = fill_cells(model, x, np.isnan(x), "mode", nameable=nameable(model.columns))[0]
    assert np.array_equal(np.isnan(found), ~np.isnan(x))
    assert found[[0, 1], [0, 2]] == pytest.approx([1.0, 6.0], abs=0.1)


def test_map_of_discrete_columns_is_proved_and_of_numbers_bounded(model):
    given = {"a": 3.0}
    (exact,) = model.answer([Map(("group",), given)])
    assert exact["is_optimal"]
    (of_class,) = model.answer([Conditional(("group",), given)])
    assert of_class["distributions"]["group"][exact["assignment"]["group"]] >= 0.5
    log = model.answer([Marginal(given | exact["assignment"])])[0]["log_probability"]
    assert exact["log_probability"] == pytest.approx(log, abs=1e-9)
    trees = [model.answer([Map((), given, solver=solver)])[0] for solver in ("bt", "kbt")]
    for answer in trees:
        log = model.answer([Marginal(given | answer["assignment"])])[0]["log_probability"]
        assert answer["log_probability"] == pytest.approx(log, abs=1e-9)
        assert answer["upper_bound"] >= answer["log_probability"]
    assert trees[1]["log_probability"] >= trees[0]["log_probability"] - 1e-12
    with pytest.raises(InvalidEvidence, match="'exact' searches finite domains, and 'b' are numbers"):
        model.answer([Map(("b", "group"), given)])
