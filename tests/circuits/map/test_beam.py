"""Hill climbing with a beam, and the values after all changes of one variable, against the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.kernels import CATEGORICAL, INDICATOR
from learners.circuits.map import beam_kernels, local_search_kernels
from learners.circuits.map.local_search_kernels import WIDTH, BlockRoom
from learners.circuits.map.query import prepared_map_circuit
from learners.circuits.map.solvers import beam_search_assignment
from tests.circuits.map_circuits import map_query, random_circuit
from tests.naive import map as naive

CLOSE = 1e-9
# Whether there are zeros, and the most values of a variable: every way through the kernels.
WAYS = [(0.0, 2), (0.0, 4), (0.3, 2), (0.3, 4)]


@st.composite
def max_problems(draw):
    """(whole circuit, its problem): all variables are asked."""
    zeros, most_values = draw(st.sampled_from(WAYS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    leaves = (INDICATOR, CATEGORICAL) if zeros else (CATEGORICAL,)
    n_variables = int(rng.integers(2, 8))
    circuit = random_circuit(rng, n_variables, most_values=most_values, leaves=leaves, zeros=zeros)
    return circuit, prepared_map_circuit(circuit).finite


def block_room(arrays, codes):
    """Scratch with the assignments codes (n, n_variables) in its columns."""
    n_inner = arrays.is_sum.size
    n, n_variables = codes.shape
    n_changes = int(arrays.value_starts[-1]) - n_variables
    most = int(np.diff(arrays.child_starts).max())
    columns = np.zeros((n_variables, WIDTH), dtype=np.int64)
    columns[:, :n] = codes.T
    rooms = [np.empty((size, WIDTH)) for size in (n_inner, n_inner, n_changes, most + 1)]
    return BlockRoom(columns, *rooms, np.array([n, (n + 7) // 8 * 8]))


def naive_value(circuit, problem, codes):
    """Value of an assignment on the problem's scale."""
    assignment = {int(v): int(code) for v, code in zip(problem.variables, codes, strict=True)}
    return naive.value(circuit, assignment) * math.exp(-problem.log_bound)


@given(problem=max_problems(), seed=st.integers(0, 1000), n=st.sampled_from([1, 7, 8, 13, WIDTH]))
@settings(max_examples=40)
def test_values_after_changes_are_the_values_of_the_changed_assignments(problem, seed, n):
    circuit, problem = problem
    arrays = problem.arrays
    if problem.n_variables == 0 or arrays.is_sum.size == 0:
        return
    n_values = np.diff(arrays.value_starts)
    codes = np.random.default_rng(seed).integers(0, n_values, (n, problem.n_variables))
    block = block_room(arrays, codes)
    edges = local_search_kernels.leaf_edges(arrays)
    assert edges.has_zeros == (arrays.leaf_value.min() < 1e-90)
    local_search_kernels.node_values_of_assignments(arrays, edges, block)
    found = []
    if not edges.has_zeros:
        local_search_kernels.neighbour_values(arrays, edges, block)
        found.append(block.found.copy())
    local_search_kernels.neighbour_values_with_zeros(arrays, block)
    found.append(block.found.copy())
    for k in range(min(n, 3)):
        assert block.up[-1, k] == pytest.approx(naive_value(circuit, problem, codes[k]), rel=CLOSE, abs=1e-14)
        for v in range(problem.n_variables):
            for step in range(1, n_values[v]):
                changed = codes[k].copy()
                changed[v] = (changed[v] + step) % n_values[v]
                change = arrays.value_starts[v] - v + step - 1
                assert beam_kernels.changed_variable_code(arrays.value_starts, change, v, codes[k, v]) == changed[v]
                value = naive_value(circuit, problem, changed)
                for each in found:
                    assert each[change, k] == pytest.approx(value, rel=CLOSE, abs=1e-14)


@given(problem=max_problems(), k=st.sampled_from([1, 3, 10, WIDTH + 8]))
@settings(max_examples=30)
def test_no_change_of_one_variable_improves_the_answer(problem, k):
    circuit, problem = problem
    if problem.n_variables == 0:
        return
    x = beam_search_assignment(problem, k, 1)
    value = naive_value(circuit, problem, x)
    for v, n_values in enumerate(np.diff(problem.arrays.value_starts)):
        for code in range(n_values):
            changed = x.copy()
            changed[v] = code
            assert naive_value(circuit, problem, changed) <= value * (1 + CLOSE)


def test_more_samples_than_assignments_find_the_maximum():
    for seed in range(20):
        circuit = random_circuit(np.random.default_rng(seed), 4, most_values=2, zeros=0.0)
        best = max(naive.all_values(circuit, range(4), {}).values())
        answer = map_query(circuit, range(4), solver="beam", k=200)
        assert answer.log_probability == pytest.approx(math.log(best), abs=CLOSE)


@pytest.mark.parametrize("tiny", [0.0, 5e-324, 1e-300, 1e-95, 1e-85])
def test_leaves_with_tiny_values_do_no_harm(tiny):
    # The second component takes x = (1, 1), of which the first gives next to nothing.
    circuit = naive.mixture([[naive.categorical(1.0, tiny)] * 2, [naive.categorical(0.1, 0.9)] * 2], [0.3, 0.7])
    answer = map_query(circuit, [0, 1], solver="beam", k=20)
    assert answer.assignment == {0: 1, 1: 1}
    assert answer.log_probability == pytest.approx(math.log(naive.value(circuit, {0: 1, 1: 1})), abs=CLOSE)


def test_samples_follow_the_distribution():
    circuit = random_circuit(np.random.default_rng(5), 3, most_values=3)
    problem = prepared_map_circuit(circuit).finite
    arrays = problem.arrays
    worlds = naive.all_values(circuit, problem.variables.tolist(), {})
    n = 40_000
    totals, codes = np.empty(arrays.is_sum.size), np.empty((problem.n_variables, n), dtype=np.int64)
    beam_kernels.total_node_values(arrays, totals, np.empty(arrays.is_sum.size, dtype=np.int64))
    beam_kernels.draw_beam_samples(arrays, totals, False, np.array([3], dtype=np.uint64), n, codes)
    for world, probability in worlds.items():
        share = float((np.array(world) == codes.T).all(1).mean())
        # Five standard deviations of the share of n draws.
        assert abs(share - probability) <= 5 * math.sqrt(probability * (1 - probability) / n) + 1e-12
