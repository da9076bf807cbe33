"""A MAP query by a tree: the same as reduction, tree, value and bound one after the other."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.kernels import CATEGORICAL, INDICATOR
from learners.circuits.map import solvers
from learners.circuits.map.query import WholeCircuit
from learners.circuits.map.solvers import root_bound
from tests.circuits.map_circuits import map_query, random_circuit
from tests.naive.map import value


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(["bt", "ng"]))
def test_a_query_answers_as_its_parts_do(seed, solver):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 6)), leaves=(INDICATOR, CATEGORICAL))
    order = rng.permutation(circuit.n_variables)
    n_asked = int(rng.integers(1, circuit.n_variables + 1))
    asked = order[:n_asked].tolist()
    n_given = int(rng.integers(0, circuit.n_variables - n_asked + 1))
    evidence = {int(v): int(rng.integers(circuit.n_values[v])) for v in order[n_asked : n_asked + n_given]}
    problem = WholeCircuit.of(circuit).reduced(asked, {v: float(code) for v, code in evidence.items()})
    if problem.log_bound == -math.inf:
        with pytest.raises(ImpossibleEvidence, match="probability zero"):
            map_query(circuit, asked, evidence, solver)
        return
    found = map_query(circuit, asked, evidence, solver)
    assert list(found.assignment) == asked
    assert math.exp(found.log_probability) == pytest.approx(
        value(circuit, evidence | found.assignment), rel=1e-9, abs=1e-300
    )
    if problem.n_variables:
        x = (solvers.greedy_tree if solver == "ng" else solvers.best_tree)(problem)
        codes = dict(zip(problem.variables.tolist(), x.tolist(), strict=True))
        assert found.assignment == {v: codes.get(v, 0) for v in asked}
        expected = solvers.log_probability(problem, x)
        assert found.log_probability == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert found.upper_bound == pytest.approx(max(expected, root_bound(problem)), rel=1e-12, abs=1e-12)
    else:
        assert found.log_probability == found.upper_bound == pytest.approx(problem.log_bound, abs=1e-12)
    assert found.is_optimal == (found.upper_bound - found.log_probability <= 1e-10)
