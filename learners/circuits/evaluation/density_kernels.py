"""Densities and moments of numeric leaves, including normal leaves of a transformed column, and masses of grid cells."""

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
def find_knot_segment(extras, at, x, offset):
    """Return the segment between two knots that contains x, by the knots' positions (offset 0) or by their normal
    quantiles (1).
    """
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
def transform_leaf_value(kind, extras, at, x):
    """Return the transform of x and the log of its slope there; below the support, BELOW and -inf."""
    if kind == LOG_NORMAL:
        if x <= 0.0:
            return BELOW, -np.inf
        log = np.log(x)
        return log, -log
    if kind == QUANTILE:
        n = np.int64(extras[at + N_KNOTS])
        i = at + KNOTS + find_knot_segment(extras, at, x, 0)
        slope = (extras[i + n + 1] - extras[i + n]) / (extras[i + 1] - extras[i])
        return extras[i + n] + slope * (x - extras[i]), np.log(slope)
    return x, 0.0


@kernel
def inverse_transform_leaf_value(kind, extras, at, z):
    """Return the number whose transform is z."""
    if kind == LOG_NORMAL:
        return np.exp(z)
    if kind == QUANTILE:
        n = np.int64(extras[at + N_KNOTS])
        i = at + KNOTS + find_knot_segment(extras, at, z, 1)
        return extras[i] + (z - extras[i + n]) * (extras[i + 1] - extras[i]) / (extras[i + n + 1] - extras[i + n])
    return z


@kernel
def nearest_grid_value(extras, at, x):
    """Return the grid value whose cell contains x."""
    step, origin = extras[at + STEP], extras[at + ORIGIN]
    return origin + step * np.floor((x - origin) / step + 0.5)


@inner_kernel
def mills_ratio(z):
    """Return (1 - Φ(z)) / φ(z) for nonnegative z."""
    if z < FAR:
        return 0.5 * math.erfc(z / ROOT_2) * np.exp(0.5 * z * z + HALF_LOG_2_PI)
    below = z
    for n in range(TERMS, 0, -1):
        below = z + n / below
    return 1.0 / below


@kernel
def normal_interval_moments(low, high):
    """Return the log of the standard normal mass from low to high, and the means of z and z² there."""
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
    mass = mills_ratio(low) - mills_ratio(high) * falls
    log = -0.5 * low * low - HALF_LOG_2_PI + np.log(mass)
    return log, sign * (1.0 - falls) / mass, 1.0 + (low - high * falls) / mass


@inner_kernel
def standardised_cell_bounds(kind, a, b, extras, at, x):
    """Return the ends of the cell of x, standardized for the leaf."""
    middle, half = nearest_grid_value(extras, at, x), 0.5 * extras[at + STEP]
    low, _ = transform_leaf_value(kind, extras, at, middle - half)
    high, _ = transform_leaf_value(kind, extras, at, middle + half)
    return (low - a) / b, (high - a) / b


@kernel
def transformed_log_density(kind, a, b, extras, at, x):
    """Return the log density at x of a leaf of kind ROUNDED or above; with a grid, the log mass of the cell of x."""
    if extras[at + STEP] > 0.0:
        low, high = standardised_cell_bounds(kind, a, b, extras, at, x)
        if not high > low:
            return -np.inf
        log, _, _ = normal_interval_moments(low, high)
        return log
    z, log_slope = transform_leaf_value(kind, extras, at, x)
    z = (z - a) / b
    return -0.5 * z * z - np.log(b) - HALF_LOG_2_PI + log_slope


@inner_kernel
def standardised_value_moments(kind, a, b, extras, at, x):
    """Return the means of z and z² given the observation x, where z is the leaf's standard normal variable."""
    if extras[at + STEP] > 0.0:
        low, high = standardised_cell_bounds(kind, a, b, extras, at, x)
        if not high > low:
            return 0.0, 0.0
        _, mean, square = normal_interval_moments(low, high)
        return mean, square
    z, _ = transform_leaf_value(kind, extras, at, x)
    z = (z - a) / b
    return z, z * z


