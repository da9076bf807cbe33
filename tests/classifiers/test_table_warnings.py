"""What training tells of a table: saved indices, columns that tell all of the class, tables that tell nothing."""

import numpy as np
import pandas as pd
import pytest

from learners import Source, drive
from learners.classifiers.table_warnings import table_warnings
from learners.monitoring.count_layout import network_of
from learners.registry import recipes


def told_of(path, columns=None, learner="nb"):
    model = drive(recipes.learner(learner, {}, "y", None, columns), Source.open(path), threads=1)
    return model.schema, table_warnings(model.schema, network_of(model))


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b"], 200)
    return pd.DataFrame({"x": rng.normal(y == "b", 1.0), "y": y})


@pytest.mark.parametrize("name", ["csv", "parquet", "read again"])
def test_a_saved_index_is_left_out_and_told(name, frame, tmp_path):
    """Rows in the order of their class: the number of the row would tell it."""
    path = tmp_path / ("t.parquet" if name == "parquet" else "t.csv")
    if name == "parquet":
        frame.set_index(pd.Index(np.arange(400))).to_parquet(path, index=True)
    else:
        frame.to_csv(path)
    if name == "read again":
        pd.read_csv(path).to_csv(path, index=False)
    own = {"parquet": "__index_level_0__", "csv": "", "read again": "Unnamed: 0"}[name]
    schema, told = told_of(path)
    assert [attribute.name for attribute in schema.attributes] == ["x"]
    assert any(f"Column {own!r} is left out: an index that pandas has saved" in warning for warning in told)
    schema, told = told_of(path, {own: "numeric"})
    assert own in [attribute.name for attribute in schema.attributes]
    assert f"Column {own!r} determines 'y' by itself in all rows. If it is known only afterwards, drop it." in told


def test_an_unnamed_column_of_text_is_learned(frame, tmp_path):
    frame.index = np.where(np.arange(400) % 3 == 0, "low", "high")
    frame.to_csv(tmp_path / "t.csv")
    schema, told = told_of(tmp_path / "t.csv")
    assert "" in [attribute.name for attribute in schema.attributes] and not told


@pytest.mark.parametrize("learner", ["nb", "tan", "kdb"])
def test_a_column_that_determines_the_class_is_told(learner, frame, tmp_path):
    frame["alive"] = np.where(frame["y"] == "a", "yes", "no")
    frame["nearly"] = np.where(np.arange(400) == 7, "no", frame["alive"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    _, told = told_of(tmp_path / "t.csv", learner=learner)
    assert told == ["Column 'alive' determines 'y' by itself in all rows. If it is known only afterwards, drop it."]


def test_it_is_told_when_no_column_tells_anything(tmp_path):
    rng = np.random.default_rng(0)
    pd.DataFrame({"x": rng.normal(size=400), "y": np.repeat(["a", "b"], 200)}).to_csv(tmp_path / "t.csv", index=False)
    _, told = told_of(tmp_path / "t.csv")
    assert told == ["No column tells anything of 'y': the model answers with the shares of the classes."]


def test_too_few_rows_for_each_class_are_told(tmp_path):
    rows = np.arange(200)
    pd.DataFrame({"x": rows % 5, "y": [f"n{row % 60}" for row in rows]}).to_csv(tmp_path / "t.csv", index=False)
    assert told_of(tmp_path / "t.csv")[1][0].startswith(
        "'y' has 60 classes in 200 rows: too few rows to tell them apart."
    )
