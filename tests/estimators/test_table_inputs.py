"""Every form in which a table may be given, made by the library whose form it is."""

import decimal
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from fewpass import KDB, NB, SumProductNetwork
from learners import Source
from learners.errors import InvalidParameter, SchemaError, SourceError
from learners.passes.sources.row_streams import source_from_row_stream


@pytest.fixture
def table():
    rng = np.random.default_rng(11)
    y = rng.integers(0, 2, 500)
    word = np.array(["u", "v", "w"])[(rng.integers(0, 2, 500) + y) % 3]
    return pa.table(
        {
            "word": pa.array(word, mask=rng.random(500) < 0.1),
            "size": pa.array(rng.normal(y, 1.0), mask=rng.random(500) < 0.1),
            "count": rng.integers(0, 5, 500) + y,
            "is_new": rng.random(500) < 0.3 + 0.4 * y,
            "class": np.array(["no", "yes"])[y],
        }
    )


def as_capsule(table):
    """An object that offers Arrow's stream and nothing else."""

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return table.__arrow_c_stream__(requested_schema)

    return Stream()


def as_file(table):
    path = Path(tempfile.mkdtemp(), "t.parquet")
    pq.write_table(table, path)
    return path


FORMS = {
    "table": lambda table: table,
    "batch": lambda table: table.combine_chunks().to_batches()[0],
    "reader": lambda table: table.to_reader(max_chunksize=77),
    "scanner": lambda table: pads.dataset(table).scanner(),
    "dataset": pads.dataset,
    "capsule": as_capsule,
    "pandas": lambda table: table.to_pandas(),
    "pandas with Arrow's types": lambda table: table.to_pandas(types_mapper=pd.ArrowDtype),
    "pandas with nullable types": lambda table: table.to_pandas().convert_dtypes(),
    "pandas of objects": lambda table: table.to_pandas().astype({"word": object, "is_new": object}),
    "polars": pl.from_arrow,
    "polars lazy": lambda table: pl.from_arrow(table).lazy(),
    "duckdb": lambda table: duckdb.from_arrow(table),
    "duckdb with a query": lambda rows: duckdb.sql('SELECT word, size, "count", is_new, class FROM rows'),
    "records": lambda table: table.to_pylist(),
    "columns": lambda table: table.to_pydict(),
    "columns of arrays": lambda table: {name: table[name] for name in table.column_names},
    "pandas with sparse columns": lambda table: table.to_pandas().astype({"count": pd.SparseDtype("int64", 0)}),
    "polars with categories": lambda table: pl.from_arrow(table).with_columns(pl.col("word").cast(pl.Categorical)),
    "path": as_file,
    "paths": lambda table: [str(as_file(table))],
    "dataset of a file": lambda table: pads.dataset(as_file(table)),
    "source": lambda table: Source.open(str(as_file(table))),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_model_and_the_same_answers(form, table, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    expected = KDB(k=1, m=1.0).fit(table, "class")
    model = KDB(k=1, m=1.0).fit(FORMS[form](table), "class")
    assert model.feature_names_in_.tolist() == ["word", "size", "count", "is_new"]
    rows = table.drop_columns("class")
    assert np.array_equal(model.predict_proba(table), expected.predict_proba(rows))
    form_of_rows = FORMS[form](table) if form.startswith("duckdb") else FORMS[form](rows)
    assert np.array_equal(expected.predict_proba(form_of_rows), expected.predict_proba(rows))


def test_decimals_and_duckdb_enums_are_read(table):
    relation = duckdb.sql(
        "SELECT word::ENUM('u', 'v', 'w') AS word, size::DECIMAL(9, 3) AS size, \"count\"::HUGEINT AS \"count\", is_new, class FROM \"table\""
    )
    expected = NB(m=1.0).fit(table, "class").predict_proba(table)
    assert np.allclose(NB(m=1.0).fit(relation, "class").predict_proba(relation), expected, atol=0.02)
    sizes = [decimal.Decimal(i % 7 + 5 * (word == "yes")) for i, word in enumerate(table["class"].to_pylist())]
    attributes = NB().fit(table.to_pydict() | {"size": sizes}, "class").model_.schema.attributes
    (size,) = (attribute for attribute in attributes if attribute.name == "size")
    assert size.kind == "numeric" and size.arrow_type.startswith("decimal128")


def test_classes_beside_the_table_in_any_form(table):
    rows, y = table.drop_columns("class"), table["class"]
    expected = NB(m=1.0).fit(table, "class").predict_proba(rows)
    for classes in (y, y.combine_chunks(), y.to_pylist(), y.to_pandas(), pl.from_arrow(y), y.to_numpy()):
        assert np.array_equal(NB(m=1.0).fit(rows, classes).predict_proba(rows), expected)
        assert np.array_equal(NB(m=1.0).fit(rows.to_reader(), classes).predict_proba(rows), expected)
    for classes in (y.to_pylist()[:-1], [*y.to_pylist(), "no"]):
        with pytest.raises(InvalidParameter, match=r"y has .* classes, but X has"):
            NB().fit(rows.to_reader(), classes)


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array", "lil_array", "dok_array"])
def test_sparse_matrices_are_made_dense_slice_by_slice(kind, monkeypatch):
    monkeypatch.setattr("learners.estimators.table_inputs.SLICE_CELLS", 64)
    rng = np.random.default_rng(2)
    y = rng.integers(0, 2, 200)
    dense = np.where(rng.random((200, 6)) < 0.3 + 0.4 * y[:, None], rng.integers(1, 4, (200, 6)), 0).astype(float)
    sparse = getattr(scipy.sparse, kind)(dense)
    expected = NB(m=1.0).fit(dense, y)
    assert np.array_equal(NB(m=1.0).fit(sparse, y).predict_proba(dense), expected.predict_proba(dense))
    assert np.array_equal(expected.predict_proba(sparse), expected.predict_proba(dense))


def test_arrays_of_objects_and_lists_keep_the_type_of_each_column(table):
    rows = table.drop_columns("class").to_pandas().astype(object).to_numpy()
    expected = NB(m=1.0).fit(table, "class").predict_proba(table)
    for X in (rows, rows.tolist()):
        model = NB(m=1.0).fit(X, table["class"])
        assert [a.kind for a in model.model_.schema.attributes] == ["nominal", "numeric", "numeric", "nominal"]
        assert np.array_equal(model.predict_proba(X), expected)
        assert not hasattr(model, "feature_names_in_")


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ({"a": [1, "b"], "c": [1, 2]}, SchemaError, "values of column 'a' have no common Arrow type"),
        (pd.DataFrame({"a": [1, "b"]}), SchemaError, "values of column 'a' have no common Arrow type"),
        (np.array([[1, 2], ["b", 3]], object), SchemaError, "values of column 'x0' have no common Arrow type"),
        (pd.DataFrame([[1, 2], [1, 2]], columns=["a", "a"]), SourceError, "two columns named 'a'"),
        (pa.table([[1, 1], [2, 2]], names=["a", "a"]), SourceError, "two columns named 'a'"),
        (pl.Series([1, 2]), InvalidParameter, "it is one row or column of a frame"),
        (3, InvalidParameter, "must be paths, a pyarrow Table"),
        (pd.Series(["a", 1.5]), InvalidParameter, "X .Series. cannot be used: it is one row or column of a frame"),
        ([[1], [1, 2]], InvalidParameter, "X must be paths.*, not list"),
        ({"a": [1, 2], "b": [1]}, SchemaError, "Column 'b' has 1 values, but 'a' has 2"),
        (
            {"a": 1, "b": [1, 2]},
            SchemaError,
            "Column 'b' has several values, but column 'a' has one. For a single row, pass one value for 'b'",
        ),
        ({"a": 1, "b": {"c": 1}}, SchemaError, "Column 'b' holds a mapping"),
        ({"a": [1, 2], "b": {"c": 1}}, SchemaError, "Column 'a' has several values, but column 'b' has one"),
        (np.arange(3), ValueError, "Reshape your data"),
        (np.zeros((2, 2), complex), ValueError, "Complex data not supported"),
    ],
)
def test_what_is_no_table_is_refused_by_name(X, error, message):
    with pytest.raises(error, match=message):
        NB().fit(X, [0, 1])


