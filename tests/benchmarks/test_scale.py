"""The tables of the learning curves, and their page."""

import numpy as np
import pytest

from benchmarks import scale

# Hands of 2,598,960, by the rules.
WORTH = {"h1": 1_098_240, "h2": 123_552, "h3": 54_912, "h4": 10_200, "h5": 5_108, "h6": 3_744, "h7": 624}


def test_poker_hands_are_worth_what_the_rules_say():
    hands = scale.poker(60_000, np.random.default_rng(1))
    found = dict(zip(*np.unique(np.array(hands["hand"].to_pylist()), return_counts=True), strict=True))
    for name, n in WORTH.items():
        expected = 60_000 * n / 2_598_960
        assert found.get(name, 0) == pytest.approx(expected, abs=5 * np.sqrt(expected))
    assert hands.num_columns == 11


def test_nothing_beats_the_teacher():
    assert 0.1 < scale.teacher_bayes_loss() < 0.3
    labels = scale.teacher(20_000, np.random.default_rng(2))["class"].to_pylist()
    assert np.mean(np.array(labels) == "yes") == pytest.approx(0.5, abs=0.05)


def test_the_page_has_a_row_for_each_size_and_marks_the_least_loss():
    cells = [
        scale.Cell("poker", rows, name, loss, 0.1, None, 3.0, 1000.0, 300.0, None)
        for rows in (10_000, 50_000)
        for name, loss in (("auto", 0.2), ("xgboost", 0.3))
    ]
    page = scale.page(cells, {"machine": "2 cores", "note": ""})
    assert "| 10,000 | **0.2000** (3 s) | 0.3000 (3 s) |" in page
    assert "| 50,000 | **0.2000** (3 s) | 0.3000 (3 s) |" in page


def test_the_picture_has_a_curve_for_each_learner_of_a_table_with_several_sizes(tmp_path):
    cells = [
        scale.Cell(table, rows, name, loss, 0.1, None, 3.0, 1000.0, 300.0, None)
        for table, sizes in (("poker", (10_000, 50_000)), ("teacher", (10_000,)))
        for rows in sizes
        for name, loss in (("auto", 0.2 - rows / 1e6), ("xgboost", 0.3))
    ]
    pictures = []
    for name in ("first.svg", "second.svg"):
        scale.picture(cells, tmp_path / name)
        pictures.append((tmp_path / name).read_text())
    assert pictures[0] == pictures[1], "the same cells give the same file"
    assert all(f">{word}</text>" in pictures[0] for word in ("poker", "auto", "xgboost", "log loss", "rows"))
    assert ">teacher</text>" not in pictures[0], "one size is no curve"
