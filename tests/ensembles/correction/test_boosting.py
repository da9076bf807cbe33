"""When a correction stops, and that threads change nothing."""

import numpy as np
import pytest

from learners.ensembles.correction.boosting import (
    MOST_ROUNDS,
    PATIENCE,
    bins_of_column,
    boost_ensemble_correction,
    boosting_pool_weights,
    has_boosting_converged,
    n_race_folds,
)
from learners.ensembles.weights import Rows, fit_term_weights
from learners.passes.engine import ignore_progress
from learners.schema import Chunk
from tests.support.ensembles import trained

ROUNDS = np.arange(4 * PATIENCE + 1)
TO_HALF = 0.5 + 1.0 / (1.0 + ROUNDS)  # .512 so far


@pytest.mark.parametrize(
    ("losses", "least", "is_over"),
    [
        # Rounds without gain.
        ([1.0, 0.9, *[0.95] * PATIENCE], 2.0, True),
        ([1.0, 0.9, *[0.95] * (PATIENCE - 1)], 2.0, False),
        # Gains that no longer pay, and such that do.
        (1.0 - 1e-5 * ROUNDS[: 2 * PATIENCE + 1], 2.0, True),
        (1.0 - 1e-2 * ROUNDS[: 2 * PATIENCE + 1], 0.7, False),
        # It heads for more than is had.
        (TO_HALF, 0.47, True),
        (TO_HALF, 0.49, False),
        (TO_HALF[:-1], 0.47, False),
        # Seven classes of covtype: boosting from nothing was at .52 after 40 rounds and at .39 after 240, beside .34.
        (0.33 + 2.0 / (5.0 + ROUNDS) ** 0.6, 0.34, False),
        # Sixteen classes of flights_nyc13: after 40 rounds ten times what is had, and falling more slowly each time they double.
        (7.2 / (4.0 + ROUNDS[: 2 * PATIENCE + 1]) ** 0.7, 0.031, True),
        (7.2 / (4.0 + ROUNDS[: 2 * PATIENCE]) ** 0.7, 0.031, False),
        # As much, but falling fast enough.
        (7.2 / (4.0 + ROUNDS[: 2 * PATIENCE + 1]) ** 0.7 * np.exp(-ROUNDS[: 2 * PATIENCE + 1] / 15), 0.003, False),
        # The last round.
        (1.0 / (1.0 + np.arange(MOST_ROUNDS + 1)), 0.0, True),
    ],
)
def test_a_way_ends_where_more_rounds_bring_nothing(losses, least, is_over):
    assert has_boosting_converged(list(losses), least=least) == is_over


@pytest.mark.parametrize("threads", [1, 3])
def test_the_correction_of_an_interaction_does_not_depend_on_threads(threads):
    model, x, y = trained("eskdb", 2)
    rows = Chunk(x, y.astype(x.dtype))
    flat = np.full((rows.n_rows, 2), -np.log(2.0))
    found = boost_ensemble_correction(model.schema, rows, flat, 0, threads, ignore_progress)
    again = boost_ensemble_correction(model.schema, rows, flat, 0, 2, ignore_progress)
    assert found is not None and again is not None
    assert found.weights == again.weights
    assert [one.save_raw("ubj") for one in found.boosters] == [one.save_raw("ubj") for one in again.boosters]
    assert found.facts["rounds"]["alone"] <= found.facts["tried"]["alone"] <= MOST_ROUNDS


def test_deep_trees_are_tried_where_a_rule_has_many_conditions():
    """A parity of six columns is found by no tree of six levels that starts with others, and noise asks for no more levels."""
    model, x, _ = trained("eskdb", 2)
    rng = np.random.default_rng(0)
    values = np.stack([1 + rng.integers(0, 2, 3000) for _ in range(x.shape[0])]).astype(x.dtype)
    flat = np.full((3000, 2), -np.log(2.0))
    parity = (values[:4].sum(axis=0) % 2).astype(x.dtype)
    noise = rng.integers(0, 2, 3000).astype(x.dtype)
    of_rule, of_noise = (
        boost_ensemble_correction(model.schema, Chunk(values, y), flat, 0, 1, ignore_progress) for y in (parity, noise)
    )
    assert of_rule is not None and of_rule.facts["deep"] and of_rule.facts["left_out_losses"]["alone"] < 0.05
    assert of_noise is None or not of_noise.facts["deep"]