def test_a_stream_that_fails_is_told():
    schema = pa.schema([("a", pa.int64()), ("class", pa.string())])

    def batches():
        yield pa.record_batch([[1, 2], ["x", "y"]], schema=schema)
        raise pa.ArrowInvalid("the connection was lost")

    with pytest.raises(SourceError, match=r"The stream cannot be read \(the connection was lost\)"):
        NB().fit(pa.RecordBatchReader.from_batches(schema, batches()), "class")


def test_a_long_stream_is_kept_in_a_file_that_goes_with_it(table, tmp_path, monkeypatch):
    monkeypatch.setattr("learners.passes.memory._limit", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    source = source_from_row_stream(table.schema, table.to_batches(50), "x", held_bytes=1000)
    (folder,) = tmp_path.iterdir()
    assert (folder / "stream.parquet").is_file()
    read = pa.Table.from_batches(list(source.batches())).cast(table.schema)
    assert read.equals(table)
    part = source.only({0})
    del source
    assert folder.exists(), "a part of the source still needs it"
    del part
    assert not folder.exists()


def test_a_stream_whose_file_cannot_be_written_leaves_nothing(table, tmp_path, monkeypatch):
    monkeypatch.setattr("learners.passes.memory._limit", None)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def batches():
        yield from table.to_batches(50)
        raise OSError("no space left on device")

    with pytest.raises(SourceError, match=r"cannot be kept there .*no space left"):
        source_from_row_stream(table.schema, batches(), "x", held_bytes=1000)
    assert not list(tmp_path.iterdir())


def test_estimators_learn_from_a_long_stream_as_from_a_table(table, monkeypatch):
    monkeypatch.setattr("learners.passes.sources.row_streams.SHARE", 1 << 40)
    expected = KDB(k=2, m=1.0).fit(table, "class").predict_proba(table)
    model = KDB(k=2, m=1.0).fit(table.to_reader(max_chunksize=60), "class")
    assert np.array_equal(model.predict_proba(table), expected)
    assert model.parts_[0].source.keeps is not None and not model.parts_[0].source.is_identified
    weighted = KDB(k=2, m=1.0).fit(table.to_reader(max_chunksize=60), "class", sample_weight=[2] * 500)
    assert weighted.model_.facts["n_rows"] == 1000


def test_classes_that_are_missing_are_refused_by_name_or_left_out(table):
    y = np.where(np.arange(500) < 7, None, table["class"].to_numpy())
    for missing in (y, pd.Series(y), np.where(np.arange(500) < 7, np.nan, table["class"].to_numpy() == "yes")):
        with pytest.raises(SchemaError, match="The target 'class' is null in at least 7 rows"):
            NB().fit(table.drop_columns("class"), missing)
    model = NB(columns={"class": {"null_class": "drop"}}).fit(table.drop_columns("class"), y)
    assert model.model_.facts["n_rows"] == 493


def test_whole_numbers_from_2_to_the_63_are_the_same_in_a_table_and_in_records():
    numbers, y = [2**63 + 5, 3] * 50, ["x", "y"] * 50
    model = SumProductNetwork(target="y").fit(pa.table({"u": pa.array(numbers, pa.uint64()), "y": y}))
    expected = model.predict_proba(pa.table({"u": pa.array(numbers[:2], pa.uint64())}))
    assert np.array_equal(model.predict_proba([{"u": u} for u in numbers[:2]]), expected)
    assert np.array_equal(model.predict_proba({"u": numbers[0]}), expected[:1])


def test_marks_of_pandas_are_missing_values_in_records_and_lists():
    moments, y = pd.date_range("2026-01-01", periods=100), ["x", "y"] * 50
    model = NB().fit(pd.DataFrame({"n": np.arange(100.0) % 2, "t": moments, "w": ["a", "b"] * 50, "y": y}), "y")
    nothing = model.predict_proba({})
    for record in ({"n": pd.NA, "w": pd.NA, "t": pd.NaT}, {"n": pd.NaT, "w": None}):
        assert np.array_equal(model.predict_proba(record), nothing)
        assert np.array_equal(model.predict_proba([record, record])[:1], nothing)


def test_a_table_with_a_name_twice_is_refused_at_prediction_too():
    table = pa.table({"a": ["x", "y"] * 20, "class": ["no", "yes"] * 20})
    model = NB().fit(table, "class")
    twice = pa.Table.from_arrays([table["a"], table["class"], table["a"]], names=["a", "class", "a"])
    for rows in (twice, twice.to_batches()[0], twice.to_reader()):
        with pytest.raises(SourceError, match=r"two columns named 'a'\. Rename one"):
            model.predict_proba(rows)


@pytest.mark.parametrize(
    "classes",
    [
        pa.array(["a", "a\0", "a\0b"]),  # NumPy's own text drops zero characters at the end
        pa.array([0, 1, 2], pa.int32()).cast(pa.date32()),
        pa.array([0, 10**9, 5], pa.int64()).cast(pa.timestamp("ns", "Europe/Berlin")),
        pa.array([0, 1, 2], pa.int64()).cast(pa.time64("ns")),
        pa.array([-1, 0, 1], pa.int64()).cast(pa.duration("us")),
        pa.array([0, 1, 2], pa.int64()).cast(pa.decimal128(38, 2)),
        pa.array(["u", "v", "w"]).dictionary_encode(),
        pa.array([False, True, False]),
    ],
    ids=lambda classes: str(classes.type),
)
def test_every_class_is_told_apart_and_counted_by_score(classes):
    table = pa.table({"x": ["u", "v", "w"] * 20})
    y = pa.concat_arrays([classes] * 20)
    model = NB().fit(table, y)
    assert len(set(model.predict(table))) == len(model.classes_) == len(set(model.model_.schema.classes))
    assert model.score(table, y) == model.score(table, pa.chunked_array([y[:7], y[7:]])) == 1.0
    assert model.score(table, pa.concat_arrays([y[1:], y[:1]])) == (1 / 3 if len(model.classes_) == 2 else 0.0)
    if pa.types.is_string(classes.type):
        labels = y.to_pylist()
        assert NB().fit(table, labels).score(table, labels) == model.score(table, labels) == 1.0
