# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Assumed density filtering of large pseudo-counts in closed form."""

from __future__ import annotations

from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import fused

# From this pseudo-count on, and for r below so many times its square, ψ(x + d) - ψ(x) is log(1 + d ψ'(x)) to 3e-8: the equations
# have a solution in closed form.
LARGE, SHARE_OF_SQUARE = 8.0, 8e-4


@inner_kernel
def beyond_half(u):
    """What 1/ψ'(x) exceeds x - 1/2 by, for x = 1/u from LARGE on."""
    return u * (1.0 / 12.0 + u * (1.0 / 24.0 - u * (1.0 / 720.0 + u * (11.0 / 480.0))))


@inner_kernel
def small_exp(c):
    """Exp(c) - 1 for |c| below 0.1, to 1e-8 of it."""
    return c * (1.0 + c * (0.5 + c * (1.0 / 6.0 + c * (1.0 / 24.0 + c * (1.0 / 120.0)))))


@inner_kernel
def two_by_logarithms(alpha, other, total, r):
    """As `newton_of_two`, for two pseudo-counts from LARGE on: both δ, both slopes, the pull, and whether they are right.

    With s = 1/ψ'(α), S = 1/ψ'(Σα): (s_j + δ_j) / s_j = exp(c_j) (S + Σδ) / S, whose sum over j tells Σδ.
    """
    inverse = 1.0 / (alpha * other * total)
    u, v, w = other * total * inverse, alpha * total * inverse, alpha * other * inverse
    more, more_other = beyond_half(u), beyond_half(v)
    s, s_other = alpha - 0.5 + more, other - 0.5 + more_other
    down = -1.0 * r * w
    e, e_other = small_exp(r * u + down), small_exp(down)
    grown = s * e + s_other * e_other
    before = 0.5 + beyond_half(w) - more - more_other
    left = before - grown
    inverse = 1.0 / (before * left)
    f = grown * before * inverse
    return s * (e + f + e * f), s_other * (e_other + f + e_other * f), s, s_other, left * inverse, left > 0.1


@kernel
def large_two(alpha, other, total, r):
    """As `two_by_logarithms`, for callers in Python."""
    return two_by_logarithms(alpha, other, total, r)


@inner_kernel
def bend_of(v):
    """The derivative of s = 1/ψ'(x), which is -ψ''(x) s², of v = s/x between 0 and 1: to 1.3e-5 of it (fitted)."""
    p = fused(v, fused(v, -1.843872803239406, 8.050951218573783), -15.192651051664543)
    p = fused(v, fused(v, fused(v, p, 16.587541789402415), -11.840798803209488), 6.496028728997377)
    return v * fused(v * v, fused(v, p, -3.2572118679803093), 2.0)
