"""Selection, weights and temperature."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from learners.ensembles.weight_kernels import add_term_weight_gradient
from learners.ensembles.weights import (
    Rows,
    attribute_prefix_losses,
    fit_pool_temperature,
    fit_term_weights,
    leave_one_out_log_prior,
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
    loss = add_term_weight_gradient(terms, rows.log_prior, rows.y, weights, 0, 40, gradient)
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


def test_the_prior_leaves_the_row_out():
    log_prior = leave_one_out_log_prior(np.array([3, 1]), np.array([0, 1]))
    assert np.exp(log_prior) == pytest.approx(np.array([[2.5, 1.5], [3.5, 0.5]]) / 4)
