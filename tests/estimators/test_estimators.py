import dataclasses

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import learners
from learners import KDB, NB, SKDB, TAN, Source
from learners.errors import InvalidParameter, LearnerError, SourceError
from learners.models.query import Edges, Marginal
from learners.schema import Schema


@pytest.fixture
def table():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 400)
    columns = {f"a{i}": np.array(["u", "v", "w"])[(rng.integers(0, 3, 400) + y * (i % 2)) % 3] for i in range(5)}
    return pa.table(columns | {"size": rng.normal(y, 1.0), "class": np.array(["no", "yes"])[y]})


def equal(one, other):
    (header_a, arrays_a), (header_b, arrays_b) = one.model_.to_arrays(), other.model_.to_arrays()
    return header_a["parents"] == header_b["parents"] and all(
        np.array_equal(arrays_a[name], arrays_b[name], equal_nan=arrays_a[name].dtype.kind == "f") for name in arrays_a
    )


@pytest.mark.parametrize("estimator", [NB(), TAN(), KDB(k=3), SKDB(k=2), KDB(k=2, estimator="hdp-map")])
def test_all_forms_of_a_table_give_the_same_model(estimator, table, tmp_path):
    pq.write_table(table, tmp_path / "t.parquet")
    frame = table.to_pandas()
    forms = [
        clone(estimator).fit(table, "class"),
        clone(estimator).set_params(target="class").fit(table),
        clone(estimator).fit(tmp_path / "t.parquet", "class"),
        clone(estimator).fit([str(tmp_path / "t.parquet")], "class"),
        clone(estimator).fit(pads.dataset(tmp_path / "t.parquet"), "class"),
        clone(estimator).fit(Source.open(str(tmp_path / "t.parquet")), "class"),
        clone(estimator).fit(frame, "class"),
        clone(estimator).fit(frame.drop(columns="class"), frame["class"]),
        clone(estimator).fit(table.to_batches()[0], "class"),
    ]
    assert all(equal(forms[0], other) for other in forms[1:])
    probabilities = forms[0].predict_proba(table)
    assert np.array_equal(probabilities, forms[0].predict_proba(tmp_path / "t.parquet"))
    assert np.array_equal(probabilities, forms[0].predict_proba(frame.drop(columns="class")))
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert list(forms[0].classes_) == ["no", "yes"]
    assert set(forms[0].predict(table)) <= {"no", "yes"}


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
    with pytest.raises(SourceError, match="The dataset: cannot be read"):
        NB().fit(datasets["csv"], "class")


def test_it_follows_the_conventions_of_scikit_learn():
    x, y = load_iris(return_X_y=True)
    assert cross_val_score(KDB(k=1), x, y).mean() > 0.9
    assert clone(KDB(k=2, m=1.0)).get_params()["k"] == 2
    assert NB().fit(x, y).n_features_in_ == 4
    assert NB().fit(pd.DataFrame(x), y).predict(x).dtype.kind == "i"
    with pytest.raises(NotFittedError, match="not fitted"):
        NB().predict(x)


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
    with pytest.raises(InvalidParameter, match="name the class column"):
        NB().fit(table)
    with pytest.raises(InvalidParameter, match="with paths, give the name"):
        NB().fit(str(tmp_path / "t.parquet"), [1, 2])
    with pytest.raises(InvalidParameter, match="one class for each of the 400 rows"):
        NB().fit(table.drop_columns("class"), [1, 2])
    with pytest.raises(InvalidParameter, match="is in X already"):
        NB(target="a1").fit(table, ["x"] * 400)
    with pytest.raises(InvalidParameter, match="k"):
        KDB(k=9).fit(table, "class")
    with pytest.raises(LearnerError, match="same class"):
        NB().fit(table, "class").merged(NB(m=1.0).fit(table, "class"))
    with pytest.raises(InvalidParameter, match="query='str' is not allowed: give a Marginal, Conditional, "):
        NB().fit(table, "class").query("conditional")
    with pytest.raises(InvalidParameter, match="evidence='a1' is not allowed: give a mapping from column to value"):
        NB().fit(table, "class").query(Marginal("a1"))
    with pytest.raises(InvalidParameter, match="query='Edges' is not allowed"):
        NB().fit(table, "class").query(Edges())
    with pytest.raises(AttributeError, match="KDB"):
        learners.Forest  # noqa: B018
