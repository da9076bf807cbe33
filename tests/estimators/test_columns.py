"""Nothing is silent: what cannot be meant is refused, what is dropped is told once."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import KDB, NB
from learners.errors import ColumnWarning, SchemaError


@pytest.fixture
def frame():
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 400)
    return pd.DataFrame(
        {
            "age": rng.normal(y * 2, 1.0),
            "town": np.array(["bern", "kiel", "rome"])[(rng.integers(0, 2, 400) + y) % 3],
            "class": np.array(["no", "yes"])[y],
        }
    )


@pytest.fixture
def model(frame):
    return NB(m=1.0).fit(frame, "class")


def told(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    assert all(entry.category is ColumnWarning for entry in found)
    assert all(entry.filename == __file__ for entry in found), "a warning points at the caller"
    return [str(entry.message) for entry in found]


def test_an_array_of_another_width_is_refused(model):
    for width in (1, 3):
        with pytest.raises(SchemaError, match=f"X has {width} features, but NB is expecting 2 features as input"):
            model.predict(np.zeros((5, width)))


def test_an_array_stands_for_named_columns_in_order_and_that_is_told_once(model, frame):
    array = frame[["age", "town"]].to_numpy()
    (message,) = told(lambda: model.predict_proba(array))
    assert "does not have valid feature names, but NB was fitted with feature names" in message
    assert told(lambda: model.predict_proba(array)) == []
    assert np.array_equal(model.predict_proba(array), model.predict_proba(frame))


def test_names_are_overlooked_where_training_had_none(frame):
    model = NB(m=1.0).fit(frame[["age", "town"]].to_numpy(), frame["class"])
    (message,) = told(lambda: model.predict_proba(frame[["age", "town"]]))
    assert "X has feature names, but NB was fitted without feature names" in message


@pytest.mark.parametrize(
    "make",
    [
        lambda frame, _: frame[["x", "y"]],
        lambda frame, _: pa.table(frame[["x", "y"]]),
        lambda frame, _: frame[["x", "y"]].to_dict("records"),
        lambda frame, _: {"x": 1, "y": 2},
        lambda frame, _: frame[["x", "y"]][:1],
        lambda frame, folder: pq.write_table(pa.table(frame[["x", "y"]]), folder / "t.parquet") or folder / "t.parquet",
    ],
)
@pytest.mark.filterwarnings("ignore::learners.errors.ColumnWarning")
def test_rows_with_none_of_the_columns_are_refused(make, model, frame, tmp_path):
    strange = make(frame.rename(columns={"age": "x", "town": "y"}), tmp_path)
    with pytest.raises(SchemaError, match=r"None of the model's columns \(age, town\) is in the data"):
        model.predict_proba(strange)


def test_a_misspelt_column_is_told_once_with_the_one_that_is_similar(model, frame):
    misspelt = frame.rename(columns={"town": "twon"})
    (message,) = told(lambda: model.predict_proba(misspelt))
    assert message == "The data lacks columns of the model: 'town' (similar: twon). Rows are answered without them."
    assert told(lambda: model.predict_proba(misspelt)) == []
    (message,) = told(lambda: model.predict_proba({"age": 1.0, "twon": "bern"}))
    assert message == "Columns that the model does not know are ignored: 'twon' (similar: town)."


def test_one_row_is_looked_at_as_many_are(model, frame):
    (message,) = told(lambda: model.predict_proba(frame[:1].rename(columns={"town": "twon"})))
    assert "'town' (similar: twon)" in message


def test_columns_that_the_model_does_not_know_are_told_once(model, frame):
    (message,) = told(lambda: model.predict_proba(frame.assign(weather="fine")))
    assert message == "Columns that the model does not know are ignored: 'weather'."


def test_columns_may_be_missing_from_a_record_without_a_word(model):
    assert told(lambda: model.predict_proba({"age": 1.0})) == []
    assert told(lambda: model.predict_proba([{"age": 1.0}, {"town": "bern"}])) == []


@pytest.mark.parametrize("n_rows", [1, 5])
def test_a_moment_is_no_number_and_a_duration_neither(n_rows, model, frame):
    for values in (pd.Timestamp("2026-01-01"), pd.Timedelta(days=1)):
        with pytest.raises(SchemaError, match=r"'age' holds (timestamp|duration)\[.*\], but double in training"):
            model.predict_proba(frame[:n_rows].assign(age=values))
    with pytest.raises(SchemaError, match="'age' holds datetime"):
        model.predict_proba({"age": pd.Timestamp("2026-01-01").to_pydatetime()})


def test_times_of_other_units_are_still_read():
    moments = pd.date_range("2026-01-01", periods=400, freq="h")
    y = np.where(np.arange(400) < 200, "early", "late")
    model = NB(m=1.0).fit(pd.DataFrame({"when": moments, "class": y}), "class")
    expected = model.predict_proba(pd.DataFrame({"when": moments}))
    assert np.array_equal(model.predict_proba(pd.DataFrame({"when": moments.as_unit("s")})), expected)
    assert np.array_equal(model.predict_proba(pd.DataFrame({"when": moments[7:8]})), expected[7:8])


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (lambda n: [f"id{i}" for i in range(n)], "Column 'extra' is left out: nearly unique .*: an identifier"),
        (lambda n: [[1, 2]] * n, "Column 'extra' is left out: its type list.* is not supported"),
        (lambda n: [b"x"] * n, "Column 'extra' is left out: its type binary is not supported"),
        (lambda n: [None] * n, "Column 'extra' is left out: every value is missing"),
    ],
)
def test_a_column_that_is_left_out_is_told(column, message, frame):
    with pytest.warns(ColumnWarning, match=message):
        model = NB(m=1.0).fit(frame.assign(extra=column(len(frame))), "class")
    assert told(lambda: model.predict_proba(frame.assign(extra=column(len(frame))))) == []


def test_folded_values_are_told(frame):
    shop = [f"shop {min(i % 20, i // 20)}" for i in range(400)]
    with pytest.warns(ColumnWarning, match="Column 'shop' keeps 8 values; .* rarer ones share one code"):
        KDB(max_values=8, m=1.0).fit(frame.assign(shop=shop), "class")


def test_nothing_is_told_of_a_schema_that_was_given(frame):
    table = frame.assign(extra=[[1]] * len(frame))
    with pytest.warns(ColumnWarning, match="'extra'"):
        schema = NB().fit(table, "class").model_.schema
    assert told(lambda: NB(schema=schema).fit(table, "class")) == []
