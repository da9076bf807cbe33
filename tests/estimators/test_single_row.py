"""One row at a time: the answers of the fast way are those of the table."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import learners
from learners import KDB, NB
from learners.errors import SchemaError


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
    monkeypatch.setattr("learners.estimators.classifier.rows_of", lambda *_: pytest.fail("a table was made"))
    assert np.array_equal(model.predict_proba(row), expected)


def test_without_the_walk_of_pandas_the_answers_are_the_same(table, monkeypatch):
    model = NB(m=1.0).fit(table.drop_columns(["day", "price"]), "class")
    row = table.drop_columns(["day", "price", "class"]).slice(5, 1).to_pandas()
    expected = model.predict_proba(row)
    monkeypatch.delattr(pd.DataFrame, "_iter_column_arrays")
    assert np.array_equal(model.predict_proba(row), expected)


@pytest.mark.parametrize("n_rows", [1, 2])
def test_text_is_no_time_in_a_frame_of_any_length(n_rows, table):
    model = NB(m=1.0).fit(table, "class")
    with pytest.raises(SchemaError, match=r"'day' holds (large_)?string, but the model needs numbers"):
        model.predict_proba(pd.DataFrame({"day": ["2026-01-01"] * n_rows}))
    assert model.predict_proba({"day": "2026-01-03"}).shape == (1, 2)


def test_a_value_of_the_wrong_type_is_named(table):
    model = NB(m=1.0).fit(table, "class")
    with pytest.raises(SchemaError, match="'size' holds 'large'"):
        model.predict_proba({"size": "large"})
    with pytest.raises(SchemaError, match="Row 1: Column 'word' holds 3"):
        model.predict_proba([{"word": "u"}, {"word": 3}])
    with pytest.raises(SchemaError, match="'word' holds int64 here"):
        model.predict_proba(pd.DataFrame({"word": [3]}))
