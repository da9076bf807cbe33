"""Classifiers of every learner: forms of a table, scikit-learn's own checks, weights, learning in parts, merging."""

import dataclasses
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import learners
from fewpass import KDB, NB, SKDB, TAN
from learners import Source
from learners.errors import (
    ColumnWarning,
    InvalidParameter,
    LearnerError,
    SchemaError,
    SourceError,
    one_line_error_text,
)
from learners.models.query import Edges, Marginal
from learners.passes.column_summaries import ColumnSummaries
from learners.schema import Schema
from tests.naive.information import freedom, mutual_information


@pytest.fixture
def table():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 400)
    words = np.array(["u", "v", "w", "x"])
    columns = {f"a{i}": words[(rng.integers(0, 2, 400) + y * (i > 0)) % 4] for i in range(4)}
    return pa.table(columns | {"size": rng.normal(y, 1.0), "class": np.array(["no", "maybe", "yes"])[y]})


def equal(one, other):
    (header_a, arrays_a), (header_b, arrays_b) = one.model_.to_arrays(), other.model_.to_arrays()
    return header_a["parents"] == header_b["parents"] and all(
        np.array_equal(arrays_a[name], arrays_b[name], equal_nan=arrays_a[name].dtype.kind == "f") for name in arrays_a
    )


def attributes_of(estimator):
    """Files are read with dictionaries, tables as they are: but for that type they are the same."""
    return [dataclasses.replace(attribute, arrow_type="") for attribute in estimator.model_.schema.attributes]


def test_a_dataset_is_what_it_makes_of_its_files(table, tmp_path):
    """A filter, a schema, partitions, single row groups: learning from its files would be learning from other rows."""
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=100)
    whole = pads.dataset(tmp_path / "t.parquet")
    pads.write_dataset(
        table, tmp_path / "by class", format="parquet", partitioning=["class"], partitioning_flavor="hive"
    )
    pads.write_dataset(table, tmp_path / "csv", format="csv")
    (fragment,) = whole.get_fragments()
    datasets = {
        "filter": whole.filter(pads.field("size") > 0),
        "schema": whole.replace_schema(pa.schema([("a1", pa.string()), ("class", pa.string())])),
        "partitions": pads.dataset(tmp_path / "by class", partitioning="hive"),
        "row groups": pads.FileSystemDataset([fragment.subset(row_group_ids=[1, 3])], whole.schema, whole.format),
        "csv": pads.dataset(tmp_path / "csv", format="csv"),
        "twice": pads.dataset([whole, whole]),
        "memory": pads.dataset(table),
    }
    for name, dataset in datasets.items():
        one, other = NB(m=1.0).fit(dataset, "class"), NB(m=1.0).fit(dataset.to_table(), "class")
        assert one.model_.facts["n_rows"] == dataset.to_table().num_rows, name
        assert attributes_of(one) == attributes_of(other) and equal(one, other), name
        assert np.array_equal(one.predict_proba(dataset), other.predict_proba(dataset.to_table())), name
    assert NB().fit(whole, "class").parts_[0].source.is_identified, (
        "files that are the whole dataset are read in passes"
    )
    (tmp_path / "csv" / "part-0.csv").write_text('"a\n1,2,3\n')
    with pytest.raises(SourceError, match="The dataset cannot be read"):
        NB().fit(datasets["csv"], "class")


@pytest.mark.parametrize("given", [True, False], ids=["schema given", "schema inferred"])
def test_two_halves_merged_equal_the_whole(given, table):
    schema: Schema | None = NB().fit(table, "class").model_.schema if given else None
    for estimator in (
        NB(schema=schema),
        TAN(schema=schema),
        KDB(k=2, schema=schema),
        SKDB(k=2, estimator="hdp", iterations=50, schema=schema),
    ):
        first, second = (clone(estimator).fit(part, "class") for part in (table.slice(0, 150), table.slice(150)))
        assert equal(first.merged(second), clone(estimator).fit(table, "class"))
        assert equal(second.merged(first), clone(estimator).fit(table, "class"))


def test_what_was_counted_is_not_read_again(table, monkeypatch):
    schema = NB().fit(table, "class").model_.schema
    first, second = (NB(schema=schema).fit(part, "class") for part in (table.slice(0, 150), table.slice(150)))
    monkeypatch.setattr(Source, "read", lambda *args: pytest.fail("the data were read"))
    assert first.merged(second).model_.class_counts.sum() == 400


