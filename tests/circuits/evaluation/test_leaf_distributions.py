"""Numeric leaves against their definitions, whole and cut to a range."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.special import log_ndtr

from learners.circuits.em.em import ExpectedCounts, batch_em
from learners.circuits.errors import InvalidCircuit
from learners.circuits.evaluation.density_kernels import normal_interval_moments
from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.evaluation.leaf_distributions import (
    density_variables,
    leaf_mode,
    leaf_modes_of_variable,
    leaf_moments,
    leaf_range_log_probabilities,
    normal_interval_log_probability,
    truncated_leaf_moments,
    truncated_leaf_quantiles,
)
from learners.circuits.kernels import EXPONENTIAL, GAUSSIAN, LOG_NORMAL, POISSON, QUANTILE, ROUNDED, STUDENT
from learners.circuits.queries.array_answers import moments, sample
from learners.circuits.structures.text import from_json, parse_text, to_json, to_text
from tests.naive import leaves as naive
from tests.naive.map import flat_circuit, mixture
from tests.naive.node_logs import node_log_values

STEPS = {STUDENT: (None,), ROUNDED: (0.5,), LOG_NORMAL: (0.0, 0.25), QUANTILE: (0.0, 0.25)}
KINDS = [(kind, step) for kind, steps in STEPS.items() for step in steps]


def parameters_of(kind, step, rng):
    """Parameters of a leaf; of a grid whose numbers are multiples of the step."""
    centre, spread = rng.uniform(-1, 1.5), rng.uniform(0.2, 0.8)
    if kind == STUDENT:
        return [centre, spread, rng.uniform(3, 9)]
    if kind != QUANTILE:
        return [centre, spread, step, 0.0]
    n = int(rng.integers(2, 6))
    places, quantiles = np.cumsum(rng.uniform(0.2, 2, n)), np.cumsum(rng.uniform(0.2, 1, n)) - 1.0
    return [centre, spread, step, 0.0, n, *places, *quantiles]


def alone(kind, *of_leaves):
    """A circuit over one column: a sum of leaves with equal weights, or one leaf."""
    nodes, n = [(kind, 0, parameters) for parameters in of_leaves], len(of_leaves)
    return flat_circuit([*nodes, ("sum", [(i, 1 / n) for i in range(n)])] if n > 1 else nodes, [0])


@settings(max_examples=40)
@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_values_are_differences_of_the_distribution_function(which, seed):
    kind, step = which
    rng = np.random.default_rng(seed)
    p = parameters_of(kind, step, rng)
    x = rng.uniform(0.01, 5, 6)
    expected = [naive.value(kind, np.array(p), each) for each in x]
    wide = node_log_values(alone(kind, p), x[np.newaxis])[0]
    assert np.exp(log_values(alone(kind, p), x[np.newaxis])) == pytest.approx(expected, rel=2e-4, abs=1e-8)
    assert log_values(alone(kind, p), x[np.newaxis]) == pytest.approx(wide, rel=1e-12, abs=1e-12)


@settings(max_examples=40)
@given(st.floats(-60, 60), st.floats(1e-5, 30))
def test_a_cell_keeps_its_digits_however_far_out(low, width):
    """Against logarithms of the distribution function of the same tail."""
    high = low + width
    a, b = (-high, -low) if low + high > 0 else (low, high)
    expected = log_ndtr(b) + math.log1p(-math.exp(log_ndtr(a) - log_ndtr(b)))
    log, mean, square = normal_interval_moments(low, high)
    assert log == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert low - 1e-6 <= mean <= high + 1e-6
    assert square >= mean * mean - 1e-6


def test_moments_of_one_row_and_of_many_are_the_same():
    for kind, step in KINDS:
        rng = np.random.default_rng(kind)
        circuit = alone(kind, parameters_of(kind, step, rng), parameters_of(kind, step, rng))
        own = leaf_moments(circuit)[:2]
        mean = own[:, 0].mean()
        variance = (own[:, 1] + (own[:, 0] - mean) ** 2).mean()
        for n in (1, 40):
            found = moments(circuit, np.full((1, n), np.nan), [0])
            assert found[0][:, 0] == pytest.approx(np.full(n, mean), rel=1e-12)
            assert found[1][:, 0] == pytest.approx(np.full(n, variance), rel=1e-12)


@settings(max_examples=30)
@given(st.sampled_from(KINDS), st.integers(0, 2**32 - 1))
def test_no_number_is_more_probable_than_the_mode(which, seed):
    kind, step = which
    circuit = alone(kind, parameters_of(kind, step, np.random.default_rng(seed)))
    (peak,) = leaf_modes_of_variable(circuit, 0)
    tried = np.linspace(-4, 12, 3001)
    best = log_values(circuit, np.array([[peak]]))[0]
    assert best >= log_values(circuit, tried[np.newaxis]).max() - 1e-6


@pytest.mark.parametrize("which", KINDS)
def test_draws_follow_the_distribution(which):
    """Kolmogorov: the largest difference of 4,000 draws from the distribution function exceeds 0.031 once in 1,000 times."""
    kind, step = which
    p = parameters_of(kind, step, np.random.default_rng(3))
    drawn = sample(alone(kind, p), np.array([[np.nan]]), 4000, 1)[0][:, 0]
    if step:
        assert ((drawn / step) == np.floor(drawn / step)).all()
        drawn = drawn + step / 2
    # At the far end of each cell, or everywhere.
    at = np.unique(drawn)
    empirical = np.searchsorted(np.sort(drawn), at, side="right") / drawn.size
    assert np.abs(empirical - [naive.below(kind, np.array(p), x) for x in at]).max() < 0.031


@pytest.mark.parametrize("which", KINDS)
def test_em_never_loses_likelihood_and_finds_the_parameters(which):
    kind, step = which
    truth = parameters_of(kind, step, np.random.default_rng(11))
    x = sample(alone(kind, truth), np.array([[np.nan]]), 6000, 2)[0].T
    circuit = alone(kind, [truth[0] + 0.7, 2 * truth[1], *truth[2:]])
    before = -np.inf
    for _ in range(25):
        counts = ExpectedCounts(circuit)
        counts.update(x)
        # Each row is rounded to 2^-16.
        assert counts.log_likelihood >= before - x.size * 2.0**-16
        before, circuit = counts.log_likelihood, counts.maximised()
    assert circuit.leaf_parameters[:2] == pytest.approx(truth[:2], abs=0.08)
    assert circuit.leaf_parameters[2:].tolist() == truth[2:]


def test_expected_counts_of_a_rounded_leaf_are_those_of_its_cells():
    """Σ z and Σ z² are means of a truncated normal distribution (scipy's)."""
    x = np.array([[0.0, 1.0, 1.0, 3.0]])
    counts = ExpectedCounts(alone(ROUNDED, [0.6, 1.3, 1.0, 0.0]))
    counts.update(x)
    ends = [((each - 0.5 - 0.6) / 1.3, (each + 0.5 - 0.6) / 1.3) for each in x[0]]
    expected = [sum(stats.truncnorm(*end).moment(order) for end in ends) for order in (1, 2)]
    assert counts.expected()[2][0] == pytest.approx([4, *expected], abs=1e-6)


def test_far_rows_weigh_less_in_a_student_leaf():
    x = np.concatenate([np.random.default_rng(0).normal(size=400), np.full(10, 1e4)])[np.newaxis]
    student = batch_em(alone(STUDENT, [0.0, 1.0, 4.0]), x, 40, laplace=0)
    gaussian = batch_em(alone(GAUSSIAN, [0.0, 1.0]), x, 40, laplace=0)
    assert abs(student.leaf_parameters[0]) < 0.2
    assert student.leaf_parameters[1] < 2
    assert gaussian.leaf_parameters[0] > 100


def test_text_and_json_give_the_leaves_back():
    for kind, step in KINDS:
        circuit = alone(kind, parameters_of(kind, step, np.random.default_rng(1)))
        assert from_json(to_json(circuit)) == circuit
        assert parse_text(to_text(circuit).splitlines()) == circuit


def test_only_leaves_without_a_step_are_densities():
    circuit = mixture([[(LOG_NORMAL, [0, 1, 0.5, 0]), (LOG_NORMAL, [0, 1, 0, 0])]])
    assert density_variables(circuit).tolist() == [1]
    assert log_values(circuit, np.array([[0.0], [np.nan]]))[0] < 0
    assert log_values(circuit, np.array([[np.nan], [-1.0]]))[0] == -np.inf


@pytest.mark.parametrize(
    ("kind", "parameters", "reason"),
    [
        (STUDENT, [0, 1, 2], "degrees of freedom that are not above two"),
        (ROUNDED, [0, 1, 0, 0], "has an invalid step or grid"),
        (LOG_NORMAL, [0, 1, -1, 0], "has an invalid step or grid"),
        (LOG_NORMAL, [0, 0, 0, 0], "a standard deviation that is not positive"),
        (QUANTILE, [0, 1, 0, 0, 2, 1, 1, 0, 1], "knots that do not ascend"),
        (QUANTILE, [0, 1, 0, 0, 3, 1, 2, 0, 1], "has the wrong number of parameters for its kind"),
        (ROUNDED, [0, 1], "has the wrong number of parameters for its kind"),
    ],
)
def test_a_leaf_with_wrong_parameters_is_refused(kind, parameters, reason):
    with pytest.raises(InvalidCircuit, match=reason):
        alone(kind, [float(each) for each in parameters])


KNOTS = [3.0, 0.0, 2.0, 10.0, -1.0, 0.5, 2.0]
DENSITIES = [
    (GAUSSIAN, [1.0, 2.0]),
    (EXPONENTIAL, [0.7]),
    (STUDENT, [1.0, 2.0, 4.0]),
    (LOG_NORMAL, [0.3, 0.5, 0.0, 0.0]),
    (QUANTILE, [0.2, 0.8, 0.0, 0.0, *KNOTS]),
]
MASSES = [
    (POISSON, [3.5]),
    (POISSON, [300.0]),
    (ROUNDED, [1.0, 2.0, 0.5, 0.25]),
    (LOG_NORMAL, [0.3, 0.5, 0.5, 0.0]),
    (QUANTILE, [0.2, 0.8, 0.5, 0.0, *KNOTS]),
]


def mass(circuit, low, high):
    (found,) = leaf_range_log_probabilities(circuit, np.array([0]), low, high)
    return math.exp(found)


RANGES = [
    (0.5, 3.0),
    (-4.0, 0.25),
    (1.5, 1.75),
    (-math.inf, 1.0),
    (6.5, math.inf),
    (-math.inf, math.inf),
    (2.0, 2.0 + 1e-5),
]


@pytest.mark.parametrize(("kind", "parameters"), DENSITIES)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_of_a_density_its_probability_and_moments_in_a_range_are_integrals(kind, parameters, low, high):
    circuit = alone(kind, parameters)
    reach = 60.0 if kind != STUDENT else math.inf
    ends = [x for x in (max(low, -reach), 0.0, 2.0, 10.0, min(high, reach)) if low <= x <= high]
    centre = max(low, min(high, 2.0))

    def integral(power):
        density = lambda x: math.exp(log_values(circuit, [[x]])[0]) * (x - centre) ** power  # noqa: E731
        parts = itertools.pairwise(ends)
        return sum(quad(density, a, b, epsabs=1e-14, epsrel=1e-11, limit=400)[0] for a, b in parts)

    total = integral(0)
    mean = integral(1) / total
    assert mass(circuit, low, high) == pytest.approx(total, rel=1e-8, abs=1e-11)
    found = truncated_leaf_moments(kind, np.array(parameters), low, high)
    assert found[0] - centre == pytest.approx(mean, rel=1e-6)
    assert found[1] == pytest.approx(integral(2) / total - mean**2, rel=1e-5)
    numbers = truncated_leaf_quantiles(kind, np.array(parameters), low, high, np.linspace(1e-9, 1 - 1e-9, 7))
    masses = [mass(circuit, low, x) / mass(circuit, low, high) for x in numbers.tolist()]
    assert masses == pytest.approx(np.linspace(0.0, 1.0, 7).tolist(), abs=1e-7)


def recorded_numbers(kind, parameters, low, high):
    """Those of the leaf's grid that lie in a range."""
    step, origin = (1.0, 0.0) if kind == POISSON else parameters[2:4]
    numbers = origin + step * np.arange(-2000, 2000)
    return numbers[(numbers >= low) & (numbers <= high)]


@pytest.mark.parametrize(("kind", "parameters"), MASSES)
@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 3.0), (1.0, 1.0), (-4.0, 280.0), (290.0, 310.0), (2.6, 4.1), (2.2, 2.2), (-math.inf, math.inf)],
)
def test_of_masses_their_probability_and_moments_in_a_range_are_sums(kind, parameters, low, high):
    inside = recorded_numbers(kind, parameters, low, high)
    logs = log_values(alone(kind, parameters), [inside])
    assert mass(alone(kind, parameters), low, high) == pytest.approx(np.exp(logs).sum(), rel=1e-10, abs=1e-300)
    found = truncated_leaf_moments(kind, np.array(parameters), low, high)
    if logs.max(initial=-math.inf) == -math.inf:
        assert found == (0.0, 0.0)
        return
    p = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    assert found == pytest.approx((p @ inside, p @ (inside - p @ inside) ** 2), rel=1e-9)
    u = np.random.default_rng(0).random(400)
    drawn = truncated_leaf_quantiles(kind, np.array(parameters), low, high, u)
    assert set(drawn.tolist()) <= set(inside.tolist())
    assert drawn.mean() == pytest.approx(found[0], abs=5 * math.sqrt(found[1] / 400) + 1e-12)


