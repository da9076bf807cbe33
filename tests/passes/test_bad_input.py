"""From a file to a model and an answer: every kind of bad input is a clear error of ours or a documented answer."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, drive, encode, load_model
from learners.errors import EmptyData, InvalidParameter, LearnerError, SchemaError, SourceError, UnknownColumn
from learners.registry import recipes
from learners.schema.encoding.json_records import encode_json_records, record_classifier

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
    table = GOOD
    for name, column in columns.items():
        place = table.column_names.index(name) if name in table.column_names else table.num_columns
        table = table.drop_columns([name]) if name in table.column_names else table
        table = table.add_column(place, name, column if isinstance(column, pa.Array) else pa.array(column))
    return table


@pytest.mark.parametrize(
    ("table", "error", "says"),
    [
        (GOOD.slice(0, 0), EmptyData, "x.parquet: there are no rows"),
        (GOOD.drop_columns(["class"]), UnknownColumn, "'class' is not in the table"),
        (replaced(**{"class": ["no"] * N}), SchemaError, "'class' has only one class, 'no'"),
        (replaced(number=[1.0] * N, word=["a"] * N), SchemaError, "No column is left .*number: constant; word: cons"),
    ],
)
def test_tables_that_cannot_be_learned_from(tmp_path, table, error, says):
    with pytest.raises(error, match=says) as raised:
        trained(table, tmp_path)
    assert isinstance(raised.value, LearnerError)


def test_columns_that_cannot_be_used_are_left_out_by_name(tmp_path):
    model = trained(
        replaced(
            key=[f"id{i}" for i in range(N)],
            one=[7] * N,
            nested=[{"a": i} for i in range(N)],
            bytes=[b"\xff"] * N,
            nothing=pa.nulls(N, pa.float64()),
        ),
        tmp_path,
    )
    assert [attribute.name for attribute in model.schema.attributes] == ["number", "word"]
    reasons = {"key": "nearly", "one": "constant", "nested": "its", "bytes": "its", "nothing": "every"}
    assert {entry.name: entry.reason.split(" ")[0] for entry in model.schema.left_out} == reasons
    assert model.tables()["left_out"].num_rows == 5


def test_nan_and_infinities_are_values(tmp_path):
    """NaN is missing; infinities are beyond the last cut points."""
    number = GOOD["number"].to_numpy().copy()
    number[:40], number[40:80], number[80:120] = np.nan, np.inf, -np.inf
    model = trained(replaced(number=number), tmp_path)
    (attribute,) = (a for a in model.schema.attributes if a.name == "number")
    assert attribute.has_missing
    assert np.all(np.isfinite(attribute.cuts))
    codes = encode_json_records([{"number": value} for value in (None, float("nan"), -np.inf, np.inf)], model.schema).x[
        0
    ]
    assert codes.tolist() == [0, 0, 1, attribute.n_values - 1]
    assert np.all(np.isfinite(model.predict_proba(encode(GOOD, model.schema))))


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
        ("nbb", {}, "learner='nbb' is not allowed: use one of auto, eskdb, nb, tan, kdb"),
        ("nb", {"k": 1}, "Parameter k=1 is not allowed: learner 'nb' has the parameters"),
        ("kdb", {"k": 0}, "Parameter k=0 is not allowed: a whole number from 1 to 5"),
        ("kdb", {"k": 6}, "Parameter k=6 is not allowed"),
        ("kdb", {"k": "two"}, "Parameter k='two' is not allowed"),
        ("kdb", {"k": 1.5}, "Parameter k=1.5 is not allowed"),
        ("nb", {"m": -1}, "Parameter m=-1"),
        ("nb", {"m": float("nan")}, "Parameter m=nan is not allowed: a number from 0"),
        ("nb", {"m": float("inf")}, "Parameter m=inf is not allowed: a number from 0"),
        ("nb", {"estimator": "hdp", "m": 1.0}, "m=1.0 is not allowed: it belongs to estimator=m, not to estimator=hdp"),
        ("nb", {"estimator": "x"}, "Parameter estimator='x' is not allowed: use one of hdp-map, hdp, m"),
        ("nb", {"max_values": 1}, "Parameter max_values=1 is not allowed: from 2 to 65,000"),
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
    assert model.schema.n_attributes == 0
    assert np.allclose(model.predict_proba(encode(GOOD, model.schema)), shares)
    assert record_classifier(model)({"x": 1.0}) == pytest.approx(shares)
    assert [node["name"] for node in model.structure()["nodes"]] == ["class"]
    assert model.tables()["classes"]["n_rows"].to_pylist() == np.bincount(Y).tolist()
    read = load_model(*model.to_arrays())
    rows = encode(GOOD, model.schema)
    assert np.array_equal(read.predict_proba(rows), model.predict_proba(rows))