def test_wrong_use_is_named(table, tmp_path):
    pq.write_table(table, tmp_path / "t.parquet")
    model = NB().fit(table, "class")
    for call, error, message in (
        (lambda: NB().fit(table), InvalidParameter, "name the class column"),
        (lambda: NB().fit(str(tmp_path / "t.parquet"), [1, 2]), InvalidParameter, "with paths, give the name"),
        (
            lambda: NB().fit(table.drop_columns("class"), [1, 2]),
            InvalidParameter,
            "y has 2 classes, but X has 400 rows",
        ),
        (
            lambda: NB(target="a1").fit(table, ["x"] * 400),
            InvalidParameter,
            "X already has a column of that name: choose another name for the classes",
        ),
        (lambda: KDB(k=9).fit(table, "class"), InvalidParameter, "k"),
        (lambda: model.merged(NB(m=1.0).fit(table, "class")), LearnerError, "same class"),
        (lambda: model.query("conditional"), InvalidParameter, "query must be a Marginal, Cond.*, not str"),
        (lambda: model.query(Marginal("a1")), InvalidParameter, "evidence='a1' must be a mapping from"),
        (lambda: model.query(Edges()), InvalidParameter, "query must be .*, not Edges"),
        (lambda: learners.Forest, AttributeError, "No learners attribute Forest"),
    ):
        with pytest.raises(error, match=message):
            call()


@parametrize_with_checks([NB(m=1.0), TAN(m=1.0), KDB(k=2), SKDB(k=2, m=1.0)])
@pytest.mark.filterwarnings("ignore::learners.errors.ColumnWarning", "ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learn_finds_nothing_wrong(estimator, check):
    check(estimator)


def test_a_large_weight_makes_no_large_batch(table):
    weights = np.ones(table.num_rows, int)
    weights[7] = 200_000
    assert NB(m=1.0).fit(table, "class", sample_weight=weights).model_.facts["n_rows"] == table.num_rows - 1 + 200_000


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.5] * 400, "row 0 must be a whole number"),
        ([1] * 399 + [-1], "row 399 must be a whole number"),
        ([float("nan")] * 400, "whole number from 0 to"),
        ([1] * 7, "sample_weight has 7 weights, but X has 400 rows"),
        ([0] * 400, "all weights are zero"),
        (["a"] * 400, "one number for each row"),
        ([[1]] * 400, "one number for each row"),
    ],
)
def test_other_weights_are_refused(weights, message, table):
    with pytest.raises(InvalidParameter, match=message):
        NB().fit(table, "class", sample_weight=weights)
    with pytest.raises(InvalidParameter, match="with paths, name the column"):
        NB(target="class").fit("some.parquet", sample_weight=weights)


@pytest.mark.parametrize("make", [NB, lambda: KDB(k=2), lambda: SKDB(k=2, estimator="hdp-map")])
def test_learning_in_parts_gives_the_model_of_all_rows(make, table):
    whole = make().fit(table, "class")
    parts = make()
    for first, n_rows in ((0, 50), (50, 70), (120, 280)):
        parts.partial_fit(table.slice(first, n_rows), "class")
    assert equal(parts, whole)
    assert np.array_equal(parts.predict_log_proba(table), np.log(whole.predict_proba(table)))


def test_classes_that_come_later_are_declared(table):
    is_no = pa.compute.equal(table["class"], "no")
    model = NB().partial_fit(table.filter(is_no), "class", classes=["yes", "no", "maybe"])
    assert model.classes_.tolist() == ["maybe", "no", "yes"]
    probabilities = model.predict_proba(table)
    assert np.allclose(probabilities.sum(axis=1), 1) and (probabilities.argmax(axis=1) == 1).all()
    model.partial_fit(table.filter(pa.compute.invert(is_no)), "class")
    assert np.allclose(model.predict_proba(table), NB().fit(table, "class").predict_proba(table))
    with pytest.raises(SchemaError, match="only one class, 'no'"):
        NB().fit(table.filter(is_no), "class")


def test_parts_of_other_tables_are_refused(table):
    model = NB().partial_fit(table, "class")
    with pytest.raises(InvalidParameter, match="earlier rows had their classes in 'class'"):
        model.partial_fit(table, "a0")
    by_position = NB().partial_fit(np.eye(4), [0, 1, 0, 1])
    with pytest.raises(SchemaError, match="X has 3 features, but NB is expecting 4 features"):
        by_position.partial_fit(np.eye(3), [0, 1, 0])


