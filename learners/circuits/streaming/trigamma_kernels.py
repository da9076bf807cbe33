"""Differences and reciprocals of digamma and trigamma functions, which convert moments to pseudo-counts."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel


@inner_kernel
def reciprocal_trigamma_excess(u):
    """Return the excess of 1/ψ'(x) over x - 1/2, for x = 1/u from LARGE on."""
    return u * (1.0 / 12.0 + u * (1.0 / 24.0 - u * (1.0 / 720.0 + u * (11.0 / 480.0))))


@inner_kernel
def reciprocal_trigamma_slope(v):
    """Return the derivative of s = 1/ψ'(x), which is -ψ''(x) s², given v = s/x between 0 and 1, to 1.3e-5 (fitted)."""
    p = (8.050951218573783 - 1.843872803239406 * v) * v - 15.192651051664543
    p = ((p * v + 16.587541789402415) * v - 11.840798803209488) * v + 6.496028728997377
    return v * (v * v * (p * v - 3.2572118679803093) + 2.0)


@inner_kernel
def reciprocal_trigamma_third_term(v):
    """Return a sixth of s'² + s s'' likewise, to 5e-5 (fitted); it is at most 0.17."""
    p = (3.164556266662349 - 1.0869947478899683 * v) * v - 2.5445460443719494
    return v * v * ((p * v - 0.3937476144434825) * v + 1.0273675920919165)


@inner_kernel
def reciprocal_trigamma_step(d, c, bend, third):
    """Return the change of a slope with its pseudo-count."""
    return d * (bend + c * (3.0 * third - 0.5 * bend * bend))


@inner_kernel
def shifted_reciprocal_sums(x):
    """Return the sums of 1/(x + k) and of 1/(x + k)² for k = 0..7, with one division."""
    # The product p of all x + k is a polynomial of u = x (x + 7), as (x + k) (x + 7 - k) = u + k (7 - k).
    u, by_x = x * (x + 7.0), 2.0 * x + 7.0
    p = u * (720.0 + u * (252.0 + u * (28.0 + u)))
    p_u = 720.0 + u * (504.0 + u * (84.0 + 4.0 * u))
    p_uu = 504.0 + u * (168.0 + 12.0 * u)
    inverse = 1.0 / p
    first = p_u * by_x * inverse
    return first, first * first - (p_uu * by_x * by_x + 2.0 * p_u) * inverse


@kernel
def digamma_difference(x, d):
    """Return ψ(x + d) - ψ(x) and ψ'(x + d), to 1e-9 each, for x and x + d > 0."""
    y = x + d
    moved, slope = 0.0, 0.0
    if x < 8.0 or y < 8.0:
        before, _ = shifted_reciprocal_sums(x)
        after, slope = shifted_reciprocal_sums(y)
        moved = before - after
        x += 8.0
        y += 8.0
    # log(y / x) without a logarithm where they are close, and without cancelling.
    s = d / (x + y)
    t = s * s
    if t < 0.01:
        log_ratio = 2.0 * s * (1.0 + t * (1.0 / 3.0 + t * (0.2 + t * (1.0 / 7.0 + t * (1.0 / 9.0)))))
    else:
        log_ratio = np.log(y / x)
    inverse = 1.0 / (x * y)
    a, b = y * inverse, x * inverse
    p, q = a * a, b * b
    # p - q = 1/x² - 1/y², and the same of higher powers, each with the factor d.
    apart = d * (a + b) * inverse
    series = 1.0 / 12.0 - (p + q) * (1.0 / 120.0) + (p * p + p * q + q * q) * (1.0 / 252.0)
    series -= (p + q) * (p * p + q * q) * (1.0 / 240.0)
    moved += log_ratio + 0.5 * d * inverse + apart * series
    slope += b + q * (0.5 + b * (1.0 / 6.0 - q * (1.0 / 30.0 - q * (1.0 / 42.0 - q * (1.0 / 30.0)))))
    return moved, slope
