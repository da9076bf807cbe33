"""The benchmark of structures draws its problems as the paper does."""

import numpy as np
import pytest

from benchmarks.structures import NOISE_VARIANCE, bge_of, known_edges, linear_gaussian


def test_problems_are_as_the_paper_draws_them():
    problems = [linear_gaussian(16, 100, seed) for seed in range(40)]
    n_edges = np.array([problem.graph.sum() for problem in problems])
    assert abs(n_edges.mean() - 32) < 5 * n_edges.std() / np.sqrt(40)
    rows, graph = linear_gaussian(2, 20_000, 3).rows, linear_gaussian(2, 20_000, 3).graph
    roots = rows[:, ~graph.any(axis=0)]
    assert roots.var(axis=0) == pytest.approx(NOISE_VARIANCE, rel=0.05)
    assert bge_of(problems[0].rows).n_rows == 100
    known = known_edges(problems[0], 8, 1)
    assert len(set(known)) == 8 and all(problems[0].graph[edge] for edge in known)