def test_importances_of_naive_bayes_are_corrected_mutual_information(table):
    model = NB(columns={"size": "drop"}).fit(table, "class")
    y, nothing = table["class"].to_numpy(), np.zeros(400)
    columns = [table[name].to_numpy() for name in model.feature_names_in_[:4]]
    told = [max(0.0, mutual_information(x, y) - freedom(x, y, nothing) / 800) for x in columns]
    assert np.allclose(model.feature_importances_[:4], np.array(told) / sum(told))


def test_importances_where_nothing_is_told_or_there_is_no_network(table):
    model = NB().fit(table, "class")
    noise = NB(columns={"a": "nominal"}).fit(pa.table({"a": [1, 2] * 50, "class": ["a", "a", "b", "b"] * 25}), "class")
    assert noise.feature_importances_.tolist() == [0.0]
    model._columns.model = object.__new__(type("Other", (), {"kind": "orders"}))
    with pytest.raises(LearnerError, match=r"orders. .*importances"):
        model.feature_importances_  # noqa: B018
    assert not hasattr(model, "feature_importances_")


def test_a_fitted_estimator_can_be_pickled_after_it_has_answered(table):
    model = NB().fit(table, "class")
    row = {"a1": "u", "size": 0.5}
    expected = model.predict_proba(row)
    assert np.array_equal(pickle.loads(pickle.dumps(model)).predict_proba(row), expected)


def test_what_a_pass_has_collected_is_not_changed_by_declared_classes(table):
    """It may be stored at that moment."""
    summaries = ColumnSummaries("class")
    summaries.update(table.to_batches()[0])
    before = list(summaries.classes)
    from learners.estimators.labels import passes_with_declared_classes

    def passes():
        found = yield summaries
        return list(found.classes)

    made = passes_with_declared_classes(passes(), ["later"])
    next(made)
    with pytest.raises(StopIteration) as stopped:
        made.send(summaries)
    assert stopped.value.value == [*before, "later"] and summaries.classes == before


def test_scikit_learn_is_imported_with_the_first_estimator_only():
    told = (
        "import sys, learners; learners.Source, learners.encode, learners.learner, learners.load_model, "
        "learners.record_classifier; assert 'sklearn' not in sys.modules; import fewpass; fewpass.NB; assert 'sklearn' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", told], check=True, timeout=120)


def test_nothing_is_said_where_nothing_is_lost(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        model = NB().fit(table, "class")
        model.predict(table)
        model.predict_proba({"a1": "u"})


def test_score_takes_the_class_column_of_the_table(table, tmp_path):
    pq.write_table(table, tmp_path / "t.parquet")
    model = NB(target="class").fit(table)
    share = model.score(table.drop_columns("class"), table["class"])
    for rows in (table, table.to_pandas(), tmp_path / "t.parquet", Source.of_table(table)):
        assert model.score(rows) == model.score(rows, "class") == share
    by_array = NB().fit(table.drop_columns("class"), table["class"].to_numpy())
    assert by_array.score(table) == share
    with pytest.raises(LearnerError, match="class"):
        model.score(table.drop_columns("class"))
    for rows in (table, tmp_path / "t.parquet"):
        with pytest.raises(LearnerError, match="Column 'nope' is not in the table"):
            model.score(rows, "nope")


def test_arguments_that_are_refused_have_the_names_of_the_call(table):
    model = NB(target="class").fit(table)
    with pytest.raises(InvalidParameter, match="Parameter level=90 must be a probability"):
        model.predict_interval(table, 90)
    with pytest.raises(SchemaError, match="names its columns as training did, such as 'a0', but has the name 0"):
        model.predict_proba({0: 1.5})
    with pytest.raises(
        InvalidParameter, match=r"Unknown label type: continuous.* cut numbers into ranges, such as pandas"
    ):
        NB().fit(table.drop_columns("class"), table["size"].to_numpy())
    with pytest.raises(InvalidParameter, match=r"array.reshape\(1, -1\) if it contains a single sample\.$"):
        model.predict(np.ones(5))
    assert one_line_error_text(ValueError("words " * 100)).endswith(" words…"), "a text is cut between words"
