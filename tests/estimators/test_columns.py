"""Nothing is silent: what cannot be meant is refused, what is dropped is told once; and one row at a time has the answers of the table."""

import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import learners
from fewpass import KDB, NB, FewPassClassifier, SumProductNetwork
from learners.errors import ColumnWarning, SchemaError
from learners.models.query import Conditional


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


def warnings_of(call):
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
    (message,) = warnings_of(lambda: model.predict_proba(array))
    assert "does not have valid feature names, but NB was fitted with feature names" in message
    assert warnings_of(lambda: model.predict_proba(array)) == []
    assert np.array_equal(model.predict_proba(array), model.predict_proba(frame))


def test_names_are_overlooked_where_training_had_none(frame):
    model = NB(m=1.0).fit(frame[["age", "town"]].to_numpy(), frame["class"])
    (message,) = warnings_of(lambda: model.predict_proba(frame[["age", "town"]]))
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


@pytest.mark.parametrize("n_rows", [1, 400])
def test_a_misspelt_column_is_told_once_with_the_one_that_is_similar(n_rows, model, frame):
    misspelt = frame[:n_rows].rename(columns={"town": "twon"})
    (message,) = warnings_of(lambda: model.predict_proba(misspelt))
    assert message == "The data lacks columns of the model: 'town' (similar: twon). Predictions are made without them."
    assert warnings_of(lambda: model.predict_proba(misspelt)) == []
    (message,) = warnings_of(lambda: model.predict_proba({"age": 1.0, "twon": "bern"}))
    assert message == "Columns that the model does not know are ignored: 'twon' (similar: town)."
    (message,) = warnings_of(lambda: model.predict_proba(frame.assign(weather="fine")))
    assert message == "Columns that the model does not know are ignored: 'weather'."
    for lacking in ({"age": 1.0}, [{"age": 1.0}, {"town": "bern"}]):  # a record may, without a word
        assert warnings_of(lambda lacking=lacking: model.predict_proba(lacking)) == []


@pytest.mark.parametrize("n_rows", [1, 400])
@pytest.mark.parametrize("make", [lambda frame: frame, lambda frame: frame.to_dict("records"), pa.Table.from_pandas])
def test_a_column_of_unseen_values_alone_is_named_once(make, n_rows, model, frame):
    strange = make(frame[["age", "town"]][:n_rows].assign(town="Bern"))
    (message,) = warnings_of(lambda: model.predict_proba(strange))
    assert message == (
        "Column 'town' has only values that training never had, such as 'Bern' (known: 'bern', …): they count as absent."
    )
    for again in (strange, make(frame[["age", "town"]][:n_rows].assign(town="Kiel")), {"age": 1.0, "town": "Rome"}):
        assert warnings_of(lambda again=again: model.predict_proba(again)) == []


def test_one_row_of_an_unseen_value_is_named_and_known_ones_are_not(model, frame):
    assert (
        warnings_of(lambda: model.predict_proba(frame))
        == warnings_of(lambda: model.predict_proba({"town": None}))
        == []
    )
    (message,) = warnings_of(lambda: model.predict_proba({"age": 1.0, "town": "Bern"}))
    assert message.startswith("Column 'town' has only values that training never had, such as 'Bern'")


@pytest.mark.parametrize("n_rows", [1, 5])
def test_a_moment_is_no_number_and_a_duration_neither(n_rows, model, frame):
    for values in (pd.Timestamp("2026-01-01"), pd.Timedelta(days=1)):
        with pytest.raises(SchemaError, match=r"'age' has type (timestamp|duration)\[.*\], but had double in training"):
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
    assert warnings_of(lambda: model.predict_proba(frame.assign(extra=column(len(frame))))) == []


def test_folded_values_are_told(frame):
    shop = [f"shop {min(i % 20, i // 20)}" for i in range(400)]
    with pytest.warns(
        ColumnWarning,
        match="Column 'shop': the 8 most frequent values have codes of their own; .* rarer ones share one",
    ):
        KDB(max_values=8, m=1.0).fit(frame.assign(shop=shop), "class")


