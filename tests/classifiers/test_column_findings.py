"""What a network tells of its columns: saved indices, columns that tell all or nothing, what parents tell, and what folding cost, against definitions."""

import re
from collections import Counter
from math import log

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners import Source, drive
from learners.classifiers.column_findings import (
    folded_value_information_loss,
    most_frequent_contexts,
    parent_information_gains,
    training_column_warnings,
)
from learners.classifiers.estimates.context_tree import context_tree_from_cells, m_estimates
from learners.classifiers.lookup.lookup import LookupModel
from learners.monitoring.count_layout import monitored_network
from learners.registry import recipes
from learners.schema.schema_inference import FoldingCost, schema_loss_warnings
from tests.naive.information import mutual_information


def told_of(path, columns=None, learner="nb"):
    model = drive(recipes.learner(learner, {}, "y", None, columns), Source.open(path), threads=1)
    return model.schema, training_column_warnings(model.schema, monitored_network(model))


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
    assert f"Column {own!r} alone determines 'y' in all rows. Drop it if it is known only after the class." in told


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
    assert told == ["Column 'alive' alone determines 'y' in all rows. Drop it if it is known only after the class."]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.random.default_rng(0).normal(size=400), np.repeat(["a", "b"], 200), "No column has information about 'y': the model"),
        (np.arange(200) % 5, [f"n{row % 60}" for row in range(200)], "'y' has 60 classes in 200 rows: too few rows to"),
    ],
)  # fmt: skip
def test_tables_that_tell_little_are_told(x, y, message, tmp_path):
    pd.DataFrame({"x": x, "y": y}).to_csv(tmp_path / "t.csv", index=False)
    assert told_of(tmp_path / "t.csv")[1][0].startswith(message)


def entropy(values):
    counts = Counter(values)
    return -sum(c / len(values) * log(c / len(values)) for c in counts.values())


def drawn_tree(seed, n_rows, n_parents):
    """Rows of (class, parents..., value), and their tree."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, (n_rows, n_parents + 2))
    rows[:, -1] = np.where(rng.random(n_rows) < 0.5, rows[:, 0], rows[:, -1])
    cells = Counter(map(tuple, rows.tolist()))
    table = np.array([[*cell, n] for cell, n in cells.items()], np.int64)
    tree = context_tree_from_cells(table[:, 0], table[:, 1:-2], table[:, -2], table[:, -1], 3)
    return rows, tree


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 3))
def test_each_parent_tells_its_conditional_mutual_information(seed, n_rows, n_parents):
    """I(X; P_l | class, P_1, ..., P_{l-1}) by entropies of the rows themselves."""
    rows, tree = drawn_tree(seed, n_rows, n_parents)
    x = rows[:, -1:]
    wanted = []
    for level in range(n_parents + 1):
        before, after = rows[:, :level], rows[:, : level + 1]
        with_before, of_before, with_after, of_after = (
            entropy(list(map(tuple, part))) for part in (np.hstack([before, x]), before, np.hstack([after, x]), after)
        )
        wanted.append(with_before - of_before - (with_after - of_after))
    assert parent_information_gains(tree) == pytest.approx(np.maximum(0, wanted), abs=1e-9)


@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(0, 2))
def test_contexts_tell_rows_and_probabilities(seed, n_rows, n_parents):
    rows, tree = drawn_tree(seed, n_rows, n_parents)
    found = most_frequent_contexts(tree, m_estimates(tree, 1.0), 1000)
    counted = Counter(map(tuple, rows.tolist()))
    assert sum(int(context.n_rows.sum()) for context in found) == n_rows
    sizes = [int(context.n_rows.sum()) for context in found]
    assert sizes == sorted(sizes, reverse=True)
    for context in found:
        assert context.n_rows.tolist() == [counted[(*context.codes, value)] for value in range(3)]
        assert context.probability.sum() == pytest.approx(1.0)


def learned(table, max_values):
    model = drive(
        recipes.learner("nb", {"max_values": max_values, "m": 1.0}, "class"), Source.of_table(table), threads=1
    )
    assert isinstance(model, LookupModel)
    return model


@given(seed=st.integers(0, 10**6), max_values=st.integers(2, 12))
def test_costs_are_those_of_raw_rows_and_bound_what_is_lost(seed, max_values):
    rng = np.random.default_rng(seed)
    x = np.minimum(rng.geometric(0.15, 300), 25)
    y = (x * 7 + rng.integers(0, 3, 300)) % 3
    table = pa.table({"shop": [f"s{a:02d}" for a in x], "other": ["a", "b"] * 150, "class": [f"c{b}" for b in y]})
    model = learned(table, max_values)
    found = folded_value_information_loss(model)
    shops, labels = table["shop"].to_numpy(), table["class"].to_numpy()
    is_kept = np.isin(shops, model.schema.attributes[1].values)
    folded = labels[~is_kept]
    if not folded.size:
        assert found == {}
        return
    assert list(found) == ["shop"] and found["shop"].share == pytest.approx(len(folded) / 300)
    assert found["shop"].most_nats == pytest.approx(len(folded) / 300 * entropy(folded))
    lost = mutual_information(shops, labels) - mutual_information(np.where(is_kept, shops, ""), labels)
    assert -1e-9 <= lost <= found["shop"].most_nats + 1e-9


def test_the_cost_is_told():
    model = learned(pa.table({"x": list("aaabbbcdef") * 10, "class": list("uvuvuvuvuv") * 10}), 2)
    assert schema_loss_warnings(model.schema, {"x": FoldingCost(0.4, 0.27725)}) == [
        "Column 'x': the 2 most frequent values have codes of their own; 4 rarer ones share one, in 40.0% of the rows: separate codes would lower the "
        "log loss by at most 0.277. Raise max_values to keep more."
    ]
    assert folded_value_information_loss(model)["x"].most_nats == pytest.approx(0.4 * log(2))
    assert schema_loss_warnings(model.schema) == [
        "Column 'x': the 2 most frequent values have codes of their own; 4 rarer ones share one. Raise max_values to keep more."
    ]


@pytest.mark.parametrize("learner", ["nb", "xgboost"])
@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((2, 1), "3 rows are too few to learn 2 classes of 'y'"),
        ((12, 12, 12, 12, 12), ""),
        ((12, 12, 12, 12, 12, 1), r"1 class has fewer than 5 rows \('f'\), which is too few"),
        ((80, 1), r"1 class has fewer than 5 rows \('b'\), which is too few"),
        ((30, 30), ""),
    ],
)
def test_too_few_rows_are_named(tmp_path, counts, words, learner):
    """Three rows, or one row of a class, do not pass without a word, whatever learns."""
    y = [name for name, n in zip("abcdef", counts, strict=False) for _ in range(n)]
    pd.DataFrame({"x": [str(row % 2) for row in range(len(y))], "y": y}).to_csv(tmp_path / "t.csv", index=False)
    model = drive(recipes.learner(learner, {}, "y"), Source.open(tmp_path / "t.csv"), threads=1)
    found = [
        text for text in training_column_warnings(model.schema, monitored_network(model), model.facts) if "few" in text
    ]
    assert len(found) == bool(words) and all(re.match(words, text) for text in found)
