"""Mean and variance of numeric leaves."""

from __future__ import annotations

import numpy as np

from learners.circuits.evaluation.density_kernels import cell_of, log_warped, normal_cell, unwarp
from learners.circuits.kernels import (
    GAUSSIAN,
    KNOTS,
    LOG_NORMAL,
    N_KNOTS,
    POISSON,
    ROUNDED,
    STEP,
    STUDENT,
)
from learners.kernels.jit import inner_kernel, kernel

# Ends of what a leaf reaches, in standard deviations.
REACH = 10.0
# Of a leaf over more cells, the recorded step hardly tells: its variance is that of uniform noise.
MOST_CELLS = 2000


@kernel
def add_moments_of_leaves(nodes, kind, leaf_starts, parameters, out):
    """OUT out[node]: mean and variance of each of some numeric leaves."""
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
    """Mean and variance of a leaf with centre and spread."""
    if kind == GAUSSIAN:
        return a, b * b
    if kind == STUDENT:
        return a, b * b * extras[at] / (extras[at] - 2.0)
    step = extras[at + STEP]
    if step > 0.0:
        low = cell_of(extras, at, unwarp(kind, extras, at, a - REACH * b))
        high = cell_of(extras, at, unwarp(kind, extras, at, a + REACH * b))
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
    """Mean and variance over n cells from one on."""
    step, total, mean = extras[at + STEP], 0.0, 0.0
    for i in range(n):
        mass = np.exp(log_warped(kind, a, b, extras, at, low + i * step))
        total += mass
        mean += mass * (low + i * step)
    mean /= total
    variance = 0.0
    for i in range(n):
        x = low + i * step
        variance += np.exp(log_warped(kind, a, b, extras, at, x)) * (x - mean) ** 2
    return mean, variance / total


@inner_kernel
def _over_segments(a, b, extras, at, centre):
    """Means of x - centre and of its square over the segments of a quantile transform, the outer ones without end."""
    n = np.int64(extras[at + N_KNOTS])
    x, z = at + KNOTS, at + KNOTS + n
    first, second = 0.0, 0.0
    for i in range(n - 1):
        low = -1e9 if i == 0 else (extras[z + i] - a) / b
        high = 1e9 if i == n - 2 else (extras[z + i + 1] - a) / b
        log, mean, square = normal_cell(low, high)
        mass = np.exp(log)
        if mass > 0.0:
            per_z = (extras[x + i + 1] - extras[x + i]) / (extras[z + i + 1] - extras[z + i])
            start, slope = extras[x + i] - centre + (a - extras[z + i]) * per_z, b * per_z
            first += mass * (start + slope * mean)
            second += mass * (start * start + 2.0 * start * slope * mean + slope * slope * square)
    return first, second
