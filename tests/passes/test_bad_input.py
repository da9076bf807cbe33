"""From a file to a model and an answer: every kind of bad input is a clear error of ours or a documented answer."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, drive, encode, load_model
from learners.errors import EmptyData, InvalidParameter, SchemaError, SourceError, UnknownColumn
from learners.models.record_classifier import record_classifier
from learners.registry import recipes

N = 600
RNG = np.random.default_rng(0)
Y = RNG.integers(0, 2, N)
GOOD = pa.table(
    {
        "number": Y + RNG.normal(0, 0.5, N),
        "word": pa.array([f"w{v}" for v in (Y + RNG.integers(0, 3, N)) % 4]),
        "class": pa.array(["no", "yes"]).take(pa.array(Y)),
    }
)


def trained(table, folder, learner="kdb", target="class", **options):
    path = folder / "x.parquet"
    pq.write_table(table, path)
    before = sorted(folder.rglob("*"))
    try:
        return drive(recipes.learner(learner, {}, target, **options), Source.open(path))
    finally:
        assert sorted(folder.rglob("*")) == before, "nothing is written beside the data"


def replaced(**columns):
    return pa.table(dict(zip(GOOD.column_names, GOOD.columns, strict=True)) | columns)


def test_absent_columns_and_unseen_values_give_smoothed_answers(tmp_path):
    model = trained(GOOD, tmp_path)
    classify = record_classifier(model)
    prior = (np.bincount(Y) + 0.5) / (N + 1)
    assert classify({}) == pytest.approx(prior)
    assert classify({"word": "never seen", "other": 1}) == pytest.approx(prior)
    only_number = model.predict_proba(encode(GOOD.select(["number"]), model.schema))
    assert np.allclose(only_number.sum(axis=1), 1)
    assert np.array_equal(only_number, model.predict_proba(encode(replaced(word=["?"] * N), model.schema)))
    assert np.mean(only_number.argmax(axis=1) == Y) > 0.7


def test_empty_strings_and_odd_names(tmp_path):
    word = ["" if y else "a" for y in Y]
    table = pa.table({"": word, "a.b": word, "ünï cödé": word, "class": pa.array(["", "x"]).take(pa.array(Y))})
    model = trained(table, tmp_path, "tan")
    assert [attribute.name for attribute in model.schema.attributes] == ["", "a.b", "ünï cödé"]
    assert model.schema.classes == ("", "x")
    assert np.array_equal(model.predict_proba(encode(table, model.schema)).argmax(axis=1), Y)


@pytest.mark.parametrize("learner", ["nb", "tan", "kdb"])
def test_damaged_files_never_give_an_error_of_another_library(tmp_path, learner):
    """Pages without checksums: what cannot be detected is learned as it reads, everything else is ours."""
    path = tmp_path / "x.parquet"
    pq.write_table(GOOD, path, row_group_size=200)
    raw = path.read_bytes()
    rng = np.random.default_rng(1)
    n_errors = 0
    for _ in range(60):
        damaged = bytearray(raw)
        for place in rng.integers(4, len(raw), rng.integers(1, 4)):
            damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            model = drive(recipes.learner(learner, {}, "class"), Source.open(path))
            assert np.all(np.isfinite(model.predict_proba(encode(GOOD.drop_columns(["class"]), model.schema))))
        except (SourceError, SchemaError, UnknownColumn, EmptyData):
            n_errors += 1
    assert n_errors > 5


@pytest.mark.parametrize(
    ("learner", "parameters", "says"),
    [
        ("nbb", {}, "learner='nbb' must be one of auto, eskdb, nb, tan, kdb"),
        ("nb", {"k": 1}, "Parameter k=1 is not allowed: learner 'nb' has the parameters"),
        ("kdb", {"k": 0}, "Parameter k=0 must be a whole number from 1 to 5"),
        *(("kdb", {"k": k}, f"Parameter k={k!r} (must be|is not allowed)") for k in (6, "two", 1.5)),
        ("nb", {"m": -1}, "Parameter m=-1"),
        *(("nb", {"m": m}, f"Parameter m={m} must be a number from 0") for m in (np.nan, np.inf)),
        ("nb", {"estimator": "hdp", "m": 1.0}, "m=1.0 is not allowed: it belongs to estimator=m, not to estimator=hdp"),
        ("nb", {"estimator": "x"}, "Parameter estimator='x' must be one of hdp-map, hdp, m"),
        ("nb", {"max_values": 1}, "Parameter max_values=1 must be from 2 to 65,000"),
    ],
)
def test_parameters_out_of_range_are_named(learner, parameters, says):
    with pytest.raises(InvalidParameter, match=says):
        recipes.learner(learner, parameters, "class")


@pytest.mark.parametrize("learner", ["nb", "tan", "kdb"])
def test_numbers_that_tell_nothing_of_the_class_leave_its_shares(tmp_path, learner):
    """No attribute is left: the answer is the smoothed share of each class, for rows, records and reports."""
    model = trained(pa.table({"x": np.random.default_rng(3).random(N), "class": GOOD["class"]}), tmp_path, learner)
    shares = (np.bincount(Y) + 0.5) / (N + 1)
    assert model.schema.n_attributes == 0 and model.tables()["left_out"].num_rows == 1
    assert np.allclose(model.predict_proba(encode(GOOD, model.schema)), shares)
    assert record_classifier(model)({"x": 1.0}) == pytest.approx(shares)
    assert [node["name"] for node in model.structure()["nodes"]] == ["class"]
    assert model.tables()["classes"]["n_rows"].to_pylist() == np.bincount(Y).tolist()
    read, rows = load_model(*model.to_arrays()), encode(GOOD, model.schema)
    assert np.array_equal(read.predict_proba(rows), model.predict_proba(rows))
