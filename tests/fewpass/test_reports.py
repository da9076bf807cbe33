"""The report of a model: its numbers against the definitions, and a page that needs nothing but itself."""

import json
import re

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fewpass
from learners.errors import InvalidParameter, NoClass
from learners.evaluation.metrics import evaluate, score_probability_rows
from learners.evaluation.model_report import ModelReport, model_report_from_scores
from service.requests.problems import InvalidRequest
from tests.support import cli


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 600)
    told = np.where(rng.random(600) < 0.8, y, 1 - y)
    columns = {"told <b>": np.array(["l", "m"])[told], "same": ["s"] * 600, "class": np.array(["no", "<i>yes"])[y]}
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def model(frame):
    return fewpass.NB().fit(frame.head(300), "class")


def test_the_numbers_are_those_of_their_definitions(frame, model):
    rows = frame.tail(300)
    page = model.report(rows)
    probabilities, y = model.predict_proba(rows), (rows["class"] == model.classes_[1]).to_numpy().astype(int)
    numbers = page.numbers
    assert numbers.metrics == evaluate(probabilities, y) and numbers.n_rows == 300
    predicted = probabilities.argmax(axis=1)
    for i in (0, 1):
        for j in (0, 1):
            assert numbers.confusion[i, j] == np.sum((y == i) & (predicted == j))
    assert sum(point.n_rows for point in numbers.calibration) == 300
    assert [share.column for share in numbers.shares] == ["told <b>"] and numbers.shares[0].share == 1
    assert numbers.left_out[0][0] == "same"
    assert sum(mistake.n_rows for mistake in numbers.mistakes) == np.sum(y != predicted)
    right = np.mean(y == predicted)
    points = int(numbers.verdict.partition("calibrated within ")[2].split()[0])
    assert numbers.verdict.startswith(f"Right {100 * right:.0f} of 100; calibrated within ")
    assert points - 1 < 100 * numbers.metrics.ece <= points
    assert f"{numbers.gain:.0%} better than the class shares." in numbers.verdict and repr(page) == numbers.verdict


@pytest.fixture(scope="module")
def sizes():
    rng = np.random.default_rng(0)
    big = rng.random(900) < 0.5
    size = rng.normal(np.where(big, 5.0, 3.0), 1.0)
    return pd.DataFrame({"size": size, "where": rng.choice(list("abcdefghijklmn"), 900), "big": big.astype(str)})


@pytest.mark.parametrize("make", [fewpass.NB, fewpass.ESKDB, fewpass.XGBoost])
def test_columns_are_told_by_class_and_beside_training(make, sizes):
    model = make().fit(sizes, "big")
    rows = sizes.assign(size=sizes["size"] + 2, where=["z"] * 20 + sizes["where"].tolist()[20:])
    numbers = model.report(rows).numbers
    told = {column.column: column for column in numbers.columns}
    assert told.keys() >= {"size"} and all(len(column.values) <= 12 for column in numbers.columns)
    by_class = rows.groupby("big").size().tolist()
    assert all([sum(own) for own in column.rows] == by_class for column in numbers.columns)
    if make is fewpass.XGBoost:  # which keeps no counts of its training
        assert told["size"].change is None and "Since training" not in model.report(rows).html
    else:
        assert told["size"].is_changed and told["size"].change > 0.1
        assert not any(column.is_changed for column in model.report(sizes).numbers.columns)
    if "where" in told:
        names = told["where"].values
        counts = dict(zip(names, map(sum, zip(*told["where"].rows, strict=True)), strict=True))
        assert counts["(not seen in training)"] == 20 and len(names) == 11 and "(others)" in names
    assert ModelReport.from_dict(json.loads(json.dumps(numbers.to_dict()))).columns == numbers.columns


def test_a_model_worse_than_the_class_shares_is_told(frame, model):
    y = np.array([0, 1] * 50)
    numbers = model_report_from_scores(model.model_, [score_probability_rows(np.tile([0.99, 0.01], (100, 1)), y)], y)
    assert numbers.gain < 0 and "worse than the class shares" in numbers.verdict


def test_the_page_needs_nothing_but_itself(frame, model, tmp_path):
    page = model.report(frame)
    page.save(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    assert text == page.html == page._repr_html_() and page.numbers.verdict in text
    assert "told &lt;b&gt;" in text and "&lt;i&gt;yes" in text and "<b>" not in text and "<i>" not in text
    assert not re.search(r"https?:|src=|<script|<link|url\(|@import", text)
    with pytest.raises(InvalidRequest, match="already exists"):
        page.save(tmp_path / "report.html")


@pytest.mark.parametrize("make", [fewpass.NB, lambda: fewpass.SumProductNetwork(structure="chow-liu")])
def test_every_form_of_rows_gives_the_same_page(make, frame, tmp_path):
    model = make().fit(frame, "class")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    model.save(tmp_path / "model.fewpass")
    whole = model.report(frame).numbers
    given = (
        model.report(frame.drop(columns="class"), frame["class"]),
        model.report(tmp_path / "rows.parquet"),
        fewpass.load(tmp_path / "model.fewpass").report(frame, "class"),
    )
    assert all(page.numbers.metrics == whole.metrics for page in given)
    x, y = np.random.default_rng(0).normal(size=(200, 2)), np.arange(200) % 2
    assert make().fit(x, y).report(x, y).numbers.n_rows == 200


def test_many_classes_show_the_most_frequent_mistakes():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 30, 900)
    x = (y + (rng.random(900) < 0.3)) % 30
    model = fewpass.NB().fit(pa.table({"x": [f"v{i}" for i in x], "class": y}), "class")
    page = model.report(pa.table({"x": [f"v{i}" for i in x], "class": y}))
    assert "taken for" in page.html and 0 < len(page.numbers.mistakes) <= 20


def test_without_classes_there_is_no_report(frame, model):
    with pytest.raises(NoClass, match="learned without a target"):
        fewpass.SumProductNetwork(structure="chow-liu").fit(frame).report(frame)
    with pytest.raises(InvalidParameter, match="the model was fitted with the class column 'class'"):
        model.report(frame.drop(columns="class"), frame["class"].rename("klass"))


def test_the_command_writes_the_page(frame, model, tmp_path):
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "rows.parquet")
    here = {"workspace": tmp_path / "workspace"}
    fewpass.publish(model, "income@champion", workspace=here["workspace"])
    page = tmp_path / "report.html"
    asked = ["report", "income@champion", tmp_path / "rows.parquet", "--html", page]
    assert model.report(frame).numbers.verdict in cli.fewpass(*asked, **here).stdout.replace("\n", " ")
    text = page.read_text()
    assert model.report(frame).numbers.verdict in text and "fewpass report income@1" in text
    assert "--force" in cli.fewpass(*asked, code=1, **here).stderr
    cli.fewpass(*asked, "--force", **here)
