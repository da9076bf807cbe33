"""Masses of ranges of every numeric leaf, by adding up or integrating what the leaf says of single numbers."""

import math

import numpy as np
import pytest
from scipy.integrate import quad

from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.evaluation.leaf_shapes import leaf_moments, mode_of
from learners.circuits.evaluation.truncated_leaves import (
    log_normal_mass,
    log_range_masses,
    truncated_moments,
    truncated_numbers,
)
from learners.circuits.kernels import EXPONENTIAL, GAUSSIAN, LOG_NORMAL, POISSON, QUANTILE, ROUNDED, STUDENT
from tests.naive.map import flat_circuit

KNOTS = [3.0, 0.0, 2.0, 10.0, -1.0, 0.5, 2.0]
DENSITIES = [
    (GAUSSIAN, [1.0, 2.0]),
    (EXPONENTIAL, [0.7]),
    (STUDENT, [1.0, 2.0, 4.0]),
    (LOG_NORMAL, [0.3, 0.5, 0.0, 0.0]),
    (QUANTILE, [0.2, 0.8, 0.0, 0.0, *KNOTS]),
]
MASSES = [
    (POISSON, [3.5], 1.0),
    (POISSON, [300.0], 1.0),
    (ROUNDED, [1.0, 2.0, 0.5, 0.25], 0.5),
    (LOG_NORMAL, [0.3, 0.5, 0.5, 0.0], 0.5),
    (QUANTILE, [0.2, 0.8, 0.5, 0.0, *KNOTS], 0.5),
]


def leaf(kind, parameters):
    return flat_circuit([(kind, 0, parameters), ("sum", [(0, 1.0)])], [0])


def mass(circuit, low, high):
    (found,) = log_range_masses(circuit, np.array([0]), low, high)
    return math.exp(found)


@pytest.mark.parametrize(("kind", "parameters"), DENSITIES)
@pytest.mark.parametrize(("low", "high"), [(0.5, 3.0), (-4.0, 0.25), (1.5, 1.75), (-math.inf, 1.0), (2.5, math.inf)])
def test_of_a_density_its_integral(kind, parameters, low, high):
    circuit = leaf(kind, parameters)
    density = lambda x: math.exp(log_values(circuit, [[x]])[0])  # noqa: E731
    breaks = [x for x in (low, 0.0, 2.0, 10.0, high) if low <= x <= high]
    parts = [quad(density, a, b, epsabs=1e-13, limit=200)[0] for a, b in zip(breaks, breaks[1:], strict=False)]
    assert mass(circuit, low, high) == pytest.approx(sum(parts), rel=1e-8, abs=1e-11)


@pytest.mark.parametrize(("kind", "parameters", "step"), MASSES)
@pytest.mark.parametrize(("low", "high"), [(0.0, 3.0), (1.0, 1.0), (-4.0, 280.0), (290.0, 310.0), (2.6, 4.1)])
def test_of_probabilities_their_sum(kind, parameters, step, low, high):
    circuit = leaf(kind, parameters)
    origin = parameters[3] if kind != POISSON else 0.0
    numbers = origin + step * np.arange(-2000, 2000)
    inside = numbers[(numbers >= low) & (numbers <= high)]
    assert mass(circuit, low, high) == pytest.approx(np.exp(log_values(circuit, [inside])).sum(), rel=1e-10, abs=1e-300)


RANGES = [(0.5, 3.0), (-4.0, 0.25), (1.5, 1.75), (-math.inf, 1.0), (6.5, math.inf), (2.0, 2.0 + 1e-5)]