@kernel
def numeric_leaf_log_density(kind, a, b, extras, at, x):
    """Return the log density, or probability, of a numeric leaf with parameters a, b and extras[at], … at x; 0 if x is
    missing.
    """
    if np.isnan(x):
        return 0.0
    if kind == GAUSSIAN:
        z = (x - a) / b
        return -0.5 * z * z - np.log(b) - 0.5 * np.log(2.0 * np.pi)
    if kind >= ROUNDED:
        return transformed_log_density(np.int64(kind), a, b, extras, at, x)
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
    """Return the log probability of n events, accurate also where n log(rate) - rate - log n! would cancel.

    References: Loader (2000), Fast and accurate computation of binomial probabilities.
    """
    if n != np.floor(n) or n > MOST_EVENTS:
        return -np.inf
    if n < FEW_EVENTS:
        return n * np.log(rate) - rate - math.lgamma(n + 1.0)
    square = n * n
    stirling = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / n
    # n log(n / rate) + rate - n, by its series where the terms would cancel.
    if abs(n - rate) >= 0.1 * (n + rate):
        deviance = n * np.log(n / rate) + rate - n
    else:
        v = (n - rate) / (n + rate)
        deviance, term, j, before = (n - rate) * v, 2.0 * n * v, 1.0, np.inf
        while deviance != before:
            before = deviance
            term *= v * v
            j += 2.0
            deviance += term / j
    return -stirling - deviance - 0.5 * np.log(2.0 * np.pi * n)


# Ends of what a leaf reaches, in standard deviations.
REACH = 10.0
# A leaf over more cells hardly shows the recorded step: its variance is that of uniform noise.
MOST_CELLS = 2000


@kernel
def write_leaf_moments(nodes, kind, leaf_starts, parameters, out):
    """Write the mean and variance of some numeric leaves: OUT out[node]."""
    for node in nodes:
        first = leaf_starts[node]
        a = parameters[first]
        if kind[node] == POISSON:
            out[node, 0], out[node, 1] = a, a
        elif kind[node] < STUDENT and kind[node] != GAUSSIAN:
            out[node, 0], out[node, 1] = 1.0 / a, 1.0 / a**2
        else:
            own = np.int64(kind[node])
            out[node, 0], out[node, 1] = _two_moments(own, a, parameters[first + 1], parameters, first + 2)


@inner_kernel
def _two_moments(kind, a, b, extras, at):
    """Return the mean and variance of a leaf with centre and spread."""
    if kind == GAUSSIAN:
        return a, b * b
    if kind == STUDENT:
        return a, b * b * extras[at] / (extras[at] - 2.0)
    step = extras[at + STEP]
    if step > 0.0:
        low = nearest_grid_value(extras, at, inverse_transform_leaf_value(kind, extras, at, a - REACH * b))
        high = nearest_grid_value(extras, at, inverse_transform_leaf_value(kind, extras, at, a + REACH * b))
        if high - low <= MOST_CELLS * step:
            return _over_cells(kind, a, b, extras, at, low, np.int64(np.rint((high - low) / step)) + 1)
    mean, variance = a, b * b
    if kind == LOG_NORMAL:
        mean = np.exp(a + 0.5 * b * b)
        variance = np.expm1(b * b) * mean * mean
    elif kind != ROUNDED:
        mean, _ = _over_segments(a, b, extras, at, 0.0)
        variance = _over_segments(a, b, extras, at, mean)[1]
    return mean, variance + step * step / 12.0


@inner_kernel
def _over_cells(kind, a, b, extras, at, low, n):
    """Return the mean and variance over n cells starting at `low`."""
    step, total, mean = extras[at + STEP], 0.0, 0.0
    for i in range(n):
        mass = np.exp(transformed_log_density(kind, a, b, extras, at, low + i * step))
        total += mass
        mean += mass * (low + i * step)
    mean /= total
    variance = 0.0
    for i in range(n):
        x = low + i * step
        variance += np.exp(transformed_log_density(kind, a, b, extras, at, x)) * (x - mean) ** 2
    return mean, variance / total


@inner_kernel
def _over_segments(a, b, extras, at, centre):
    """Return the means of x - centre and its square over the segments of a quantile transform, the outer ones
    unbounded.
    """
    n = np.int64(extras[at + N_KNOTS])
    x, z = at + KNOTS, at + KNOTS + n
    first, second = 0.0, 0.0
    for i in range(n - 1):
        low = -1e9 if i == 0 else (extras[z + i] - a) / b
        high = 1e9 if i == n - 2 else (extras[z + i + 1] - a) / b
        log, mean, square = normal_interval_moments(low, high)
        mass = np.exp(log)
        if mass > 0.0:
            per_z = (extras[x + i + 1] - extras[x + i]) / (extras[z + i + 1] - extras[z + i])
            start, slope = extras[x + i] - centre + (a - extras[z + i]) * per_z, b * per_z
            first += mass * (start + slope * mean)
            second += mass * (start * start + 2.0 * start * slope * mean + slope * slope * square)
    return first, second
