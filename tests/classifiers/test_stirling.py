import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import digamma, polygamma

from learners.classifiers import stirling
from learners.classifiers.stirling import log_stirling

REQUIRED = 1e-6


def test_against_exact_integers_up_to_1500():
    row, checked = [0, 1], {*range(1, 61), 100, 300, 1000, 1500}
    for n in range(1, 1501):
        if n in checked:
            exact = np.array([math.log(value) for value in row[1:]])
            assert np.abs(exact - log_stirling(n, np.arange(1, n + 1))).max() < REQUIRED
        row = [0, *(row[t - 1] + (n * row[t] if t < len(row) else 0) for t in range(1, n + 2))]


@pytest.mark.parametrize("r", [1e-3, 0.5, 20.0, 3000.0])
def test_against_adding_events_one_by_one_at_ten_thousand(r):
    """The tilted distribution by convolution: only sums and products of positive numbers, so nearly exact."""
    n = 10_000
    p = np.zeros(n + 1)
    p[0] = 1.0
    for i in range(n):
        success = r / (r + i)
        p[1 : i + 2] = p[1 : i + 2] * (1 - success) + p[: i + 1] * success
        p[0] *= 1 - success
    t = np.flatnonzero(p > 1e-30)
    rising = math.lgamma(r + n) - math.lgamma(r)
    assert np.abs(np.log(p[t]) - t * math.log(r) + rising - log_stirling(n, t)).max() < REQUIRED


@pytest.mark.parametrize("n", [10**4, 10**6, 5 * 10**7])
def test_two_and_three_cycles_from_harmonic_numbers(n):
    first, second = digamma(n) + np.euler_gamma, math.pi**2 / 6 - polygamma(1, n)
    factorial = math.lgamma(n)
    assert abs(log_stirling(n, 2) - factorial - math.log(first)) < REQUIRED
    assert abs(log_stirling(n, 3) - factorial - math.log((first**2 - second) / 2)) < REQUIRED


@pytest.mark.parametrize("n", [10**5, 10**7, 5 * 10**7])
def test_both_ways_of_reading_the_distribution_agree(n, monkeypatch):
    t = np.array([200, 500, 1500, n // 1000])
    by_expansion = log_stirling(n, t)
    monkeypatch.setattr(stirling, "WIDE", 1000.0)
    assert np.abs(log_stirling(n, t) - by_expansion).max() < REQUIRED


@given(st.integers(1, 10**7), st.data())
def test_the_recurrence_holds(n, data):
    t = data.draw(st.integers(1, min(n, 5000)))
    right = np.logaddexp(log_stirling(n, t - 1), math.log(n) + log_stirling(n, t))
    assert abs(log_stirling(n + 1, t) - right) < 2 * REQUIRED


def test_bounds_are_numbers_or_minus_infinity():
    assert log_stirling(0, 0) == 0
    assert log_stirling(5, 5) == 0
    assert log_stirling(5, 0) == log_stirling(5, 6) == -np.inf
    assert np.isclose(log_stirling(7, 1), math.log(720))
    assert np.isclose(log_stirling(7, 6), math.log(21))
    assert not np.isnan(log_stirling(np.arange(30)[:, None], np.arange(31))).any()
