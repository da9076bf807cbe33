"""MAP queries whose pattern comes again: the same answers, bit for bit, from filling in numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.circuit import Circuit
from learners.circuits.map import map_query
from learners.circuits.map.errors import ImpossibleEvidence, InvalidQuery
from learners.circuits.map.reduction_kernels import reduced_circuit
from learners.circuits.map.template_kernels import filled
from learners.circuits.map.whole import WholeCircuit, whole_circuit
from tests.circuits.map_circuits import random_circuit
from tests.circuits.test_map_reduction import hidden_chain, problems


def as_told(answer):
    return answer.assignment, answer.log_probability, answer.upper_bound, answer.is_optimal


def outcome(circuit, query, evidence, solver):
    try:
        return as_told(map_query(circuit, query, evidence, solver))
    except ImpossibleEvidence:
        return "impossible"


@given(problem=problems(), seed=st.integers(0, 1000), solver=st.sampled_from(["bt", "ng"]))
@settings(max_examples=150, deadline=None)
def test_a_pattern_that_comes_again_is_answered_as_at_first(problem, seed, solver):
    """Whatever is given, also values that rule out parts of the circuit."""
    circuit, query, evidence = problem
    rng = np.random.default_rng(seed)
    for _ in range(5):
        values = {v: int(rng.integers(circuit.n_values[v])) for v in evidence}
        fresh = Circuit.from_arrays(circuit.to_arrays())
        assert outcome(circuit, query, values, solver) == outcome(fresh, query, values, solver)


@given(seed=st.integers(0, 10_000))
@settings(max_examples=100, deadline=None)
def test_numbers_filled_in_are_those_of_a_whole_reduction(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 9))
    circuit = hidden_chain(n, seed=seed) if seed % 2 else random_circuit(rng, n, zeros=0)
    order = rng.permutation(circuit.n_variables).tolist()
    n_asked = int(rng.integers(1, len(order)))
    asked, evidence = tuple(order[:n_asked]), tuple(order[n_asked : n_asked + int(rng.integers(0, len(order)))])
    whole = WholeCircuit.of(circuit)
    pattern = whole.pattern(asked, evidence)
    problem, shared = pattern.problem, pattern.shared
    if not problem.arrays.leaf_variable.size:
        return
    pattern.learn([int(whole.n_values[v]) for v in evidence])
    values = np.array([rng.integers(whole.n_values[v]) for v in evidence] + [0], np.int64)
    allowed, only, gains = shared.allowed.copy(), pattern.known.template.only.copy(), np.empty((2, 1))
    allowed[shared.slots + values[shared.places]] = 1
    for place, v in enumerate(pattern.known.domains[0]):
        if v >= 0:
            only[v] = values[place]
    expected, keep = reduced_circuit(problem.arrays, allowed, shared.hidden, gains[0])
    found = filled(problem.arrays, pattern.known.template, pattern.known.circuit, only, gains[1])
    if np.isnan(gains[1, 0]):
        # Only where a value that is given rules something out.
        assert (problem.arrays.leaf_value == 0).any()
        return
    assert gains[0, 0] == gains[1, 0]
    if not expected.leaf_variable.size:
        return
    assert pattern.known.template.keep.tolist() == keep.tolist()
    for name, one, other in zip(expected._fields, expected, found, strict=True):
        assert np.array_equal(one, other), name


def test_wrong_values_of_a_known_pattern_are_refused_as_at_first():
    circuit = hidden_chain(6)
    for _ in range(3):
        map_query(circuit, [0, 2], {4: 1}, "bt")
    for value in (2, -1, 0.5, float("nan")):
        with pytest.raises(InvalidQuery, match="Variable 4"):
            map_query(circuit, [0, 2], {4: value}, "bt")
    assert whole_circuit(circuit).patterns[(0, 2), (4,)].known is not None
