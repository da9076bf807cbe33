"""Densities of numeric leaves, also of normal ones behind a transform of the column, and the masses of cells of a grid."""

from __future__ import annotations

import math

import numpy as np

from learners.circuits.kernels import (
    GAUSSIAN,
    KNOTS,
    LOG_NORMAL,
    N_KNOTS,
    ORIGIN,
    POISSON,
    QUANTILE,
    ROUNDED,
    STEP,
    STUDENT,
)
from learners.kernels.jit import inner_kernel, kernel

# Beyond, sums and products of the terms leave double precision.
MOST_EVENTS = 1e300
# Below, a factorial is told to all digits by its logarithm; above, by Stirling's series.
FEW_EVENTS = 16
HALF_LOG_2_PI = 0.5 * math.log(2.0 * math.pi)
ROOT_2 = math.sqrt(2.0)
# Cells narrower than so many standard deviations have the density of their middle throughout.
NARROW = 1e-6
# Beyond, a continued fraction of so many terms has all digits of Mills' ratio.
FAR, TERMS = 8.0, 24
# What stands for the transform of what lies below the support; its square is a double.
BELOW = -1e9


@inner_kernel
def segment_of(extras, at, x, offset):
    """The segment between two knots that x is in, by the knots' places (offset 0) or by their normal quantiles (1)."""
    n = np.int64(extras[at + N_KNOTS])
    first = at + KNOTS + offset * n
    low, high = 0, n - 1
    while high - low > 1:
        middle = (low + high) // 2
        if x < extras[first + middle]:
            high = middle
        else:
            low = middle
    return low


@kernel
def warp(kind, extras, at, x):
    """The transform of x, and the logarithm of its slope there; below the support BELOW and -inf."""
    if kind == LOG_NORMAL:
        if x <= 0.0:
            return BELOW, -np.inf
        log = np.log(x)
        return log, -log
    if kind == QUANTILE:
        n = np.int64(extras[at + N_KNOTS])
        i = at + KNOTS + segment_of(extras, at, x, 0)
        slope = (extras[i + n + 1] - extras[i + n]) / (extras[i + 1] - extras[i])
        return extras[i + n] + slope * (x - extras[i]), np.log(slope)
    return x, 0.0


@kernel
def unwarp(kind, extras, at, z):
    """The number whose transform is z."""
    if kind == LOG_NORMAL:
        return np.exp(z)
    if kind == QUANTILE:
        n = np.int64(extras[at + N_KNOTS])
        i = at + KNOTS + segment_of(extras, at, z, 1)
        return extras[i] + (z - extras[i + n]) * (extras[i + 1] - extras[i]) / (extras[i + n + 1] - extras[i + n])
    return z


@kernel
def cell_of(extras, at, x):
    """The number of the grid whose cell x is in."""
    step, origin = extras[at + STEP], extras[at + ORIGIN]
    return origin + step * np.floor((x - origin) / step + 0.5)


@inner_kernel
def mills(z):
    """(1 - Φ(z)) / φ(z) for z not below zero."""
    if z < FAR:
        return 0.5 * math.erfc(z / ROOT_2) * np.exp(0.5 * z * z + HALF_LOG_2_PI)
    below = z
    for n in range(TERMS, 0, -1):
        below = z + n / below
    return 1.0 / below


@kernel
def normal_cell(low, high):
    """Logarithm of the standard normal mass from low to high, and the means of z and z² there."""
    sign = 1.0
    if low + high < 0.0:
        low, high, sign = -high, -low, -1.0
    if high - low < NARROW:
        z = 0.5 * (low + high)
        return -0.5 * z * z - HALF_LOG_2_PI + np.log(high - low), sign * z, z * z
    if low < 0.0:
        mass = 0.5 * (math.erf(high / ROOT_2) - math.erf(low / ROOT_2))
        at_low, at_high = np.exp(-0.5 * low * low - HALF_LOG_2_PI), np.exp(-0.5 * high * high - HALF_LOG_2_PI)
        return np.log(mass), sign * (at_low - at_high) / mass, 1.0 + (low * at_low - high * at_high) / mass
    # In units of the density at the lower end, so that nothing underflows.
    falls = np.exp(-0.5 * (high - low) * (high + low))
    mass = mills(low) - mills(high) * falls
    log = -0.5 * low * low - HALF_LOG_2_PI + np.log(mass)
    return log, sign * (1.0 - falls) / mass, 1.0 + (low - high * falls) / mass


@inner_kernel
def standard_cell(kind, a, b, extras, at, x):
    """The ends of the cell of x, as standard normal numbers of the leaf."""
    middle, half = cell_of(extras, at, x), 0.5 * extras[at + STEP]
    low, _ = warp(kind, extras, at, middle - half)
    high, _ = warp(kind, extras, at, middle + half)
    return (low - a) / b, (high - a) / b


@kernel
def log_warped(kind, a, b, extras, at, x):
    """Logarithm of the density at x of a leaf from ROUNDED on; where there is a grid, of the mass of the cell of x."""
    if extras[at + STEP] > 0.0:
        low, high = standard_cell(kind, a, b, extras, at, x)
        if not high > low:
            return -np.inf
        log, _, _ = normal_cell(low, high)
        return log
    z, log_slope = warp(kind, extras, at, x)
    z = (z - a) / b
    return -0.5 * z * z - np.log(b) - HALF_LOG_2_PI + log_slope


@inner_kernel
def standard_moments(kind, a, b, extras, at, x):
    """Mean of z and of z² of what is observed as x, where z is the standard normal number of the leaf."""
    if extras[at + STEP] > 0.0:
        low, high = standard_cell(kind, a, b, extras, at, x)
        if not high > low:
            return 0.0, 0.0
        _, mean, square = normal_cell(low, high)
        return mean, square
    z, _ = warp(kind, extras, at, x)
    z = (z - a) / b
    return z, z * z


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
