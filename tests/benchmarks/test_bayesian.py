"""The benchmarks of Bayesian circuits: intervals are calibrated, and draws that hang together count less."""

import numpy as np
import pytest

from benchmarks.bayesian_calibration import QUESTIONS, covered
from benchmarks.bayesian_circuits import effective
from benchmarks.bayesian_problems import MIXED, problem_of, table_of


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Sixty circuits from the prior, six probabilities each; four standard errors of the share, of some 0.03 each."""
    each = np.stack([covered(seed, 20) for seed in range(60)])
    assert each.shape == (60, len(QUESTIONS))
    error = each.mean(axis=1).std(ddof=1) / np.sqrt(60)
    assert error < 0.045
    assert abs(each.mean() - 0.9) < 4 * error


def test_narrower_intervals_hold_it_less_often():
    assert np.mean([covered(seed, 20, level=0.3) for seed in range(15)]) < 0.6


@pytest.mark.skipif(not MIXED.exists(), reason=f"no data in {MIXED}")
def test_problems_are_the_papers_rows():
    problem = problem_of(table_of("yacht"), "paper")
    assert problem.x.shape == (308, 7) and problem.prior(2).shape.n_columns == 7


def test_draws_that_hang_together_count_less():
    rng = np.random.default_rng(0)
    walk = np.zeros(2000)
    for i in range(1, 2000):
        walk[i] = 0.95 * walk[i - 1] + rng.normal()
    assert effective(walk) < 300 < effective(rng.permutation(walk))