@pytest.mark.parametrize(("kind", "parameters"), DENSITIES)
@pytest.mark.parametrize(("low", "high"), RANGES)
def test_moments_in_a_range_are_integrals(kind, parameters, low, high):
    circuit = leaf(kind, parameters)
    reach = 60.0 if kind != STUDENT else math.inf
    ends = [x for x in (max(low, -reach), 0.0, 2.0, 10.0, min(high, reach)) if low <= x <= high]
    centre = max(low, min(high, 2.0))

    def integral(power):
        density = lambda x: math.exp(log_values(circuit, [[x]])[0]) * (x - centre) ** power  # noqa: E731
        parts = zip(ends, ends[1:], strict=False)
        return sum(quad(density, a, b, epsabs=1e-14, epsrel=1e-11, limit=400)[0] for a, b in parts)

    total = integral(0)
    mean = integral(1) / total
    found = truncated_moments(kind, np.array(parameters), low, high)
    assert found[0] - centre == pytest.approx(mean, rel=1e-6)
    assert found[1] == pytest.approx(integral(2) / total - mean**2, rel=1e-5)
    numbers = truncated_numbers(kind, np.array(parameters), low, high, np.linspace(1e-9, 1 - 1e-9, 7))
    masses = [mass(circuit, low, x) / mass(circuit, low, high) for x in numbers.tolist()]
    assert masses == pytest.approx(np.linspace(0.0, 1.0, 7).tolist(), abs=1e-7)


@pytest.mark.parametrize(("kind", "parameters", "step"), MASSES)
@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 3.0), (-4.0, 280.0), (290.0, 310.0), (2.6, 4.1), (-math.inf, math.inf)]
)
def test_moments_of_recorded_numbers_are_sums(kind, parameters, step, low, high):
    circuit = leaf(kind, parameters)
    origin = parameters[3] if kind != POISSON else 0.0
    numbers = origin + step * np.arange(-2000, 2000)
    inside = numbers[(numbers >= low) & (numbers <= high)]
    logs = log_values(circuit, [inside])
    found = truncated_moments(kind, np.array(parameters), low, high)
    if logs.max() == -math.inf:
        assert found == (0.0, 0.0)
        return
    p = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    assert found == pytest.approx((p @ inside, p @ (inside - p @ inside) ** 2), rel=1e-9)
    u = np.random.default_rng(0).random(400)
    drawn = truncated_numbers(kind, np.array(parameters), low, high, u)
    assert set(drawn.tolist()) <= set(inside.tolist())
    assert drawn.mean() == pytest.approx(found[0], abs=5 * math.sqrt(found[1] / 400) + 1e-12)


@pytest.mark.parametrize(("kind", "parameters"), [*DENSITIES, *(own[:2] for own in MASSES)])
def test_without_ends_the_moments_are_those_of_the_leaf(kind, parameters):
    found = truncated_moments(kind, np.array(parameters), -math.inf, math.inf)
    assert found == pytest.approx(leaf_moments(leaf(kind, parameters))[0].tolist(), rel=1e-7)


@pytest.mark.parametrize(("kind", "parameters"), [*DENSITIES, *(own[:2] for own in MASSES)])
@pytest.mark.parametrize(("low", "high"), [*RANGES, (0.0, 0.1), (-3.0, -1.0)])
def test_no_number_in_a_range_is_denser_than_its_mode(kind, parameters, low, high):
    numbers = np.linspace(max(low, -30.0), min(high, 30.0), 2001)
    if kind == POISSON or parameters[2:3] == [0.5]:
        step, origin = (1.0, 0.0) if kind == POISSON else parameters[2:4]
        numbers = origin + step * np.arange(-200, 200)
        numbers = numbers[(numbers >= low) & (numbers <= high)]
    logs = log_values(leaf(kind, parameters), [numbers]) if numbers.size else np.array([-math.inf])
    mode = mode_of(kind, np.array(parameters), low, high)
    if math.isnan(mode):
        assert logs.max() == -math.inf
        return
    assert low <= mode <= high
    assert log_values(leaf(kind, parameters), [[mode]])[0] >= logs.max() - 1e-12


def test_everything_is_one_and_nothing_zero():
    for kind, parameters, *_ in [*DENSITIES, *MASSES]:
        assert mass(leaf(kind, parameters), -math.inf, math.inf) == pytest.approx(1.0, rel=1e-12)
        assert mass(leaf(kind, parameters), 3.0, 2.0) == 0.0
    assert mass(leaf(POISSON, [3.5]), 2.2, 2.8) == 0.0
    assert mass(leaf(ROUNDED, [1.0, 2.0, 0.5, 0.25]), 0.3, 0.7) == 0.0


def test_far_tails_keep_their_digits():
    assert log_normal_mass(40.0, 41.0) == pytest.approx(log_normal_mass(-41.0, -40.0), rel=1e-14)
    assert log_normal_mass(40.0, math.inf) == pytest.approx(-804.608442, abs=1e-6)