@pytest.mark.parametrize(("kind", "parameters"), [*DENSITIES, *MASSES])
def test_without_ends_it_is_the_whole_leaf_and_without_length_nothing(kind, parameters):
    circuit = alone(kind, parameters)
    found = truncated_leaf_moments(kind, np.array(parameters), -math.inf, math.inf)
    assert found == pytest.approx(leaf_moments(circuit)[0].tolist(), rel=1e-7)
    assert mass(circuit, -math.inf, math.inf) == pytest.approx(1.0, rel=1e-12)
    assert mass(circuit, 3.0, 2.0) == 0.0


@pytest.mark.parametrize(("kind", "parameters"), [*DENSITIES, *MASSES])
@pytest.mark.parametrize(("low", "high"), [*RANGES, (0.0, 0.1), (-3.0, -1.0)])
def test_no_number_in_a_range_is_denser_than_its_mode(kind, parameters, low, high):
    numbers = np.linspace(max(low, -30.0), min(high, 30.0), 2001)
    if (kind, parameters) in MASSES:
        numbers = recorded_numbers(kind, parameters, low, high)
    logs = log_values(alone(kind, parameters), [numbers]) if numbers.size else np.array([-math.inf])
    mode = leaf_mode(kind, np.array(parameters), low, high)
    if math.isnan(mode):
        assert logs.max() == -math.inf
        return
    assert low <= mode <= high
    assert log_values(alone(kind, parameters), [[mode]])[0] >= logs.max() - 1e-12


def test_far_tails_keep_their_digits():
    assert normal_interval_log_probability(40.0, 41.0) == pytest.approx(
        normal_interval_log_probability(-41.0, -40.0), rel=1e-14
    )
    assert normal_interval_log_probability(40.0, math.inf) == pytest.approx(-804.608442, abs=1e-6)
