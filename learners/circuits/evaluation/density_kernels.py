# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Densities of numeric leaves."""

from __future__ import annotations

import math

import numpy as np

from learners.circuits.evaluation.warp_kernels import log_warped
from learners.circuits.kernels import GAUSSIAN, POISSON, ROUNDED, STUDENT
from learners.kernels.jit import kernel

# Beyond, sums and products of the terms leave double precision.
MOST_EVENTS = 1e300
# Below, a factorial is told to all digits by its logarithm; above, by Stirling's series.
FEW_EVENTS = 16


@kernel
def log_density(kind, a, b, extras, at, x):
    """Logarithm of the density, or probability, of a numeric leaf with parameters a, b and extras[at], … at x; 0 if x is missing."""
    if np.isnan(x):
        return 0.0
    if kind == GAUSSIAN:
        z = (x - a) / b
        return -0.5 * z * z - np.log(b) - 0.5 * np.log(2.0 * np.pi)
    if kind >= ROUNDED:
        return log_warped(np.int64(kind), a, b, extras, at, x)
    if kind == STUDENT:
        z, freedom = (x - a) / b, extras[at]
        constant = math.lgamma(0.5 * (freedom + 1.0)) - math.lgamma(0.5 * freedom) - 0.5 * np.log(np.pi * freedom)
        return constant - np.log(b) - 0.5 * (freedom + 1.0) * np.log1p(z * z / freedom)
    if x < 0:
        return -np.inf
    if kind == POISSON:
        return log_poisson(a, x)
    return np.log(a) - a * x


@kernel
def log_poisson(rate, n):
    """Logarithm of the probability of n events, to all digits where n log(rate) - rate - log n! would lose them.

    References: Loader (2000), Fast and accurate computation of binomial probabilities.
    """
    if n != np.floor(n) or n > MOST_EVENTS:
        return -np.inf
    if n < FEW_EVENTS:
        return n * np.log(rate) - rate - math.lgamma(n + 1.0)
    square = n * n
    stirling = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / n
    return -stirling - deviance(n, rate) - 0.5 * np.log(2.0 * np.pi * n)


@kernel
def deviance(x, mean):
    """What n log(n / mean) + mean - n is for n = x, by its series where the terms would cancel."""
    if abs(x - mean) >= 0.1 * (x + mean):
        return x * np.log(x / mean) + mean - x
    v = (x - mean) / (x + mean)
    total, term, j, before = (x - mean) * v, 2.0 * x * v, 1.0, np.inf
    while total != before:
        before = total
        term *= v * v
        j += 2.0
        total += term / j
    return total
