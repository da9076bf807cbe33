"""MAP solvers against enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

from learners.circuits.errors import ContinuousQuery, ImpossibleEvidence, InvalidQuery
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, INDICATOR, POISSON
from learners.circuits.map import solvers
from learners.circuits.map.query import SOLVERS, prepared_map_circuit
from learners.circuits.map.solvers import (
    assignment_log_probabilities,
    best_tree_assignment,
    branch_and_bound_assignment,
    k_best_tree_assignments,
    look_ahead_upper_bound,
)
from tests.circuits.map_circuits import map_query, problems, random_circuit
from tests.naive import map as naive
from tests.naive.induced_trees import induced_trees
from tests.naive.map import categorical, flat_circuit, logs, mixture

CLOSE = 1e-9


def log(value):
    return logs(value)[0]


@pytest.mark.parametrize("solver", SOLVERS)
@given(problem=problems())
@settings(max_examples=30)
def test_every_solver_tells_its_value_and_a_bound_of_all(solver, problem):
    circuit, query, evidence = problem
    values = naive.all_values(circuit, query, evidence)
    best = max(values.values())
    if best == 0:
        return
    answer = map_query(circuit, query, evidence, solver, k=3)
    value = values[tuple(int(x) for x in answer.assignment.values())]
    assert answer.log_probability == pytest.approx(log(value), abs=CLOSE)
    assert answer.log_probability <= log(best) + CLOSE <= answer.upper_bound + 2 * CLOSE
    if answer.is_optimal:
        assert value == pytest.approx(best, rel=CLOSE)


@given(problem=problems(leaves=(INDICATOR,)))
@settings(max_examples=30)
def test_k_best_trees_are_the_best_of_all_trees(problem):
    circuit, _, _ = problem
    finite = prepared_map_circuit(circuit).finite
    if finite.n_variables == 0:
        return
    # A sum over one variable is one leaf after the reduction: trees that differ only inside it count together.
    assignments, scores = k_best_tree_assignments(finite, 500)
    trees = sorted((tree for tree, *_ in induced_trees(circuit, {})), reverse=True)
    assert np.all(np.diff(scores) <= 1e-12)
    assert scores[0] == 1.0
    assert len(assignments) <= len(trees)
    reached = assignment_log_probabilities(finite, assignments)
    assert trees[0] <= math.exp(reached.max()) * (1 + CLOSE)
    if len(scores) < 500:
        worlds = naive.all_values(circuit, range(len(circuit.n_values)), {})
        positive = {tuple(codes[v] for v in finite.variables) for codes, value in worlds.items() if value > 0}
        assert {tuple(x) for x in assignments} == positive


@given(problem=problems())
def test_one_best_tree_is_the_best_tree(problem):
    circuit, query, evidence = problem
    problem = prepared_map_circuit(circuit).reduced(query, evidence)
    if problem.n_variables and problem.log_bound > -math.inf:
        assignments, _ = k_best_tree_assignments(problem, 1)
        assert assignments[0].tolist() == best_tree_assignment(problem).tolist()


@given(problem=problems())
def test_each_bound_is_at_least_as_tight_as_the_one_before(problem):
    circuit, query, evidence = problem
    best = max(naive.all_values(circuit, query, evidence).values())
    problem = prepared_map_circuit(circuit).reduced(query, evidence)
    if problem.n_variables == 0 or best == 0:
        return
    total = log(naive.value(circuit, evidence))
    assert log(best) <= look_ahead_upper_bound(problem) + CLOSE
    assert look_ahead_upper_bound(problem) <= problem.log_bound + CLOSE
    assert problem.log_bound <= total + CLOSE


def hard_circuit(n_variables=60, n_components=40):
    """A mixture of independent components, all alike: nothing decides early."""
    rng = np.random.default_rng(3)
    p = rng.uniform(0.3, 0.7, (n_components, n_variables)).tolist()
    return mixture([[categorical(a, 1 - a) for a in own] for own in p], [1 / n_components] * n_components)


def test_time_limit_gives_the_best_so_far_and_a_bound():
    circuit = hard_circuit()
    query = list(range(60))
    answer = map_query(circuit, query, time_limit_s=0.1)  # a proof would take for ever
    assert not answer.is_optimal
    assert answer.upper_bound > answer.log_probability
    assert answer.log_probability >= map_query(circuit, query, solver="kbt").log_probability
    problem = prepared_map_circuit(circuit).reduced(query, {})
    # By a clock that goes on by as much at each look, whatever the machine does meanwhile.
    short, longer = (
        branch_and_bound_assignment(problem, seconds, clock=itertools.count(0.0, 0.005).__next__)
        for seconds in (0.02, 0.1)
    )
    assert longer.n_expanded > short.n_expanded
    assert longer.log_value >= short.log_value
    assert longer.log_bound <= short.log_bound + CLOSE
    at_once = map_query(circuit, query, time_limit_s=0)
    assert at_once.log_probability >= map_query(circuit, query, solver="bt").log_probability


def test_the_search_in_pieces_finds_what_enumeration_finds():
    circuit = hard_circuit(n_variables=14, n_components=12)
    answer = map_query(circuit, range(14))
    worlds = np.array(list(itertools.product(range(2), repeat=14))).T
    assert answer.is_optimal
    assert answer.log_probability == pytest.approx(log_values(circuit, worlds).max(), abs=CLOSE)


@pytest.mark.parametrize("most_rows", [0, solvers.MOST_ROW_ENTRIES])
def test_a_deep_search_reduces_circuits_and_stays_right(most_rows, monkeypatch):
    """By the look-ahead, and by the maxima at leaves that bound circuits too large for it."""
    monkeypatch.setattr(solvers, "MOST_ROW_ENTRIES", most_rows)
    rng = np.random.default_rng(5)
    for _ in range(5):
        circuit = random_circuit(rng, 10, most_values=3)
        problem = prepared_map_circuit(circuit).reduced(list(range(10)), {})
        found = branch_and_bound_assignment(problem, 10)
        assert found.is_optimal
        every = np.array(list(itertools.product(*map(range, np.diff(problem.arrays.value_starts)))))
        assert found.log_value == pytest.approx(assignment_log_probabilities(problem, every).max(), abs=CLOSE)


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_same_seed_gives_the_same_answer(solver):
    circuit = hard_circuit(n_variables=20, n_components=6)
    answers = [map_query(circuit, list(range(20)), solver=solver, seed=7, k=5) for _ in range(2)]
    assert answers[0].assignment == answers[1].assignment
    assert answers[0].log_probability == answers[1].log_probability


def test_impossible_evidence_is_named():
    circuit = mixture([[categorical(1, 0), categorical(0.5, 0.5)]])
    with pytest.raises(ImpossibleEvidence, match="variable 0 = 1"):
        map_query(circuit, [1], {0: 1})
    assert map_query(circuit, [1], {0: 0}).is_optimal


@pytest.mark.parametrize(
    ("query", "evidence", "options", "message"),
    [
        ([], {}, {}, "names no variable"),
        ([9], {}, {}, "Variable 9 is not in the circuit"),
        ([0], {0: 1}, {}, "Variable 0 is in the query and in the evidence"),
        ([0, 0], {}, {}, "Variable 0 is in the query twice"),
        ([0], {1: 5}, {}, "Variable 1 has values 0 to 1, not 5"),
        ([0], {1: 0.5}, {}, "Variable 1 has values 0 to 1, not 0.5"),
        ([0], {}, {"solver": "best"}, "Solver 'best' is unknown"),
        ([0], {}, {"k": 0}, "k=0"),
        ([0], {}, {"time_limit_s": -1}, "time_limit_s=-1"),
    ],
)
def test_queries_that_do_not_fit_are_refused(query, evidence, options, message):
    with pytest.raises(InvalidQuery, match=message):
        map_query(mixture([[categorical(0.5, 0.5)] * 2]), query, evidence, **options)


def mixed_circuit():
    """Variable 0 binary, 1 Gaussian, 2 Poisson; two components."""
    return mixture(
        [
            [categorical(0.9, 0.1), (GAUSSIAN, [-1.0, 0.5]), (POISSON, [2.5])],
            [categorical(0.2, 0.8), (GAUSSIAN, [4.0, 1.0]), (POISSON, [8.2])],
        ],
        [0.3, 0.7],
    )


def test_continuous_evidence_moves_the_answer():
    circuit = mixed_circuit()
    for evidence in ({1: -1.2}, {1: 4.0}, {1: 4.0, 2: 2}, {2: 9}, {}):
        answer = map_query(circuit, [0], evidence)
        values = {x: naive.value(circuit, evidence | {0: x}) for x in range(2)}
        assert answer.is_optimal
        assert answer.assignment[0] == max(values, key=values.get)
        assert answer.log_probability == pytest.approx(log(max(values.values())), abs=CLOSE)


def test_an_outlier_is_unlikely_evidence_but_not_impossible():
    answer = map_query(mixed_circuit(), [0], {1: 60.0})
    assert answer.assignment == {0: 1}
    assert answer.log_probability == pytest.approx(math.log(0.7 * 0.8 / math.sqrt(2 * math.pi)) - 56**2 / 2)


@pytest.mark.parametrize("solver", ["bt", "kbt"])
def test_continuous_variables_get_the_mode_of_a_leaf(solver):
    circuit = mixed_circuit()
    answer = map_query(circuit, [0, 1, 2], solver=solver)
    assert answer.assignment in ({0: 0, 1: -1.0, 2: 2.0}, {0: 1, 1: 4.0, 2: 8.0})
    assert answer.log_probability == pytest.approx(log(naive.value(circuit, answer.assignment)), abs=CLOSE)
    assert answer.upper_bound >= answer.log_probability
    assert not answer.is_optimal
    # Given all of it, nothing is left to choose: the reduced problem is a constant.
    numbers = mixture([[(GAUSSIAN, [1.0, 2.0]), (GAUSSIAN, [3.0, 1.0])]])
    for evidence in ({}, {1: 2.0}):
        answer = map_query(numbers, [0], evidence, solver=solver)
        assert answer.assignment == {0: 1.0}
        best = naive.value(numbers, evidence | {0: 1.0})
        assert answer.log_probability == pytest.approx(math.log(best)) == answer.upper_bound


def test_what_no_leaf_mentions_gets_its_first_value():
    circuit = flat_circuit([(CATEGORICAL, 0, logs(0.3, 0.7))], [2, 2])
    for solver in SOLVERS:
        answer = map_query(circuit, [1], solver=solver)
        assert answer.assignment == {1: 0} and answer.log_probability == pytest.approx(0.0)


def test_continuous_queries_are_refused_by_the_other_solvers():
    for solver in ("ng", "amap", "beam", "exact"):
        with pytest.raises(ContinuousQuery, match="variable 1, 2 has an infinite one"):
            map_query(mixed_circuit(), [0, 1, 2], solver=solver)


def test_values_far_below_double_precision_keep_their_order():
    """Two thousand leaves of probability near one half: the product underflows, its logarithm does not."""
    n = 2000
    rng = np.random.default_rng(0)
    p = rng.uniform(0.4, 0.6, (2, n))
    circuit = mixture([[categorical(a, 1 - a) for a in own] for own in p.tolist()], [0.5, 0.5])
    evidence = {v: int(rng.integers(2)) for v in range(n - 3)}
    answer = map_query(circuit, [n - 3, n - 2, n - 1], evidence)

    def log_of_each(assignment):
        return [sum(math.log(own[v] if x == 0 else 1 - own[v]) for v, x in assignment.items()) for own in p]

    assert max(log_of_each(evidence)) < -750
    worlds = [evidence | dict(zip(range(n - 3, n), x, strict=True)) for x in np.ndindex(2, 2, 2)]
    expected = max(np.logaddexp(*log_of_each(world)) for world in worlds) + math.log(0.5)
    assert answer.is_optimal
    assert answer.log_probability == pytest.approx(expected, abs=1e-7)
