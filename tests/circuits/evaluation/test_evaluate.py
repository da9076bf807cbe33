"""Values and derivatives against the definitions."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.circuits.errors import InvalidEvidence
from learners.circuits.evaluation.evaluate import log_induced_trees, log_values, root_log_values_from_leaves
from learners.circuits.evaluation.evaluate_kernels import root_log_values_by_block, root_log_values_by_row
from learners.circuits.kernels import GAUSSIAN, POISSON
from tests.circuits.answer_circuits import needs_public_circuits, public_circuit
from tests.circuits.map_circuits import random_circuit
from tests.naive import induced_trees as naive
from tests.naive.circuits import joint
from tests.naive.map import categorical, mixture
from tests.naive.node_logs import node_log_derivatives, node_log_values
from tests.support.circuits import as_row, chain, mixed_circuit, mixed_rows, random_rows


@given(seed=st.integers(0, 2**32 - 1))
def test_values_are_sums_over_all_complete_assignments(seed):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 6)), most_values=6)
    x = random_rows(rng, circuit, 37)
    values = joint(circuit)
    expected = np.array([naive.marginal(as_row(column), values) for column in x.T])
    assert np.exp(log_values(circuit, x)) == pytest.approx(expected, rel=1e-12, abs=0)
    assert math.fsum(values.values()) == pytest.approx(1)


@given(seed=st.integers(0, 2**32 - 1))
def test_induced_trees_are_counted(seed):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, int(rng.integers(1, 5)))
    trees = naive.induced_trees(circuit, {})
    assert math.exp(log_induced_trees(circuit)) == pytest.approx(sum(value > 0 for value, _, _ in trees))


@given(seed=st.integers(0, 2**32 - 1), is_mixed=st.booleans())
def test_every_node_has_its_value_and_derivative(seed, is_mixed):
    rng = np.random.default_rng(seed)
    circuit = mixed_circuit(rng) if is_mixed else random_circuit(rng, int(rng.integers(1, 6)), zeros=0.4)
    x = mixed_rows(rng, 19) if is_mixed else random_rows(rng, circuit, 19, missing=0.2)
    values, derivatives = node_log_values(circuit, x), node_log_derivatives(circuit, x)
    assert not np.isnan(values).any()
    assert not np.isnan(derivatives).any()
    for row in range(0, 19, 3):
        column = x[:, row]
        expected = naive.node_values(circuit, as_row(column))
        assert np.exp(values[:, row]) == pytest.approx(expected, rel=1e-9, abs=0)
        assert (values[:, row] == -np.inf).tolist() == [value == 0 for value in expected]
        slopes = [naive.derivative(circuit, as_row(column), node) for node in range(circuit.n_nodes)]
        assert np.exp(derivatives[:, row]) == pytest.approx(slopes, rel=1e-9, abs=1e-13)
    assert log_values(circuit, x) == pytest.approx(values[-1], rel=1e-12, abs=1e-12)


@given(seed=st.integers(0, 2**32 - 1))
def test_a_row_does_not_depend_on_its_neighbours_nor_on_the_type(seed):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, 5, most_values=6)
    x = random_rows(rng, circuit, 21)
    whole = log_values(circuit, x)
    one_by_one = np.array([log_values(circuit, x[:, row : row + 1])[0] for row in range(21)])
    assert np.array_equal(whole, one_by_one)
    for missing, dtype in ((-1, np.int64), (200, np.uint8), (9, np.int8), (1000, np.uint16)):
        assert np.array_equal(whole, log_values(circuit, np.where(np.isnan(x), missing, x).astype(dtype)))


@pytest.mark.parametrize("n_rows", [1, 40])
def test_nothing_underflows(n_rows):
    circuit = chain(3000, 1e-5)
    x = np.ones((3000, n_rows), np.uint8)
    x[:, ::2] = 0
    x[0, ::2] = 1
    expected = np.where(np.arange(n_rows) % 2, 3000 * math.log(1e-5), math.log(1e-5) + 2999 * math.log1p(-1e-5))
    assert log_values(circuit, x) == pytest.approx(expected, rel=1e-12)
    derivatives = node_log_derivatives(circuit, x)
    # Of the first leaf: the weight, and all other leaves.
    assert derivatives[0] == pytest.approx(math.log(0.25) + expected - math.log(1e-5), rel=1e-12)


def test_densities_may_exceed_what_a_double_holds():
    n = 400
    circuit = mixture([[(GAUSSIAN, [0.0, 1e-6])] * n])
    height = -math.log(1e-6) - 0.5 * math.log(2 * math.pi)
    x = np.zeros((n, 3))
    x[5, 1] = np.nan
    expected = [n * height, (n - 1) * height, n * height]
    assert log_values(circuit, x) == pytest.approx(expected, rel=1e-12)
    assert node_log_values(circuit, x)[-1] == pytest.approx(expected, rel=1e-12)


def test_leaves_can_be_given():
    rng = np.random.default_rng(0)
    circuit = mixed_circuit(rng)
    x = mixed_rows(rng, 30)
    assert root_log_values_from_leaves(circuit, node_log_values(circuit, x)) == pytest.approx(log_values(circuit, x))


def test_bad_rows_are_refused():
    circuit = chain(3, 0.5)
    with pytest.raises(InvalidEvidence, match=r"shape \(2, 4\).*3 variables"):
        log_values(circuit, np.zeros((2, 4)))
    with pytest.raises(InvalidEvidence, match=r"Variable 1 is discrete and has the value 0\.5"):
        log_values(circuit, np.array([[np.nan], [0.5], [1.0]]))
    assert log_values(circuit, np.zeros((3, 0))).shape == (0,)


@needs_public_circuits
@pytest.mark.parametrize("name", ["nltcs", "plants_rat"])
def test_public_circuits_agree_with_wide_numbers(name):
    circuit = public_circuit(name)
    x = np.random.default_rng(1).integers(0, 3, (circuit.n_variables, 50))
    assert log_values(circuit, x) == pytest.approx(node_log_values(circuit, x)[-1], rel=1e-12)


def test_kernels_are_compiled_for_one_type_of_rows():
    for dtype in (np.uint8, np.int8, np.int64, np.float32, np.float64):
        for n_rows in (1, 20):
            log_values(chain(3, 0.5), np.zeros((3, n_rows), dtype))
    assert len(root_log_values_by_block.signatures) <= 1
    assert len(root_log_values_by_row.signatures) <= 1


def test_codes_may_count():
    """Rows of whole numbers as codes, also of a numeric variable."""
    circuit = mixture([[(POISSON, [3.0]), categorical(0.5, 0.5)]])
    x = np.array([[0, 3, 9, 7, 200], [0, 1, 2, 0, 1]], np.uint8)
    assert np.array_equal(log_values(circuit, x), log_values(circuit, x.astype(float)))