@pytest.mark.parametrize(
    ("n_rows", "n_columns", "bins"),
    [
        (100, 300, 256),
        (1_200, 40, 256),
        (5_000, 39, 256),
        (2_000, 40, 38),
        (2_000, 300, 32),
        (5_000, 300, 78),
        (5_001, 300, 256),
    ],
)
def test_few_rows_of_many_columns_get_fewer_bins(n_rows, n_columns, bins):
    assert bins_of_column(n_rows, n_columns) == bins


@pytest.mark.parametrize(
    ("n_rows", "n_classes", "n_columns", "n_folds"),
    [
        (2_000, 4, 40, 5),
        (2_000, 4, 80, 3),
        (1_000, 2, 300, 5),
        (2_000, 2, 300, 3),
        (6_000, 3, 10, 3),
        (20_000, 3, 5, 1),
    ],
)
def test_much_work_is_left_to_fewer_folds(n_rows, n_classes, n_columns, n_folds):
    assert n_race_folds(n_rows, n_classes, n_columns) == n_folds


def test_trees_from_nothing_stay_only_where_they_pay():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000).astype(np.uint8)
    rows = Rows(y, np.zeros((y.size, 2)))
    scores, noise, other = (np.stack([np.zeros(y.size), z], axis=1) for z in rng.normal(0, 1, (3, y.size)))
    scores[:, 1] += 2.0 * y - 1.0
    other[:, 1] += 2.0 * y - 1.0
    useless, useful = (np.stack([scores, two], axis=1).astype(np.float32) for two in (noise, other))
    assert boosting_pool_weights(useless, rows, 1)[1] == 0.0 and boosting_pool_weights(useful, rows, 1)[1] > 0.1


def test_without_trees_of_negative_weight_the_ensemble_has_the_share_that_it_has_alone():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000).astype(np.uint8)
    rows = Rows(y, np.zeros((y.size, 2)))
    scores, wrong = np.zeros((2, y.size, 2))
    scores[:, 1] = 2.0 * y - 1.0 + rng.normal(0, 1, y.size)
    wrong[:, 1] = scores[:, 1] + rng.normal(0, 0.5, y.size) - (2.0 * y - 1.0)
    terms = np.stack([scores, wrong], axis=1).astype(np.float32)
    alone = fit_term_weights(terms[:, :1], rows, np.array([1.0]), 1)
    weights = boosting_pool_weights(terms, rows, 1)
    assert alone[0] > 1.0 and weights == pytest.approx([alone[0], 0.0], rel=0.02), "a clear gain is kept"


def test_few_rows_make_the_ensemble_hardly_surer_than_its_temperature():
    """Its weight beside the trees may be above one, if the gain of the left-out rows is more than their error."""
    rng, kept = np.random.default_rng(0), []
    for n in (40, 40, 40, 40_000):
        y = rng.integers(0, 2, n).astype(np.uint8)
        scores = np.stack([np.zeros(n), (2.0 * y - 1.0) + rng.normal(0, 1.25, n)], axis=1)
        terms = np.stack([scores, np.zeros_like(scores)], axis=1).astype(np.float32)
        rows = Rows(y, np.zeros((n, 2)))
        fitted = fit_term_weights(terms[:, :1], rows, np.array([1.0]), 1)[0]
        if fitted > 1.0:
            kept.append((boosting_pool_weights(terms, rows, 1)[0] - 1.0) / (fitted - 1.0))
    assert len(kept) >= 3 and np.mean(kept[:-1]) < 0.7 and kept[-1] > 0.99