def test_nothing_is_told_of_a_schema_that_was_given(frame):
    table = frame.assign(extra=[[1]] * len(frame))
    with pytest.warns(ColumnWarning, match="'extra'"):
        schema = NB().fit(table, "class").model_.schema
    assert warnings_of(lambda: NB(schema=schema).fit(table, "class")) == []


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(8)
    y = rng.integers(0, 2, 600)
    day = [
        None if i % 11 == 0 else datetime.date(2026, 1, 1) + datetime.timedelta(days=int(i % 40)) for i in range(600)
    ]
    return pa.table(
        {
            "word": pa.array(np.array(["u", "v", "w"])[(rng.integers(0, 2, 600) + y) % 3], mask=rng.random(600) < 0.1),
            "size": pa.array(rng.normal(y, 1.0), mask=rng.random(600) < 0.1),
            "small": pa.array(rng.integers(0, 4, 600) + y, pa.int8()),
            "flag": pa.array(rng.random(600) < 0.3 + 0.4 * y, mask=rng.random(600) < 0.1),
            "day": pa.array(day, pa.date32()),
            "price": pa.array([decimal.Decimal(int(v * 100)) / 100 for v in rng.normal(y, 1.0)], pa.decimal128(9, 2)),
            "class": np.array(["no", "yes"])[y],
        }
    )


@pytest.mark.parametrize(
    "columns", [["word", "size", "small", "flag"], ["word", "size", "small", "flag", "day", "price"]]
)
def test_a_dict_and_a_frame_of_one_row_are_answered_as_the_table_is(columns, table):
    model = KDB(k=2, m=1.0).fit(table.select([*columns, "class"]), "class")
    rows = table.select(columns).slice(0, 60)
    expected = model.predict_proba(rows)
    frames = [rows.to_pandas(), rows.to_pandas().convert_dtypes(), rows.to_pandas(types_mapper=pd.ArrowDtype)]
    classify = model.record_classifier()
    for i, record in enumerate(rows.to_pylist()):
        assert np.array_equal(model.predict_proba(record), expected[i : i + 1])
        assert np.array_equal(classify(record), expected[i])
        for frame in frames:
            assert np.array_equal(model.predict_proba(frame[i : i + 1]), expected[i : i + 1])
    assert np.array_equal(model.predict_proba(rows.to_pylist()), expected)
    assert np.array_equal(learners.record_classifier(model.model_)(rows.to_pylist()[0]), expected[0])
    assert model.predict(rows.to_pylist()[3]) == model.predict(rows)[3:4]


def test_a_frame_of_one_row_is_not_made_a_table(table, monkeypatch):
    model = NB(m=1.0).fit(table.drop_columns(["day", "price"]), "class")
    row = table.drop_columns(["day", "price", "class"]).slice(5, 1).to_pandas()
    expected = model.predict_proba(pd.concat([row, row]))[:1]
    monkeypatch.setattr(
        "learners.estimators.classifier.rows_as_record_batches", lambda *_: pytest.fail("a table was made")
    )
    assert np.array_equal(model.predict_proba(row), expected)
    monkeypatch.delattr(pd.DataFrame, "_iter_column_arrays")
    assert np.array_equal(model.predict_proba(row), expected), "also without the walk of pandas"


@pytest.mark.parametrize("n_rows", [1, 2])
@pytest.mark.filterwarnings("ignore:The data lacks columns")
def test_text_is_a_time_where_it_is_written_as_one_in_a_frame_of_any_length(n_rows, table):
    model = NB(m=1.0).fit(table, "class")
    for text in ("2026-01-03", "2026-01-31"):
        answers = model.predict_proba(pd.DataFrame({"day": [text] * n_rows}))
        assert np.array_equal(answers, np.repeat(model.predict_proba({"day": text}), n_rows, axis=0))
    with pytest.raises(SchemaError, match=r"'day'.*'soon'"):
        model.predict_proba(pd.DataFrame({"day": ["soon"] * n_rows}))


@pytest.mark.parametrize(
    "estimator",
    [KDB(k=1, estimator="m"), SumProductNetwork(), FewPassClassifier(effort="low")],
    ids=lambda one: type(one).__name__,
)
def test_a_number_that_stands_for_its_interval_is_told_as_the_command_line_tells_it(estimator, frame):
    """One warning for each column at the line of the caller; the label of an interval says it itself."""
    model = estimator.fit(frame, "class")
    with pytest.warns(ColumnWarning, match=r"^age: the evidence is read as its interval, \(") as caught:
        answer = model.query(Conditional(("town",), {"age": 0.1}))
    assert [entry.filename for entry in caught] == [__file__] and list(answer["stands_for"]) == ["age"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        again = model.query(Conditional(("town",), {"age": answer["stands_for"]["age"]}))
    assert again["distributions"] == answer["distributions"]
