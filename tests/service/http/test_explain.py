"""Explanations: they add up, and say what the model says, over REST, on the command line and in Python."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import learners
from learners import Source, drive
from learners.registry import recipes
from service.http.api.scoring.predict import ARROW
from tests.service.conftest import weather
from tests.support.cli import fewpass
from tests.support.http import RECORD, problem, stream_of

PATH = "/v1/models/weather/explain"


def trained(learner, **parameters):
    return drive(recipes.learner(learner, parameters, "class"), Source.of_table(weather(800, 5)))


@pytest.mark.parametrize(
    ("learner", "parameters"),
    [
        ("nb", {"m": 1.0}),
        ("tan", {"m": 1.0}),
        ("kdb", {"k": 2, "m": 1.0}),
        ("kdb", {"k": 2, "estimator": "hdp-map"}),
        ("skdb", {"k": 2, "m": 1.0}),
        ("xgboost", {"rounds": 10}),
    ],
)
def test_contributions_and_prior_add_up_to_the_log_odds(learner, parameters):
    model = trained(learner, **parameters)
    table = weather(200, 6).append_column("rain", pa.array([1.0] * 200))
    table = pa.concat_tables([table, table.set_column(0, "outlook", pa.array(["hail"] * 200))])
    chunk = learners.encode(table, model.schema)
    found = learners.explain(model, chunk)
    rows = np.arange(400)
    with_names = found.probabilities[rows, found.predicted], found.probabilities[rows, found.against]
    np.testing.assert_allclose(found.log_odds, np.log(with_names[0]) - np.log(with_names[1]), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found.log_odds, found.prior + found.contributions.sum(axis=1))
    assert (found.predicted != found.against).all() and (found.log_odds >= -1e-6).all()
    assert found.contributions.shape == (400, 3)


def test_a_contribution_is_the_attribute_s_factor_in_the_naive_bayes_formula():
    table = weather(800, 5)
    model = trained("nb", m=0.0)
    found = learners.explain(model, learners.encode(table, model.schema))
    windy, play = np.array(table["windy"]), np.array(table["class"]) == "yes"
    share = {(w, p): np.mean(windy[play == p] == w) for w in (True, False) for p in (True, False)}
    codes = {name: code for code, name in enumerate(model.schema.class_values())}
    whole = [row for row in range(50) if None not in table.slice(row, 1).to_pylist()[0].values()]
    assert len(whole) > 20
    for row in whole:
        predicted = found.predicted[row] == codes["yes"]
        expected = np.log(share[windy[row], predicted] / share[windy[row], not predicted])
        assert found.contributions[row, 2] == pytest.approx(expected, abs=1e-6)


def test_an_absent_attribute_contributes_nothing_and_many_classes_are_told_against_the_second():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 5, 2000)
    noise = rng.integers(0, 5, (3, 2000))
    table = pa.table({f"x{i}": (label + (row < 2) * row) % 5 for i, row in enumerate(noise)} | {"class": label})
    model = drive(recipes.learner("kdb", {"k": 1, "m": 1.0}, "class"), Source.of_table(table))
    chunk = learners.encode(table.drop_columns(["x1"]), model.schema)
    found = learners.explain(model, chunk)
    assert (found.contributions[:, 1] == 0).all()
    ranked = np.sort(model.predict_proba(chunk), axis=1)
    np.testing.assert_allclose(found.log_odds, np.log(ranked[:, -1] / ranked[:, -2]), rtol=1e-6, atol=1e-6)


def test_explanations_over_rest(site):
    answer = site.client.post(PATH, json={"records": [RECORD, {}]}).json()
    assert answer["predictions"][0] == "yes"
    known, unknown = answer["explanations"]
    assert (known["prediction"], known["against"]) == ("yes", "no")
    assert known["log_odds"] == pytest.approx(known["prior"] + sum(known["contributions"].values()), rel=1e-12)
    no, yes = answer["probabilities"][0]
    assert known["log_odds"] == pytest.approx(np.log(yes / no), rel=1e-6)
    assert known["contributions"]["outlook"] > 0  # sunny speaks for yes
    assert set(unknown["contributions"].values()) == {0} and unknown["log_odds"] == unknown["prior"]
    table = site.table.slice(0, 5)
    from_arrow = site.client.post(PATH, content=stream_of(table), headers={"content-type": ARROW}).json()
    from_columns = site.client.post(PATH, json={"columns": table.drop_columns(["class"]).to_pydict()}).json()
    assert from_arrow == from_columns
    many = {"columns": {"windy": [True] * 1_001}}
    assert problem(site.client.post(PATH, json=many), 413)["max_rows"] == 1_000
    problem(site.client.post(PATH, json={"records": [{"outlok": "rain"}]}), 422)
    problem(site.client.post("/v1/models/nothing/explain", json={"records": [{}]}), 404)
    problem(site.client.post(PATH, content=b"a,b", headers={"content-type": "text/csv"}), 415)
    problem(site.client.get(PATH), 405)


def test_explanations_on_the_command_line(site, tmp_path):
    out = tmp_path / "scored.parquet"
    fewpass("predict", "weather", site.test, "--out", out, "--explain", workspace=site.workspace)
    scored = pq.read_table(out).to_pylist()
    assert len(scored) == 500
    for row in scored[:20]:
        contributions = [value for name, value in row.items() if name.startswith("contribution_")]
        assert row["log_odds"] == pytest.approx(row["prior"] + sum(contributions)) and len(contributions) == 3
        assert row["against"] == {"yes": "no", "no": "yes"}[row["prediction"]]
