"""Draws of a posterior: answers of all of them, and what they say of a number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.circuits.bayesian.circuit_draw_kernels import exp_nonpositive
from learners.circuits.bayesian.circuit_draws import CircuitDraws, log_mean_exp, summarise_draws
from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence, InvalidEvidence
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.kernels import GAUSSIAN
from learners.circuits.queries import array_answers as answers
from learners.errors import InvalidParameter
from learners.kernels.jit import kernel
from tests.circuits.bayesian.problems import COLUMNS, draws_of
from tests.naive.map import mixture

DISCRETE, NUMERIC = [1, 4, 6], [0, 2, 3, 5]


@pytest.fixture(scope="module")
def drawn():
    return draws_of()


def each(draws, ask):
    """What every draw by itself says, the draws last."""
    return np.stack([ask(draws.of(draw)) for draw in range(draws.n_draws)], axis=-1)


def test_every_answer_is_that_of_each_circuit(drawn):
    draws, x = drawn
    assert np.isnan(x).any()
    of_each = each(draws, lambda c: log_values(c, x))
    assert np.allclose(draws.log_likelihoods(x), of_each, rtol=0, atol=1e-12)
    logs, found = draws.marginals(x, DISCRETE)
    assert np.allclose(logs, of_each, atol=1e-12)
    for i, p in enumerate(found):
        assert np.allclose(p, each(draws, lambda c, i=i: answers.marginals(c, x, DISCRETE)[i]), atol=1e-13)
    _, *found = draws.moments(x, NUMERIC)
    for i, (own, rtol) in enumerate(zip(found, (1e-11, 1e-10), strict=True)):
        of_each = each(draws, lambda c, i=i: answers.moments(c, x, NUMERIC)[i])
        assert np.allclose(own, of_each, rtol=rtol, atol=1e-12)
    few = np.ascontiguousarray(x[:, :5])
    of_each = each(draws, lambda c: answers.conditional(c, few, [4, 1]).reshape(5, -1))
    assert np.allclose(draws.conditional(few, [4, 1])[1], of_each, atol=1e-13)
    of_each = each(draws, lambda c: answers.class_posterior(c, x, 1))
    assert np.allclose(draws.class_posteriors(x, 1), of_each, atol=1e-13), "which do not see the class"


def test_what_is_too_improbable_for_linear_space_is_told_all_the_same(drawn):
    draws, x = drawn
    far = x.copy()
    far[0, :4] = [1e8, -1e12, 1e30, np.nan]
    assert np.allclose(draws.log_likelihoods(far), each(draws, lambda c: log_values(c, far)), rtol=1e-9)
    assert np.isfinite(draws.marginals(far, DISCRETE)[1][0]).all()


def test_products_of_small_numbers_are_evaluated_in_logarithms():
    """No product has leaves that are both near a row: all values of the root are below 1e-300."""
    near, far = (GAUSSIAN, [0.0, 1.0]), (GAUSSIAN, [1000.0, 1.0])
    circuit = mixture([[near, far], [far, near]], [0.5, 0.5])
    parameter = np.repeat(circuit.leaf_parameters[:, np.newaxis], 2, axis=1)
    draws, x = CircuitDraws(circuit, np.full((2, 2), 0.5), parameter), np.zeros((2, 3))
    logs = draws.log_likelihoods(x)
    assert logs.max() < -1000
    assert np.allclose(logs, each(draws, lambda c: log_values(c, x)), rtol=1e-12)


def test_impossible_evidence_is_named(drawn):
    draws, x = drawn
    below = x[:, :3].copy()
    below[5, 2] = -1.0  # no exponential leaf has it
    assert (draws.log_likelihoods(below)[2] == -np.inf).all()
    with pytest.raises(ImpossibleEvidence, match="row 2") as raised:
        draws.marginals(below, DISCRETE)
    assert raised.value.row == 2
    posterior = draws.class_posteriors(below, 1)
    nothing = draws.class_posteriors(np.full((7, 1), np.nan), 1)
    assert np.allclose(posterior[2], nothing[0])
    assert not np.allclose(posterior[0], nothing[0])


def test_bytes_are_rows_too():
    draws, x = draws_of(3, 20, columns=(COLUMNS[1], COLUMNS[6]))
    codes = np.where(np.isnan(x), 255, x).astype(np.uint8)
    assert np.array_equal(draws.log_likelihoods(codes), draws.log_likelihoods(x))


@given(st.lists(st.floats(-750, 0), min_size=1, max_size=40))
def test_the_exponential_function_is_right_to_the_last_bits(numbers):
    y = np.array(numbers)
    out = np.empty_like(y)
    exponentials(y, out)
    wanted = np.exp(np.maximum(y, -708.0))
    assert (np.abs(out - wanted) <= 2 * np.spacing(wanted)).all()


@kernel
def exponentials(y, out):
    for i in range(y.size):
        out[i] = exp_nonpositive(y[i])


def test_draws_that_do_not_fit_and_levels_out_of_range_are_refused(drawn):
    draws, _ = drawn
    weight, parameter = draws.weight, draws.parameter
    for wrong, message in (
        ((weight[1:], parameter), "for this circuit"),
        ((weight[:, 1:], parameter), "as many as the draws of leaves"),
        ((weight[:, :0], parameter[:, :0]), "at least one"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            CircuitDraws(draws.circuit, *wrong)
    for level in (0.0, 1.0, float("nan")):
        with pytest.raises(InvalidParameter, match="above 0 and below 1"):
            summarise_draws(np.zeros((1, 5)), level=level)


def test_questions_of_the_wrong_kind_are_refused(drawn):
    draws, x = drawn
    for ask in (draws.marginals, draws.conditional):
        with pytest.raises(InvalidEvidence, match="Variable 0 is numeric"):
            ask(x, [0])
    with pytest.raises(InvalidEvidence, match="Variable 1 is discrete"):
        draws.moments(x, [1])
    assert isinstance(draws.of(0), Circuit)


def test_of_independent_draws_the_standard_error_is_that_of_a_mean():
    values = np.random.default_rng(0).normal(3.0, 2.0, (200, 400))
    told = summarise_draws(values, n_chains=2)
    assert told.mean == pytest.approx(values.mean(axis=1))
    assert told.standard_error.mean() == pytest.approx(2.0 / np.sqrt(400), rel=0.05)
    assert np.mean(np.abs(told.mean - 3.0) < 1.645 * told.standard_error) == pytest.approx(0.9, abs=0.07)
    assert np.quantile(values[0], [0.05, 0.95]) == pytest.approx([told.low[0], told.high[0]])


def test_chains_that_stay_apart_and_draws_that_hang_together_have_a_larger_standard_error():
    rng = np.random.default_rng(0)
    together = rng.normal(0, 1, 400)
    apart = together + np.repeat([-3.0, 3.0], 200)
    assert summarise_draws(apart, 2).standard_error > 2 * summarise_draws(together, 2).standard_error
    walk = np.zeros(1000)
    for i in range(1, 1000):
        walk[i] = 0.9 * walk[i - 1] + rng.normal()
    assert summarise_draws(walk).standard_error > 2 * summarise_draws(rng.permutation(walk)).standard_error
    alone = summarise_draws(np.array([[2.0]]))
    assert alone.mean == [2.0] and np.isnan(alone.standard_error).all()


def test_the_mean_of_logarithms_neither_overflows_nor_loses_zeros():
    logs = np.array([[1000.0, 1000.0], [-np.inf, 0.0], [-np.inf, -np.inf], [-2000.0, -2001.0]])
    wanted = [1000.0, np.log(0.5), -np.inf, -2000.0 + np.log((1 + np.exp(-1)) / 2)]
    assert log_mean_exp(logs) == pytest.approx(wanted)
