"""Selection, weights and temperature."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.optimize import approx_fprime

from learners import Source, drive, encode, learner
from learners.ensembles.weight_kernels import add_term_weight_gradient
from learners.ensembles.weights import (
    LEAST_OF_CLASS,
    Rows,
    attribute_prefix_losses,
    class_offsets,
    fit_pool_temperature,
    fit_term_weights,
    leave_one_out_log_prior,
    mean_log_loss,
    representative_rows,
)
from tests.naive import ensembles as naive


def problem(n=700, f=4, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, n_classes, n).astype(np.uint8)
    terms = rng.normal(size=(n, f, n_classes)).astype(np.float32)
    terms[np.arange(n), 0, y] += 1.0
    return terms, Rows(y, leave_one_out_log_prior(np.bincount(y, minlength=n_classes), y))


def test_the_gradient_is_that_of_the_log_loss():
    terms, rows = problem(40)
    weights = np.array([0.3, -0.2, 1.0, 0.0])
    gradient = np.zeros(4)
    loss = add_term_weight_gradient(terms, rows.log_prior, rows.y, rows.weight_array(), weights, 0, 40, gradient)
    expected = lambda w: 40 * naive.mean_log_loss(terms, rows.log_prior, rows.y, w)  # noqa: E731
    assert loss == pytest.approx(expected(weights))
    assert gradient == pytest.approx(approx_fprime(weights, expected, 1e-6), abs=1e-3)


def test_weights_find_what_tells_and_do_not_depend_on_threads():
    terms, rows = problem()
    start = np.array([0.0, 1.0, 1.0, 0.0])
    weights = fit_term_weights(terms, rows, start, 1)
    assert weights[0] == pytest.approx(1.0, abs=0.2) and np.abs(weights[1:]).max() < 0.2
    assert np.array_equal(weights, fit_term_weights(terms, rows, start, 3)), "bit for bit"


def test_few_rows_leave_the_weights_where_they_were():
    terms, rows = problem(4)
    assert fit_term_weights(terms, rows, np.ones(4), 1) == pytest.approx(np.ones(4), abs=0.4)


def test_no_weight_turns_around_what_a_term_says():
    terms, rows = problem()
    against = np.arange(rows.y.size), 3, rows.y
    terms[against] -= 1.0
    weights = fit_term_weights(terms, rows, np.array([0.0, 0.0, 0.0, 1.0]), 1)
    assert weights[3] == 0.0 and weights[0] == pytest.approx(1.0, abs=0.2)


def test_a_column_of_noise_with_many_values_says_nothing():
    rng = np.random.default_rng(0)
    y, other_y = rng.random((2, 6000)) < 0.43
    names = rng.zipf(1.3, (2, 6000)) % 5000
    table, other = (
        pa.table({"id": pa.array(np.where(ids % 2, ids, 0).astype(str)), "class": y_.astype(str)})
        for ids, y_ in zip(names, (y, other_y), strict=True)
    )
    model = drive(learner("eskdb", {}, "class"), Source.of_table(table))
    p = model.predict_proba(encode(other, model.schema))[np.arange(6000), other_y.astype(int)]
    shares = np.where(other_y, y.mean(), 1 - y.mean())
    assert -np.log(p).mean() < -1.003 * np.log(shares).mean()


def test_prefix_losses_are_as_defined():
    rng = np.random.default_rng(1)
    log_p = rng.normal(size=(9, 3, 3, 2)).astype(np.float32)
    y = rng.integers(0, 2, 9).astype(np.uint8)
    rows = Rows(y, rng.normal(size=(9, 2)))
    found = attribute_prefix_losses(log_p, [0, 1, 2], rows, 2)
    assert found == pytest.approx(naive.prefix_losses(log_p, [0, 1, 2], rows.log_prior, y))


def test_the_temperature_undoes_a_wrong_scale():
    terms, rows = problem(4000, 1)
    right = fit_pool_temperature(terms[:, 0].astype(float), rows)
    assert fit_pool_temperature(terms[:, 0].astype(float) * 2, rows) == pytest.approx(right / 2, rel=0.02)


def test_few_rows_are_trusted_less():
    # Where the scores say nothing of the classes, the temperature is what the number of rows makes it expected to be.
    for n, expected in ((25, 0.2), (50, 0.5), (100, 0.8), (5000, 1.0)):
        rows = Rows(np.zeros(n, np.uint8), np.zeros((n, 2)))
        assert fit_pool_temperature(np.zeros((n, 2)), rows) == pytest.approx(expected, rel=0.01)
    # Many rows say themselves how far to trust the scores.
    scores = np.tile([0.0, 1.0], (5000, 1))
    y = (np.random.default_rng(0).random(5000) < 1 / (1 + np.exp(-0.3))).astype(np.uint8)
    assert fit_pool_temperature(scores, Rows(y, np.zeros((5000, 2)))) == pytest.approx(0.3, abs=0.1)


def test_the_prior_leaves_the_row_out():
    log_prior = leave_one_out_log_prior(np.array([3, 1]), np.array([0, 1]))
    assert np.exp(log_prior) == pytest.approx(np.array([[2.5, 1.5], [3.5, 0.5]]) / 4)


def test_weighted_rows_are_as_rows_that_come_more_than_once():
    terms, rows = problem(300)
    n = np.random.default_rng(3).integers(1, 4, 300)
    many = Rows(np.repeat(rows.y, n), np.repeat(rows.log_prior, n, axis=0))
    few = Rows(rows.y, rows.log_prior, n * (300 / n.sum()))
    start = np.zeros(4)
    expected = fit_term_weights(np.repeat(terms, n, axis=0), many, start, 1)
    # The penalty is that of as many rows as there are.
    assert fit_term_weights(terms, few, start, 1) == pytest.approx(expected, abs=0.05)
    scores, repeated = rows.log_prior + terms[:, 0], many.log_prior + np.repeat(terms[:, 0], n, axis=0)
    assert mean_log_loss(scores, few) == pytest.approx(mean_log_loss(repeated, many))


def test_rare_classes_are_among_the_rows_that_weights_are_fitted_to():
    y = np.zeros(20_000, np.uint8)
    y[5::200], y[[9, 19_000, 19_500]] = 1, 2
    counts = 10 * np.bincount(y)
    rows, weights = representative_rows(y, counts, 2_000)
    assert np.array_equal(rows[:2_000], np.arange(2_000))
    found = np.bincount(y[rows])
    assert found.tolist() == [1989, 100, 3]
    of_class = np.bincount(y[rows], weights)
    assert of_class / of_class.sum() == pytest.approx(counts / counts.sum())
    assert weights.mean() == pytest.approx(1.0)
    common = np.arange(20_000, dtype=np.int64).astype(np.uint8) % 2
    rows, weights = representative_rows(common, np.bincount(common), 2 * LEAST_OF_CLASS)
    assert rows.size == 2 * LEAST_OF_CLASS and weights is None


@pytest.mark.parametrize("n_classes", [2, 3])
def test_offsets_make_the_mean_probability_the_share(n_classes):
    rng = np.random.default_rng(1)
    scores = 3 * rng.normal(size=(5_000, n_classes)) - 4 * (np.arange(n_classes) == 1)
    counts = np.array([60_000, 40, 100_000])[:n_classes]
    weights = rng.uniform(0.5, 1.5, 5_000)
    moved = scores + class_offsets(scores, counts, weights)
    p = np.exp(moved) / np.exp(moved).sum(axis=1, keepdims=True)
    assert np.average(p, axis=0, weights=weights) == pytest.approx(counts / counts.sum(), rel=1e-3)
