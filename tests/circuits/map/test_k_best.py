"""The k best assignments against enumeration."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.kernels import CATEGORICAL
from learners.circuits.map import ImpossibleEvidence, InvalidQuery, k_best, map_query
from tests.circuits.map_circuits import problems, random_circuit
from tests.naive import map as naive


@given(problems(), st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_the_k_best_are_those_of_all_assignments(problem, n):
    circuit, query, evidence = problem
    values = naive.all_values(circuit, query, evidence)
    expected = sorted((p for p in values.values() if p > 0), reverse=True)[:n]
    if not expected:
        with pytest.raises(ImpossibleEvidence, match="probability zero"):
            k_best(circuit, query, evidence, best=n)
        return
    found = k_best(circuit, query, evidence, best=n)
    told = [tuple(int(code) for code in answer.assignment.values()) for answer in found]
    assert len(set(told)) == len(told) == len(expected)
    assert [values[codes] for codes in told] == pytest.approx(expected, rel=1e-10)
    assert [math.exp(answer.log_probability) for answer in found] == pytest.approx(expected, rel=1e-10)
    assert all(answer.is_optimal and list(answer.assignment) == query for answer in found)
    assert all(0 <= answer.upper_bound - answer.log_probability <= 1e-10 for answer in found)


def test_without_time_the_first_is_told_with_a_bound_of_all():
    circuit = random_circuit(np.random.default_rng(5), 7, most_values=3, leaves=(CATEGORICAL,), zeros=0.0)
    every = k_best(circuit, range(7), best=5, time_limit_s=0.0)
    best = map_query(circuit, range(7)).log_probability
    assert 1 <= len(every) <= 5
    assert all(best <= answer.upper_bound + 1e-10 for answer in every[:1])
    assert all(answer.log_probability <= answer.upper_bound for answer in every)


def test_only_the_exact_solver_tells_more_than_one():
    circuit = random_circuit(np.random.default_rng(0), 3)
    with pytest.raises(InvalidQuery, match="Solver 'kbt' tells one assignment"):
        k_best(circuit, [0], {}, "kbt", 2)
