"""The benchmarks of Bayesian circuits: intervals are calibrated, and the paper's rows are found and divided as it says."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.bayesian_calibration import QUESTIONS, covered
from benchmarks.bayesian_circuits import effective
from benchmarks.bayesian_circuits_paper import PAPER, Result, divided, read, tables, without_outliers
from benchmarks.bayesian_problems import MIXED, problem_of, table_of


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Two hundred circuits from the prior, six probabilities each; four standard errors of the share, of some 0.017 each."""
    each = np.stack([covered(seed, 20) for seed in range(200)])
    assert each.shape == (200, len(QUESTIONS))
    error = each.mean(axis=1).std(ddof=1) / np.sqrt(200)
    assert error < 0.025
    assert abs(each.mean() - 0.9) < 4 * error


def test_narrower_intervals_hold_it_less_often():
    assert np.mean([covered(seed, 20, level=0.3) for seed in range(30)]) < 0.6


def test_outliers_are_the_rows_far_from_all_others():
    rng = np.random.default_rng(0)
    table = pa.table({"x": np.append(rng.normal(size=99), 50.0), "w": ["a", "b"] * 50, "row": np.arange(100) % 7})
    kept = without_outliers(table, 95)
    assert kept.num_rows == 95 and max(kept["x"].to_pylist()) < 10
    assert kept.schema == table.schema


def test_rows_are_divided_without_overlap():
    table = pa.table({"row": np.arange(101)})
    parts = [part["row"].to_pylist() for part in divided(table, 3)]
    assert sorted(row for part in parts for row in part) == list(range(101)) and [len(part) for part in parts] == [
        81,
        10,
        10,
    ]


@pytest.mark.skipif(not MIXED.exists(), reason=f"no data in {MIXED}")
def test_the_papers_rows_are_in_our_copies():
    for name, paper in PAPER.items():
        assert table_of(name).num_rows >= paper.rows
    problem = problem_of(table_of("yacht"), "paper")
    assert problem.x.shape == (308, 7) and problem.prior(2).shape.n_columns == 7


def test_the_log_is_read_up_to_a_line_that_was_cut_off(tmp_path):
    log = tmp_path / "log.jsonl"
    line = '{"name": "yacht", "outliers": "removed", "seed": 0, "model": "em", "trials": 1, "sweeps": 2, "test": 3.25, "seconds": 60.0}'
    log.write_text(f"{line}\n{line[:40]}")
    (result,) = read(log)
    assert result == Result("yacht", "removed", 0, "em", 1, 2, 3.25, 60.0)
    assert "| yacht | 1 | 2.22 | 8.25 | 3.25 |" in tables([result])


def test_draws_that_hang_together_count_less():
    rng = np.random.default_rng(0)
    walk = np.zeros(2000)
    for i in range(1, 2000):
        walk[i] = 0.95 * walk[i - 1] + rng.normal()
    assert effective(walk) < 300 < effective(rng.permutation(walk))
