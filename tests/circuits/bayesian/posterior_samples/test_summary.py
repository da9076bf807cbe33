import numpy as np
import pytest

from learners.circuits.bayesian.posterior_samples.samples import log_mean, summarised
from learners.errors import InvalidParameter


def test_of_independent_draws_the_standard_error_is_that_of_a_mean():
    values = np.random.default_rng(0).normal(3.0, 2.0, (200, 400))
    told = summarised(values, n_chains=2)
    assert told.mean == pytest.approx(values.mean(axis=1))
    assert told.standard_error.mean() == pytest.approx(2.0 / np.sqrt(400), rel=0.05)
    assert np.mean(np.abs(told.mean - 3.0) < 1.645 * told.standard_error) == pytest.approx(0.9, abs=0.07)
    assert np.quantile(values[0], [0.05, 0.95]) == pytest.approx([told.low[0], told.high[0]])


def test_chains_that_stay_apart_have_a_larger_standard_error():
    rng = np.random.default_rng(0)
    together = rng.normal(0, 1, 400)
    apart = together + np.repeat([-3.0, 3.0], 200)
    assert summarised(apart, 2).standard_error > 2 * summarised(together, 2).standard_error


def test_draws_that_hang_together_have_a_larger_standard_error():
    rng = np.random.default_rng(0)
    walk = np.zeros(1000)
    for i in range(1, 1000):
        walk[i] = 0.9 * walk[i - 1] + rng.normal()
    independent = rng.permutation(walk)
    assert summarised(walk).standard_error > 2 * summarised(independent).standard_error


def test_a_single_draw_has_no_standard_error():
    told = summarised(np.array([[2.0]]))
    assert told.mean == [2.0] and np.isnan(told.standard_error).all()


@pytest.mark.parametrize("level", [0.0, 1.0, float("nan")])
def test_levels_out_of_range_are_refused(level):
    with pytest.raises(InvalidParameter, match="above 0 and below 1"):
        summarised(np.zeros((1, 5)), level=level)


def test_the_mean_of_logarithms_neither_overflows_nor_loses_zeros():
    logs = np.array([[1000.0, 1000.0], [-np.inf, 0.0], [-np.inf, -np.inf], [-2000.0, -2001.0]])
    wanted = [1000.0, np.log(0.5), -np.inf, -2000.0 + np.log((1 + np.exp(-1)) / 2)]
    assert log_mean(logs) == pytest.approx(wanted)
