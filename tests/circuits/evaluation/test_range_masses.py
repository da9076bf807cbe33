"""Masses of ranges of every numeric leaf, by adding up or integrating what the leaf says of single numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad

from learners.circuits.evaluation.evaluate import log_values
from learners.circuits.evaluation.range_masses import log_normal_mass, log_range_masses
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


def test_everything_is_one_and_nothing_zero():
    for kind, parameters, *_ in [*DENSITIES, *MASSES]:
        assert mass(leaf(kind, parameters), -math.inf, math.inf) == pytest.approx(1.0, rel=1e-12)
        assert mass(leaf(kind, parameters), 3.0, 2.0) == 0.0
    assert mass(leaf(POISSON, [3.5]), 2.2, 2.8) == 0.0
    assert mass(leaf(ROUNDED, [1.0, 2.0, 0.5, 0.25]), 0.3, 0.7) == 0.0


def test_far_tails_keep_their_digits():
    assert log_normal_mass(40.0, 41.0) == pytest.approx(log_normal_mass(-41.0, -40.0), rel=1e-14)
    assert log_normal_mass(40.0, math.inf) == pytest.approx(-804.608442, abs=1e-6)
