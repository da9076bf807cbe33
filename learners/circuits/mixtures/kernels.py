"""Densities of multivariate Gaussians over blocks of rows, and their expected moments as integers."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel

# Rows that go through a component together: inner loops over them run in vector registers.
BLOCK = 128
# A share of a row is a multiple of 2^-32; its moments, in standard deviations of the component, of 2^-20.
PER_ROW = 2.0**32
PER_MOMENT = 2.0**20
# Largest distance of a row in standard deviations: beyond it, sums of squares of many rows would overflow 64 bits.
FARTHEST = 1e3
# A smaller share counts nowhere.
LEAST_SHARE = 2.0**-24


# K = components, m = observed columns, n = rows
@kernel
def add_gaussian_log_densities(
    x, mean, inverse, constant, out
):  # (m, n), (K, m), (K, m, m) lower, (K,) float64; OUT (K, n)
    """Add the log density of each row under each component; nonfinite numbers have density zero."""
    n_columns, n_rows = x.shape
    centred, z, squares = np.empty((n_columns, BLOCK)), np.empty(BLOCK), np.empty(BLOCK)
    for first in range(0, n_rows, BLOCK):
        width = min(BLOCK, n_rows - first)
        for k in range(mean.shape[0]):
            squares[:] = 0.0
            for i in range(n_columns):
                for row in range(width):
                    centred[i, row] = x[i, first + row] - mean[k, i]
                z[:] = 0.0
                for j in range(i + 1):
                    slope = inverse[k, i, j]
                    for row in range(width):
                        z[row] += slope * centred[j, row]
                for row in range(width):
                    squares[row] += z[row] * z[row]
            for row in range(width):
                log = constant[k] - 0.5 * squares[row]
                out[k, first + row] += log if log == log else -np.inf


# d = all numeric columns
@kernel
def add_expected_gaussian_moments(x, share, mean, inverse, lift, spread, first, second):
    """Add the rows' expected contributions to the moments of one component, in its standard coordinates.

    x (n, m) float64: the observed values; share (n,) float64; mean (m,); inverse (m, m) lower; lift (d, m): from
    standard coordinates of the observed columns to all; spread (d, d): covariance of all given the observed ones,
    in standard coordinates. OUT first (d,), second (d, d) int64, the lower half.
    """
    n_rows, m = x.shape
    d = first.size
    observed, z = np.empty(m), np.empty(d)
    for row in range(n_rows):
        own = share[row]
        if own < LEAST_SHARE:
            continue
        for i in range(m):
            total = 0.0
            for j in range(i + 1):
                total += inverse[i, j] * (x[row, j] - mean[j])
            observed[i] = total
        for i in range(d):
            if m == d:
                total = observed[i]
            else:
                total = 0.0
                for j in range(m):
                    total += lift[i, j] * observed[j]
            z[i] = min(max(total, -FARTHEST), FARTHEST)
        for i in range(d):
            first[i] += np.int64(np.rint(own * z[i] * PER_MOMENT))
            for j in range(i + 1):
                second[i, j] += np.int64(np.rint(own * (z[i] * z[j] + spread[i, j]) * PER_MOMENT))
