"""Two-sample tests: against definitions, and how often they are wrong where nothing has changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2, false_discovery_control, power_divergence

from learners.monitoring import two_sample_tests
from tests.naive import monitoring as naive

COUNTS = st.lists(st.tuples(st.integers(20, 5000), st.integers(20, 5000)), min_size=2, max_size=8)


@given(COUNTS)
def test_g_is_that_of_the_definition_but_for_its_correction(pairs):
    window, reference = np.array(pairs).T
    found = two_sample_tests.g_test_counts(window, reference)
    g = naive.g_statistic(window, reference)
    if (np.minimum(window.sum(), reference.sum()) / (window.sum() + reference.sum()) * (window + reference)).min() >= 5:
        assert found.degrees == len(pairs) - 1
        assert 0.85 * g - 1e-9 <= found.g <= g + 1e-9


SEEDS = st.integers(0, 2**32 - 1)


@given(st.integers(1, 6), st.integers(1, 7), st.sampled_from([1.0, 3.5]), st.sampled_from([0.3, 4, 60]), SEEDS)
def test_tables_are_compared_as_the_naive_twin_compares_them(n_contexts, n_values, inflation, mean, seed):
    """Tables with empty contexts, rare values and values that only one of the samples has."""
    rng = np.random.default_rng(seed)
    window, reference = rng.poisson(rng.exponential(mean, (2, n_contexts, n_values)))
    found = two_sample_tests.g_test_tables(window, reference, two_sample_tests.Repeats(inflation))
    g, degrees, nats, n_rows = naive.g_of_tables(window, reference, inflation)
    assert (found.degrees, found.n_rows) == (degrees, n_rows)
    assert found.g == pytest.approx(g, abs=1e-9) and found.nats == pytest.approx(max(0.0, nats), abs=1e-9)
    assert found.p_value == pytest.approx(chi2.sf(g, degrees) if degrees else 1.0, rel=1e-6)


@given(st.integers(1, 4), st.integers(2, 6), st.lists(st.integers(1, 300), max_size=3), SEEDS)
def test_bursts_are_taken_away_as_the_naive_twin_does(n_contexts, n_values, bursts, seed):
    rng = np.random.default_rng(seed)
    window, reference = rng.poisson(rng.exponential(40, (2, n_contexts, n_values)))
    left = two_sample_tests.counts_without_bursts(window, reference, bursts)
    # Of two cells that are alike, the last bit of a logarithm decides.
    expected = naive.without_bursts(window, reference, bursts)
    assert left.sum() == expected.sum() and left.min() >= 0
    assert naive.g_of_tables(left, reference)[0] == pytest.approx(naive.g_of_tables(expected, reference)[0], abs=1e-6)
    repeats = two_sample_tests.Repeats(1.0, tuple(bursts))
    assert two_sample_tests.g_test_tables(window, reference, repeats) == two_sample_tests.g_test_tables(left, reference)


def test_a_burst_alone_changes_no_rate_and_no_table():
    """One row, sent 200 times, is in one cell; a change of more rows than that is seen in spite of it."""
    bursts = two_sample_tests.Repeats(bursts=(200,))
    assert two_sample_tests.g_test_rates(300 + 200, 10_200, 3000, 100_000, bursts).p_value > 0.5
    assert two_sample_tests.g_test_rates(300, 10_200, 3000, 100_000, bursts).p_value > 0.5
    assert two_sample_tests.g_test_rates(900, 10_200, 3000, 100_000, bursts).p_value < 1e-20
    table = np.array([[1000, 1000], [500, 1500]])
    burst = table + np.array([[200, 0], [0, 0]])
    assert two_sample_tests.g_test_tables(burst, 10 * table).p_value < 1e-3
    assert two_sample_tests.g_test_tables(burst, 10 * table, bursts).p_value > 0.9
    assert two_sample_tests.g_test_tables(table[:, ::-1], 10 * table, bursts).p_value < 1e-20


def test_nats_are_the_divergence_of_large_samples():
    p, q = np.array([0.2, 0.3, 0.5]), np.array([0.3, 0.3, 0.4])
    window, reference = (10**5 * p).astype(int), (10**9 * q).astype(int)
    found = two_sample_tests.g_test_counts(window, reference)
    assert found.nats == pytest.approx((p * np.log(p / q)).sum(), rel=1e-3)


@pytest.mark.parametrize("n_rows", [100, 2000])
def test_as_many_false_alarms_as_the_level_says(n_rows):
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.ones(6), size=12)
    wrong = []
    for _ in range(600):
        reference = np.stack([rng.multinomial(10 * n_rows // 12, share) for share in shares])
        window = np.stack([rng.multinomial(n_rows // 12, share) for share in shares])
        wrong.append(two_sample_tests.g_test_tables(window, reference).p_value < 0.01)
    assert np.mean(wrong) < 0.03


def test_contexts_may_change_as_they_like():
    table = np.array([[300, 700], [900, 100]])
    found = two_sample_tests.g_test_tables(table * np.array([[5], [1]]), table * 10)
    assert found.p_value > 0.9 and found.nats == 0


def test_nothing_to_compare_is_no_difference():
    empty = np.zeros((3, 4), np.int64)
    assert two_sample_tests.g_test_tables(empty, empty + 5) == two_sample_tests.NOTHING
    assert two_sample_tests.g_test_rates(0, 0, 1, 10) == two_sample_tests.NOTHING


def test_rates_are_compared_in_points():
    found = two_sample_tests.g_test_rates(30, 1000, 10, 1000)
    expected = power_divergence([[30, 970], [10, 990]], [[20, 980], [20, 980]], axis=None, ddof=2, lambda_=0)
    assert (found.nats, found.p_value) == (pytest.approx(2.0), pytest.approx(expected.pvalue, rel=1e-6))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20, unique=True))
def test_q_values_are_those_of_benjamini_and_hochberg(p_values):
    q_values = two_sample_tests.benjamini_hochberg_q_values(p_values)
    np.testing.assert_allclose(q_values, false_discovery_control(p_values), rtol=1e-12, atol=1e-300)


def test_psi_and_js_of_equal_counts_are_zero_and_grow():
    same, other = np.array([50, 50, 100]), np.array([100, 50, 50])
    for distance in (two_sample_tests.population_stability_index, two_sample_tests.jensen_shannon_distance):
        assert distance(same, same * 3) == pytest.approx(0) and 0.1 < distance(same, other) < 1


def test_a_window_that_is_one_burst_has_no_rate_to_compare():
    """It divided by zero."""
    assert (
        two_sample_tests.g_test_rates(18, 18, 0, 5000, two_sample_tests.Repeats(bursts=(20,)))
        == two_sample_tests.NOTHING
    )
