"""Means, wins and losses, sign tests, ratios, and the files they go to."""

import csv
import json
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from typer.testing import CliRunner

from learners.errors import EmptyData, InvalidParameter
from learners.evaluation.comparison import SCORES, compare, learning_curves, sign_test
from learners.evaluation.report import draw_scatter, write_report
from learners.evaluation.trial import Outcome
from service.cli import app

# rmse of learners a, b, c on four data sets: two trials of a differ by 0.02, the others not at all.
RMSE = {"w": (0.1, 0.2, 0.3), "x": (0.2, 0.2, 0.1), "y": (0.3, 0.30001, 0.2), "z": (0.4, 0.8, 0.0)}


def outcome(data, learner, fold, rmse, **more):
    scores = dict.fromkeys(SCORES, rmse)
    measured = {"n_train": 5, "n_test": 5, "scores": scores} | more
    return Outcome(data, "0", "class", learner, "0", 0, fold, 2, **measured)


@pytest.fixture
def outcomes():
    return [
        outcome(data, learner, fold, value + (0.02 * fold - 0.01 if learner == "a" else 0))
        for data, values in RMSE.items()
        for fold in (0, 1)
        for learner, value in zip("abc", values, strict=True)
    ]


@given(st.integers(0, 80), st.integers(0, 80))
def test_the_sign_test_is_scipys_binomial_test(wins, losses):
    expected = binomtest(wins, wins + losses).pvalue if wins + losses else 1.0
    assert sign_test(wins, losses) == pytest.approx(expected, rel=1e-9)


def test_wins_draws_losses_and_ratio(outcomes):
    versus = compare(outcomes).versus("rmse", "a", "b")
    assert (versus.wins, versus.draws, versus.losses, versus.record) == (2, 2, 0, "2–2–0")
    assert versus.p_value == 0.5
    assert versus.median_ratio == pytest.approx((0.5 + 0.3 / 0.30001) / 2)
    back = compare(outcomes).versus("rmse", "b", "a")
    assert (back.wins, back.draws, back.losses) == (0, 2, 2)


def test_a_ratio_to_zero_is_infinite_and_of_equals_one(outcomes):
    compared = compare(outcomes)
    assert compared.versus("rmse", "c", "c").median_ratio == 1.0
    only = compare([outcome("w", "a", 0, 0.5), outcome("w", "b", 0, 0.0)])
    assert only.versus("rmse", "a", "b").median_ratio == math.inf


def test_means_deviations_and_ranks(outcomes):
    compared = compare(outcomes)
    np.testing.assert_allclose(compared.column("rmse", "a"), [0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(compared.deviations["rmse"][:, 0], 0.02 / math.sqrt(2))
    np.testing.assert_allclose(compared.mean_ranks("rmse"), [(1 + 2.5 + 2.5 + 2) / 4, (2 + 2.5 + 2.5 + 3) / 4, 1.5])
    with pytest.raises(InvalidParameter, match="must be one of a, b, c"):
        compared.column("rmse", "d")
    with pytest.raises(EmptyData, match="no outcomes"):
        compare([])


def test_failed_trials_are_named_and_not_counted(outcomes):
    failed = outcome("w", "d", 0, 0.0, scores={}, error="SchemaError: no")
    compared = compare([*outcomes, failed])
    assert compared.failures == (failed,)
    assert np.isnan(compared.column("rmse", "d")).all()
    versus = compared.versus("rmse", "a", "d")
    assert (versus.wins, versus.draws, versus.losses) == (0, 0, 0)
    assert math.isnan(versus.median_ratio)


def test_learning_curves_ascend_in_rows():
    limited = [outcome("w", "a", fold, 1 / n, n_train=n, limit=n) for n in (40, 10) for fold in (0, 1)]
    (curve,) = learning_curves([*limited, outcome("w", "a", 0, 0.001, n_train=500)])
    assert curve.n_train.tolist() == [10, 40, 500]
    np.testing.assert_allclose(curve.means, [0.1, 0.025, 0.001])


def test_the_report_says_the_same_in_every_format(outcomes, tmp_path):
    compared = compare([*outcomes, outcome("w", "a", 0, 0.5, limit=3)])
    curves = learning_curves([outcome("w", "a", 0, 0.5, n_train=3, limit=3), outcome("w", "a", 0, 0.4)])
    words = {"title": "Title", "command": "fewpass compare", "protocol": "How."}
    files = write_report(tmp_path, compared, **words, pictures=[("a", "b")], curves=curves)
    assert all(file.stat().st_size for file in files)
    names = {file.name for file in files}
    assert {"rmse-a-against-b.svg", "zero-one-loss-a-against-b.svg", "learning-curve-w.svg"} < names
    page = (tmp_path / "README.md").read_text()
    assert "```sh\nfewpass compare\n```" in page
    assert "| a |  | 2–2–0, p 0.5, ratio 0.750 | 1–0–3, p 0.62, ratio 1.750 |" in page
    assert "| w | 10 | **0.1000 ± 0.0141** | 0.2000 ± 0.0000 | 0.3000 ± 0.0000 |" in page
    with (tmp_path / "pairs.csv").open() as file:
        row = next(row for row in csv.DictReader(file) if row["score"] == "rmse")
    assert (row["a"], row["b"], row["wins"], row["losses"], row["p_value"]) == ("a", "b", "2", "0", "0.5")
    found = json.loads((tmp_path / "summary.json").read_text())
    assert found["data_sets"][0]["scores"]["a"]["rmse"] == [0.1, 0.0141421]


def test_pictures_repeat_themselves_byte_for_byte(outcomes, tmp_path):
    compared = compare(outcomes)
    for name in ("one.svg", "two.svg", "log.png"):
        draw_scatter(compared, "rmse", "a", "c", tmp_path / name, scale="log" if "log" in name else "linear")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()
    assert (tmp_path / "log.png").read_bytes().startswith(b"\x89PNG")


def test_compare_prints_and_writes(folder, tmp_path, monkeypatch):
    arguments = ["compare", str(folder), "-l", "nb:m=1", "-l", "kdb:k=1,m=1", "-r", "1", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["fewpass", *arguments])
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["learners"] == ["nb:m=1", "kdb:k=1,m=1"]
    assert [entry["name"] for entry in found["data_sets"]] == ["rare", "two"]
    assert len((tmp_path / "out/outcomes.jsonl").read_text().splitlines()) == 8
    assert "fewpass compare" in (tmp_path / "out/README.md").read_text()
    result = CliRunner().invoke(app, [*arguments, "--picture", "nb:m=1 against kdb:m=1,k=1"])
    assert result.exit_code == 0, result.output
    assert "means over 2 data sets" in result.stdout
    assert (tmp_path / "out/rmse-nb-m-1-against-kdb-k-1-m-1.svg").exists()


def test_a_picture_needs_two_learners(folder):
    for picture, message in (("nb", "is not 'A against B'"), ("nb against tan", "tan is not compared")):
        result = CliRunner().invoke(app, ["compare", str(folder), "-l", "nb", "--picture", picture])
        assert result.exit_code == 2 and message in result.output
