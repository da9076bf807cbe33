"""The reduction of MAP to MAX, its bounds and its kernels, against the definitions."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

from learners.circuits.kernels import CATEGORICAL
from learners.circuits.map import (
    beam_kernels,
    kbest_kernels,
    parse_tree_kernels,
    reduction_kernels,
    search_kernels,
    value_kernels,
)
from learners.circuits.map.query import prepared_map_circuit
from learners.circuits.map.solvers import assignment_log_probabilities
from tests.circuits.map_circuits import map_query, problems
from tests.naive import map as naive
from tests.naive.map import flat_circuit

CLOSE = 1e-9


def worlds_of(problem):
    """All assignments of a MAX problem's variables."""
    sizes = np.diff(problem.arrays.value_starts)
    return np.array(list(itertools.product(*(range(size) for size in sizes))), dtype=np.int64)


@given(problem=problems())
@settings(max_examples=50)
def test_the_reduced_circuit_has_the_same_values(problem):
    circuit, query, evidence = problem
    problem = prepared_map_circuit(circuit).reduced(query, evidence)
    if problem.log_bound == -math.inf or problem.n_variables == 0:
        assert max(naive.all_values(circuit, query, evidence).values()) == pytest.approx(math.exp(problem.log_bound))
        return
    worlds = worlds_of(problem)
    given_values = [
        naive.value(circuit, evidence | dict(zip(problem.variables.tolist(), x, strict=True))) for x in worlds.tolist()
    ]
    assert np.exp(assignment_log_probabilities(problem, worlds)) == pytest.approx(given_values, rel=CLOSE, abs=1e-300)


@given(problem=problems())
def test_the_reduced_circuit_is_scaled_and_has_no_waste(problem):
    circuit, query, evidence = problem
    arrays = prepared_map_circuit(circuit).reduced(query, evidence).arrays
    n_inner = arrays.is_sum.size
    used_leaves, used_inner = set(), {n_inner - 1}
    for i in range(n_inner):
        first, middle, end = arrays.child_starts[i], arrays.leaf_from[i], arrays.child_starts[i + 1]
        # A sum whose edges all lead to one child keeps a single one: they are merged when it is written.
        assert end - first >= (1 if arrays.is_sum[i] and arrays.weight[first] == 1.0 else 2)
        used_inner |= set(arrays.children[first:middle].tolist())
        used_leaves |= set(arrays.children[middle:end].tolist())
        assert all(child < i for child in arrays.children[first:middle])
        if arrays.is_sum[i]:
            assert middle == end
            assert arrays.weight[first:end].sum() == pytest.approx(1)
    if n_inner:
        assert used_inner == set(range(n_inner))
        assert used_leaves == set(range(arrays.leaf_variable.size))
    if arrays.leaf_variable.size:
        assert np.maximum.reduceat(arrays.leaf_value, arrays.leaf_starts[:-1]) == pytest.approx(1)


@given(problem=problems())
@settings(max_examples=30)
def test_look_ahead_and_derivatives_bound_every_subspace(problem):
    circuit, query, evidence = problem
    problem = prepared_map_circuit(circuit).reduced(query, evidence)
    if problem.n_variables == 0 or problem.log_bound == -math.inf:
        return
    arrays = problem.arrays
    worlds = worlds_of(problem)
    values = np.exp(assignment_log_probabilities(problem, worlds) - problem.log_bound)
    rng = np.random.default_rng(0)
    allowed = np.ones(int(arrays.value_starts[-1]), dtype=np.uint8)
    for v in range(problem.n_variables):
        allowed[rng.integers(arrays.value_starts[v], arrays.value_starts[v + 1])] = rng.integers(2)
    n_inner, n_leaves = arrays.is_sum.size, arrays.leaf_variable.size
    tops, leaves = np.empty(n_inner), np.empty(n_leaves)
    by_derivatives, by_look_ahead = np.empty((2, allowed.size))
    value_kernels.upward_bound_pass(arrays, allowed, tops, leaves)
    value_kernels.downward_bound_pass(arrays, tops, leaves, np.empty(n_inner), by_derivatives)
    rows, spans = np.empty(n_inner * allowed.size), np.empty((n_inner, 2), dtype=np.int64)
    value_kernels.look_ahead_bounds(arrays, allowed, rows, spans, tops, leaves, by_look_ahead)
    is_allowed = np.all(allowed[arrays.value_starts[:-1] + worlds], axis=1)
    for v in range(problem.n_variables):
        for x in range(arrays.value_starts[v + 1] - arrays.value_starts[v]):
            slot = arrays.value_starts[v] + x
            if not allowed[slot]:
                continue
            inside = values[is_allowed & (worlds[:, v] == x)]
            assert inside.max(initial=0) <= by_look_ahead[slot] * (1 + CLOSE)
            assert by_look_ahead[slot] <= by_derivatives[slot] * (1 + CLOSE)
            # The sum is the paper's bound.
            assert by_derivatives[slot] <= inside.sum() * (1 + CLOSE)


def hidden_chain(n_latent, n_states=3, seed=0):
    """A hidden Markov chain with one binary leaf per latent variable, compiled without sharing lost."""
    rng = np.random.default_rng(seed)
    nodes, below = [], []
    for v in reversed(range(n_latent)):
        states = []
        for _ in range(n_states):
            p = rng.uniform(0.1, 0.9)
            nodes.append((CATEGORICAL, v, [math.log(p), math.log(1 - p)]))
            leaf = len(nodes) - 1
            if not below:
                states.append(leaf)
                continue
            nodes.append(("sum", list(zip(below, rng.dirichlet(np.ones(n_states)), strict=True))))
            nodes.append(("product", [leaf, len(nodes) - 1]))
            states.append(len(nodes) - 1)
        below = states
    nodes.append(("sum", list(zip(below, rng.dirichlet(np.ones(n_states)), strict=True))))
    return flat_circuit(nodes, [2] * n_latent)


def test_latent_variables_without_a_query_leaf_disappear():
    problem = prepared_map_circuit(hidden_chain(12)).reduced([0, 6, 11], {3: 1, 8: 0})
    direct = prepared_map_circuit(hidden_chain(3)).finite
    assert problem.arrays.children.size <= direct.arrays.children.size


@pytest.mark.parametrize(("query", "evidence"), [([0, 6, 11], {3: 1, 8: 0}), (range(12), {}), (range(0, 12, 2), {})])
def test_exact_agrees_with_enumeration_on_a_chain(query, evidence):
    circuit = hidden_chain(12, seed=2)
    answer = map_query(circuit, query, evidence)
    assert answer.is_optimal
    best = max(naive.all_values(circuit, query, evidence).values())
    assert answer.log_probability == pytest.approx(math.log(best), abs=CLOSE)


def test_kernels_are_compiled_once():
    circuit = hidden_chain(6)
    for solver in ("bt", "ng", "amap", "beam", "kbt", "exact"):
        map_query(circuit, [0, 2, 4], {1: 1}, solver)
    for kernel in (
        reduction_kernels.reduced_circuit,
        parse_tree_kernels.argmax_product,
        beam_kernels.beam_search,
        kbest_kernels.best_of_k_best_trees,
        search_kernels.solve_within_budget,
    ):
        assert len(kernel.signatures) == 1
