"""Sums over subsets of numbers whose logarithms differ by millions, without logarithms in inner loops.

A number is mantissa * 2^(256 exponent) with 1 <= mantissa < 2^256, or zero. Sums and products of these
numbers are exact to double precision, cost about as much as those of doubles, and vectorize; sums of
logarithms take ten times as long.
"""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats, Int32s
from learners.kernels.jit import inner_kernel, kernel

BIG = 2.0**256
SMALL = 2.0**-256
STEP = 256.0 * np.log(2.0)
# The exponent of zero: so low that a sum always takes the other number's, and that two of them add without overflow.
NOTHING = -(1 << 28)


@kernel
def scaled_exp(logs, shift, mantissa, exponent):  # (n,) float64; OUT (n,) float64, (n,) int32
    """Compute the scaled numbers exp(logs - shift)."""
    for i in range(logs.size):
        x = logs[i] - shift
        if x == -np.inf:
            mantissa[i] = 0.0
            exponent[i] = NOTHING
        else:
            e = np.floor(x / STEP)
            m = np.exp(x - e * STEP)
            # Rounding may leave the mantissa just outside its range.
            if m < 1.0:
                m = 1.0
            mantissa[i] = m
            exponent[i] = np.int32(e)


@kernel
def scaled_log(mantissa, exponent):
    """Return the logarithm of a scaled number."""
    return np.log(mantissa) + exponent * STEP if mantissa > 0.0 else -np.inf


@inner_kernel
def scaled_add(m, e, n, f):
    """Return m 2^(256 e) + n 2^(256 f); both mantissas must be in range."""
    d = e - f
    if d == 0:
        m += n
    elif d == 1:
        m += n * SMALL
    elif d == -1:
        m = n + m * SMALL
        e = f
    elif d < -1:
        m = n
        e = f
    if m >= BIG:
        m *= SMALL
        e += 1
    return m, e


@kernel
def scaled_multiply(m, e, n, f):
    """Return m 2^(256 e) * n 2^(256 f)."""
    m *= n
    if m == 0.0:
        return 0.0, np.int64(NOTHING)
    e += f
    if m >= BIG:
        m *= SMALL
        e += 1
    return m, e


@kernel
def scaled_divide(m, e, n, f):
    """Return m 2^(256 e) / (n 2^(256 f)) as a double, for quotients of at most about one."""
    d = e - f
    if m == 0.0 or d < -4:
        return 0.0
    q = m / n
    while d < 0:
        q *= SMALL
        d += 1
    while d > 0:
        q *= BIG
        d -= 1
    return q


@kernel
def scaled_subset_sums(mantissa, exponent):  # (2^k,) float64, (2^k,) int32; in place
    """Compute the zeta transform in place: the sum over all subsets of each set, with sets as bits of the index.

    References: Koivisto, Sood (2004), Exact Bayesian structure discovery in Bayesian networks, section 3.3.
    """
    n = mantissa.size
    h = 1
    while h < n:
        for base in range(0, n, 2 * h):
            lo, hi = mantissa[base : base + h], mantissa[base + h : base + 2 * h]
            e_lo, e_hi = exponent[base : base + h], exponent[base + h : base + 2 * h]
            # hi += lo, element by element and without a branch: LLVM makes vectors of it.
            for s in range(h):
                d = e_hi[s] - e_lo[s]
                top = max(e_hi[s], e_lo[s])
                f = 1.0 if d >= 0 else (SMALL if d == -1 else 0.0)
                g = 1.0 if d <= 0 else (SMALL if d == 1 else 0.0)
                v = hi[s] * f + lo[s] * g
                over = v >= BIG
                hi[s] = v * SMALL if over else v
                e_hi[s] = top + 1 if over else top
        h *= 2


def scaled_superset_sums(mantissa: Floats, exponent: Int32s) -> None:
    """Compute the sum over all supersets of each set, in place; in reverse order, these are subsets of the complement."""
    m, e = mantissa[::-1].copy(), exponent[::-1].copy()
    scaled_subset_sums(m, e)
    mantissa[:], exponent[:] = m[::-1], e[::-1]
