"""Circuits learned by passes over Parquet, stored, read back, asked."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, encode, load_model
from learners.circuits.model import CircuitModel
from learners.circuits.recipes import streaming_update_recipe
from learners.circuits.streaming.online import StreamingPosterior, circuit_pseudo_counts
from learners.circuits.structures.learnspn import learnspn
from learners.errors import InvalidParameter, NoClass, SchemaError
from learners.models.query import Conditional, Marginal
from learners.passes.learner import Learner, drive
from learners.registry import recipes
from learners.schema import Chunk
from tests.support.passes import OVERRIDES, same, write

HOW = [
    {"structure": structure, "learning": learning, "passes": 3, "states": 3}
    for structure, learning in (
        ("hclt", "em"), ("hclt", "bmm"), ("chow-liu", "none"), ("random", "em"), ("random", "adf"), ("learnspn", "adf"),
    )
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    data = tmp_path_factory.mktemp("data")
    for day in range(3):
        write(data, day, nulls=day == 2)
    return data


def learned(folder, parameters, target="class", **more):
    return drive(recipes.learner("spn", parameters, target, None, OVERRIDES), Source.open(folder), **more)


@pytest.mark.parametrize("parameters", HOW)
@pytest.mark.parametrize("target", ["class", None])
def test_a_circuit_is_learned_and_read_back(folder, parameters, target):
    model = learned(folder, parameters, target)
    assert isinstance(model, CircuitModel)
    assert model.facts["n_rows"] == 1800
    again = load_model(*model.to_arrays())
    assert same(model, again)
    rows = encode(pq.read_table(folder), model.schema)
    assert np.all(np.isfinite(again.log_likelihood(rows)))
    tables = model.tables()
    assert {"columns", "nodes", "edges"} <= set(tables)
    if model.posterior is not None:
        edges, shares = tables["edges"].to_pandas(), tables["probabilities"].to_pandas()
        is_sum = edges["parent"].isin(edges["parent"][edges["weight"] < 1.0])
        assert (edges["variance"][is_sum] > 0).all() and (edges["variance"][~is_sum] == 0).all()
        assert shares.groupby("leaf")["probability"].sum().to_numpy() == pytest.approx(1.0)
        assert (shares["variance"] > 0).all() and shares["value"].notna().all()
    if target is None:
        with pytest.raises(NoClass, match="or send queries"):
            model.predict_proba(rows)
        return
    # P(class | row) from the joint probabilities of the row with each class.
    joint = [again.log_likelihood(Chunk(rows.x.copy(), np.full(rows.n_rows, k, np.uint8))) for k in range(2)]
    expected = np.exp(joint - np.logaddexp.reduce(joint, axis=0)).T
    assert np.allclose(again.predict_proba(rows), expected, atol=1e-9)


@pytest.mark.parametrize("learning", ["adf", "bmm"])
def test_it_goes_on_learning_from_tomorrow_s_files(folder, learning):
    """From the stored posterior, as if there had been no night in between."""
    paths = sorted(str(path) for path in folder.glob("*.parquet"))
    parameters = {"structure": "chow-liu", "learning": learning}
    schema = learned(folder, parameters).schema

    def first(files):
        return drive(recipes.learner("spn", parameters, "class", schema), Source.open(files))

    today = load_model(*first(paths[:2]).to_arrays())
    start = today.posterior
    learner = Learner("spn", streaming_update_recipe(schema, start, today.facts), 1)
    tomorrow = drive(learner, Source.open(paths[2:]))
    assert tomorrow.facts["n_rows"] == 1800
    whole = StreamingPosterior(start.structure, start.prior, learning, rows_of=start.rows_of)
    for batch in Source.open(paths).batches(schema.columns):
        whole.update(encode(batch, schema))
    assert tomorrow.circuit == whole.circuit()


def test_more_passes_over_the_stream_fit_better(folder):
    """Each starts at the means of the last; what is stored goes on from the last."""
    parameters = {"structure": "hclt", "learning": "bmm", "states": 4, "strength": 1.0}
    rows = pq.read_table(folder)
    models = [learned(folder, parameters | {"stream_passes": n}, None) for n in (1, 2, 5)]
    once, twice, often = (model.log_likelihood(encode(rows, model.schema)).mean() for model in models)
    assert once < twice < often
    assert models[1].posterior.n_rows == 1800, "no row counts twice"
    first = models[0]
    prior = circuit_pseudo_counts(first.circuit, 1.0)
    restarted = StreamingPosterior(first.circuit, prior, "bmm", rows_of=first.posterior.rows_of)
    for batch in Source.open(folder).batches(first.schema.columns):
        restarted.update(encode(batch, first.schema))
    assert restarted.circuit() == models[1].circuit


@pytest.mark.parametrize("structure", ["hclt", "chow-liu", "random", "learnspn"])
def test_nulls_are_summed_out(folder, structure):
    """Where null occurs, known values alone are counted, and a row without a value is summed over it."""
    model = learned(folder, {"structure": structure, "passes": 2, "states": 3})
    column = next(attribute for attribute in model.schema.attributes if attribute.has_missing)
    (told,) = model.answer([Conditional((column.name,))])
    assert list(told["distributions"][column.name]) == [str(value) for value in column.values]
    without, with_null = model.answer([Marginal({"x0": "a"}), Marginal({"x0": "a", column.name: None})])
    assert without == with_null
    rows = pa.table({"x0": ["a"], column.name: pa.array([None], pa.string())})
    (posterior,) = model.answer([Conditional(("class",), {"x0": "a"})])
    predicted = model.predict_proba(encode(rows, model.schema))[0]
    assert list(posterior["distributions"]["class"].values()) == pytest.approx(predicted.tolist())


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"structure": "tree"}, "hclt"),
        ({"learning": "sgd"}, "em"),
        ({"states": 0}, "from 1 to 1,024"),
        ({"strength": 0.0}, "above zero"),
        ({"laplace": -1.0}, "zero or more"),
    ],
)
def test_parameters_out_of_range_are_refused(parameters, match):
    with pytest.raises(InvalidParameter, match=match):
        recipes.learner("spn", parameters, None)


def test_other_learners_need_a_target():
    with pytest.raises(InvalidParameter, match="name its column"):
        recipes.learner("kdb", {}, None)


def test_a_table_of_which_nothing_is_left_says_why():
    table = pa.table({"a": ["x"] * 10, "b": pa.nulls(10)})
    for structure in ("hclt", "chow-liu", "random", "learnspn"):
        with pytest.raises(SchemaError, match=r"No column is left .*a: one value only; b: every value is missing"):
            drive(recipes.learner("spn", {"structure": structure}, None), Source.of_table(table))


def test_learnspn_holds_no_more_rows_than_it_was_told_to(monkeypatch):
    """However often the few different rows of a narrow table come."""
    seen = []
    monkeypatch.setattr(
        "learners.circuits.recipes.learnspn",
        lambda codes, sizes, **how: seen.append(codes.shape) or learnspn(codes, sizes, **how),
    )
    x = np.random.default_rng(0).random(5000) < 0.3
    table = pa.table({"x": x, "y": ~x})
    model = drive(recipes.learner("spn", {"structure": "learnspn", "sample": 500}, None), Source.of_table(table))
    assert seen == [(2, 500)] and model.facts["n_rows"] == 5000
    assert model.answer([Marginal({"x": True})])[0]["probability"] == pytest.approx(0.3, abs=0.03)
