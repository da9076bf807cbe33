"""Losses against their definitions, row by row."""

from math import log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.errors import EmptyData
from learners.evaluation.metrics import class_prior_baseline_losses, evaluate, reliability_diagram_points


@st.composite
def predictions(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, n_classes = draw(st.sampled_from([1, 2, 30, 200])), draw(st.integers(1, 5))
    scores = rng.gamma(draw(st.sampled_from([0.1, 1.0, 10.0])), size=(n, n_classes)) + 1e-300
    return scores / scores.sum(axis=1, keepdims=True), rng.integers(0, n_classes, n)


@given(predictions())
def test_equal_their_definitions(drawn):
    p, y = drawn
    n = len(y)
    found = evaluate(p, y)
    assert found.zero_one_loss == pytest.approx(
        sum(max(range(len(row)), key=row.__getitem__) != k for row, k in zip(p.tolist(), y, strict=True)) / n
    )
    assert found.rmse == pytest.approx(sqrt(sum((1 - row[k]) ** 2 for row, k in zip(p, y, strict=True)) / n))
    assert found.log_loss == pytest.approx(-sum(log(max(row[k], 1e-15)) for row, k in zip(p, y, strict=True)) / n)
    brier = sum(sum((q - (j == k)) ** 2 for j, q in enumerate(row)) for row, k in zip(p, y, strict=True)) / n
    assert found.brier == pytest.approx(brier)
    error = 0.0
    for b in range(15):
        inside = [
            (max(row), row.argmax() == k) for row, k in zip(p, y, strict=True) if min(int(max(row) * 15), 14) == b
        ]
        if inside:
            confidence, right = np.mean([c for c, _ in inside]), np.mean([r for _, r in inside])
            error += len(inside) / n * abs(confidence - right)
    assert found.ece == pytest.approx(error, abs=1e-12)


def test_perfect_worst_tied_and_no_predictions():
    p = np.array([[1.0, 0.0], [0.0, 1.0]])
    right, wrong = evaluate(p, [0, 1]), evaluate(p, [1, 0])
    assert (right.zero_one_loss, right.rmse, right.log_loss, right.brier, right.ece) == (0, 0, 0, 0, 0)
    assert (wrong.zero_one_loss, wrong.rmse, wrong.brier, wrong.ece) == (1, 1, 2, 1)
    assert wrong.log_loss == pytest.approx(-log(1e-15))
    # Of a tie the first class is predicted.
    assert (evaluate([[0.5, 0.5]], [0]).zero_one_loss, evaluate([[0.5, 0.5]], [1]).zero_one_loss) == (0, 1)
    with pytest.raises(EmptyData, match="no rows to measure"):
        evaluate(np.empty((0, 2)), [])
    with pytest.raises(EmptyData, match="no rows to measure the model on"):
        class_prior_baseline_losses([], 2)


def test_calibrated_predictions_lie_on_the_diagonal():
    """Of 200,000 rows with P = p the share of right answers is p within four standard deviations."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.5, 1, 200_000)
    y = (rng.random(200_000) > p).astype(int)
    points = reliability_diagram_points(np.maximum(p, 1 - p), (p < 0.5) == y)
    assert sum(n for _, _, n in points) == 200_000
    for confidence, share, n in points:
        assert abs(confidence - share) < 4 * sqrt(0.25 / n)
    assert evaluate(np.column_stack([p, 1 - p]), y).ece < 0.01


@given(st.lists(st.integers(0, 3), min_size=1, max_size=60), st.integers(3, 5))
def test_class_shares_lose_what_each_row_loses_by_the_others(labels, n_classes):
    """Row by row: the shares among the other rows and one more row of each class; equal ones where those lose less.

    Of a class that nobody knows they have no share.
    """
    known = [label for label in labels if label < n_classes]
    n_unknown = len(labels) - len(known)
    of_true = [known.count(label) / (len(known) - 1 + n_classes) for label in known]
    losses = class_prior_baseline_losses(labels, n_classes)
    log_loss, of_unknown = -sum(map(log, of_true)), -n_unknown * log(1e-15)
    square = sum((1 - p) ** 2 for p in of_true)
    equal = len(known) * log(n_classes), len(known) * (1 - 1 / n_classes) ** 2
    assert losses["log_loss"] == pytest.approx((min(log_loss, equal[0]) + of_unknown) / len(labels))
    assert losses["rmse"] == pytest.approx(sqrt((min(square, equal[1]) + n_unknown) / len(labels)))
    shares = [
        [(known.count(c) + (c != label)) / (len(known) - 1 + n_classes) for c in range(n_classes)] for label in known
    ]
    brier = sum(sum(p * p for p in own) - 2 * own[label] + 1 for own, label in zip(shares, known, strict=True))
    whole = sum(((known.count(c) + 1) / (len(known) + n_classes)) ** 2 for c in range(n_classes)) + 1
    uniform = len(known) * (1 - 1 / n_classes) + n_unknown * (1 + 1 / n_classes)
    assert losses["brier"] == pytest.approx(min(brier + n_unknown * whole, uniform) / len(labels))
    most = max(map(known.count, known), default=0)
    assert losses["zero_one_loss"] == pytest.approx(1 - most / len(labels))
    of_model = evaluate(np.tile(1 / n_classes, (1, n_classes)), [n_classes])
    assert class_prior_baseline_losses([n_classes], n_classes)["log_loss"] == pytest.approx(of_model.log_loss)
