"""The k best assignments against enumeration."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.errors import ImpossibleEvidence, InvalidQuery
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN
from learners.circuits.map.query import k_best
from tests.circuits.map_circuits import map_query, problems, random_circuit
from tests.naive import map as naive


def check_k_best(problem, n):
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


def check_kbt(problem, n):
    circuit, query, evidence = problem
    values = naive.all_values(circuit, query, evidence)
    if not max(values.values()):
        return
    found = k_best(circuit, query, evidence, "kbt", n, k=200)
    told = [tuple(int(code) for code in answer.assignment.values()) for answer in found]
    assert len(set(told)) == len(told) <= n
    logs = [answer.log_probability for answer in found]
    assert logs == sorted(logs, reverse=True)
    assert [math.exp(log) for log in logs] == pytest.approx([values[codes] for codes in told], rel=1e-10)
    best = math.log(max(values.values()))
    assert all(best <= answer.upper_bound + 1e-9 for answer in found[:1])


@pytest.mark.parametrize("n_problems", [60, pytest.param(200, marks=pytest.mark.faults)])
@pytest.mark.parametrize("check", [check_k_best, check_kbt])
def test_the_k_best_are_those_of_all_assignments_and_kbt_tells_trees_with_their_values(check, n_problems):
    settings(max_examples=n_problems, deadline=None)(given(problems(), st.integers(1, 12))(check))()


def test_kbt_tells_modes_of_numbers():
    nodes = [(GAUSSIAN, 0, [1.0, 1.0]), (GAUSSIAN, 0, [9.0, 0.5]), (GAUSSIAN, 0, [1.0, 2.0])]
    circuit = naive.flat_circuit([*nodes, ("sum", [(0, 0.5), (1, 0.3), (2, 0.2)])], [0])
    found = k_best(circuit, [0], {}, "kbt", 5)
    assert [answer.assignment for answer in found] == [{0: 9.0}, {0: 1.0}]
    for answer in found:
        assert math.exp(answer.log_probability) == pytest.approx(naive.value(circuit, answer.assignment))


def test_other_solvers_tell_one():
    circuit = random_circuit(np.random.default_rng(0), 3)
    with pytest.raises(InvalidQuery, match="Solver 'beam' returns one assignment only"):
        k_best(circuit, [0], {}, "beam", 2)
