"""Shapley values by the shap library, against their definition."""

import itertools
import math
import re
import warnings
from pathlib import Path

import numba
import numpy as np
import pandas as pd
import pytest

import fewpass
import fewpass.shap

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "in-and-out.md"


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    rich = rng.random(500) < 0.4
    where = np.where(rng.random(500) < 0.6, np.where(rich, "north", "south"), "west").astype(object)
    where[::7] = None
    return pd.DataFrame(
        {"age": rng.normal(np.where(rich, 50, 40), 8), "where": where, "code": rng.integers(0, 3, 500)}
    ).assign(income=np.where(rich, ">50K", "<=50K"))


@pytest.fixture(scope="module", params=[lambda: fewpass.KDB(k=1, columns={"code": "nominal"}), fewpass.ESKDB])
def model(request, frame):
    return request.param().fit(frame, "income")


def shapley(model, row):
    """(n_columns, n_classes): by the definition, over all sets of columns that are seen."""
    names = list(row.columns)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", fewpass.ColumnWarning)
        value = {
            seen: model.predict_proba(row[list(seen)] if seen else [{}])[0]
            for n in range(len(names) + 1)
            for seen in itertools.combinations(names, n)
        }
    found = np.zeros((len(names), 2))
    for i, name in enumerate(names):
        for seen in value:
            if name not in seen:
                more = tuple(other for other in names if other in (*seen, name))
                weight = math.factorial(len(seen)) * math.factorial(len(names) - len(seen) - 1)
                found[i] += weight / math.factorial(len(names)) * (value[more] - value[seen])
    return found, value[()]


@pytest.fixture(scope="module")
def shap():
    """The library; its own kernels are not compiled, which would take half of the time."""
    was, numba.config.DISABLE_JIT = numba.config.DISABLE_JIT, True
    try:
        import shap
    finally:
        numba.config.DISABLE_JIT = was
    return shap


def test_shap_finds_the_values_of_the_definition(shap, model, frame):
    """In whatever order the columns stand; a column that the model has left out tells nothing."""
    rows = frame.drop(columns="income").head(8)
    names: dict[str, object] = {"model": model, "frame": rows[rows.columns[::-1]]}
    (block,) = [text for text in re.findall(r"^```text\n(.*?)^```", PAGE.read_text(), re.S | re.M) if "shap" in text]
    exec(block, names)
    explanation = names["explanation"]
    assert explanation.feature_names == list(rows)
    for i in range(len(rows)):
        values, base = shapley(model, rows.iloc[i : i + 1])
        assert np.allclose(explanation.values[i], values, atol=1e-12)
        assert np.allclose(explanation.base_values[i], base, atol=1e-12)
    assert explanation[..., 1].values.shape == (8, len(rows.columns))


def test_arrays_records_and_frames_without_a_column(shap, frame):
    numbers = frame[["age", "code"]].to_numpy()
    of_array = fewpass.NB().fit(numbers, frame["income"].to_numpy())
    expected = fewpass.shap.explainer(of_array, algorithm="exact")(numbers[:3])
    assert expected.values.shape == (3, 2, 2) and np.abs(expected.values).max() > 0.01
    by_name = fewpass.shap.explainer(fewpass.NB().fit(frame[["age", "code", "income"]], "income"), algorithm="exact")
    assert np.array_equal(by_name(frame[["code", "age"]].head(3).to_dict("records")).values, expected.values)
    with pytest.raises(fewpass.LearnerError, match="None of the model's columns"):
        by_name(frame[["code"]].head(3))
    by_name = fewpass.shap.explainer(fewpass.NB().fit(frame.drop(columns="code"), "income"), algorithm="exact")
    with pytest.warns(fewpass.ColumnWarning, match="lacks columns of the model: 'age'"):
        without = by_name(frame[["where"]].head(3)).values
    assert np.abs(without[:, 0]).max() < 1e-12 < np.abs(without[:, 1]).max()


def test_what_has_no_classes_is_refused(shap, frame):
    with pytest.raises(fewpass.LearnerError, match="list is not an estimator of fewpass"):
        fewpass.shap.explainer([])
    with pytest.raises(fewpass.LearnerError, match="class"):
        fewpass.shap.explainer(fewpass.SumProductNetwork().fit(frame))
