"""Unsigned Stirling numbers of the first kind, for any n."""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import ArrayLike

from learners.arrays import Floats

# From this standard deviation of the tilted distribution on, its Edgeworth expansion is exact to far below 1e-6.
WIDE = 12.0
NEWTON_STEPS = 60


def log_stirling(n: ArrayLike, t: ArrayLike) -> Floats:
    """Logarithm of S(n, t), the number of permutations of n things with t cycles.

    S(n, t) r^t Γ(r) / Γ(r + n) is the probability that t of n independent events of probabilities r / (r + i) happen. With r such that
    t is the mean, that probability is read off the characteristic function: by the trapezoidal rule, which is exact but for
    aliasing, or, where the distribution is wide, by its Edgeworth expansion.

    Parameters
    ----------
    n, t : array-like of int
        Broadcast against each other; n to at least 5e7.

    Returns
    -------
    float64 of the common shape
        -inf where t < 1 or t > n (but 0 for n = t = 0); absolute error below 1e-6.

    References
    ----------
    Temme (1993), Asymptotic estimates of Stirling numbers, for the saddle point; Petitjean et al. (2018), section 5.1, for the use.
    """
    n, t = np.broadcast_arrays(np.asarray(n, np.int64), np.asarray(t, np.int64))
    flat_n, flat_t = n.ravel().astype(np.float64), t.ravel().astype(np.float64)
    result = np.full(flat_n.size, -np.inf)
    result[flat_n == flat_t] = 0.0
    is_one = (flat_t == 1) & (flat_n > 1)
    result[is_one] = scipy.special.gammaln(flat_n[is_one])
    is_last = (flat_t == flat_n - 1) & (flat_t > 1)
    result[is_last] = np.log(flat_n[is_last]) + np.log(flat_n[is_last] - 1) - np.log(2.0)
    inside = np.flatnonzero((flat_t > 1) & (flat_t < flat_n - 1))
    if inside.size:
        result[inside] = _inside(flat_n[inside], flat_t[inside])
    return result.reshape(n.shape)


def _inside(n: Floats, t: Floats) -> Floats:
    r = _tilt(n, t)
    cumulants = _cumulants(n, r)
    sd = np.sqrt(cumulants[0])
    log_p = np.empty_like(n)
    is_wide = sd >= WIDE
    log_p[is_wide] = _edgeworth([cumulant[is_wide] for cumulant in cumulants])
    narrow = np.flatnonzero(~is_wide)
    for first in range(0, narrow.size, 4096):
        part = narrow[first : first + 4096]
        log_p[part] = _trapezoid(n[part], t[part], r[part])
    return np.asarray(log_p - t * np.log(r) + _log_rising(r, n))


def _log_rising(r: Floats, n: Floats) -> Floats:
    """Log Γ(r + n) - log Γ(r), without cancellation for tiny r."""
    return np.asarray(scipy.special.gammaln(r + n) - scipy.special.gammaln(r + 1) + np.log(r))


def _tilt(n: Floats, t: Floats) -> Floats:
    """The r for which Σ r / (r + i) = t, by Newton's method in log r, kept between bounds."""
    low, high = np.full_like(n, -60.0), np.log(n) + np.log(n) + 5.0
    x = np.log(np.maximum(t, 1.0) / np.log(n / t + np.e))
    for _ in range(NEWTON_STEPS):
        r = np.exp(x)
        excess = _mean(n, r) - t
        low, high = np.where(excess < 0, x, low), np.where(excess > 0, x, high)
        slope = _variance(n, r)
        step = x - excess / np.maximum(slope, 1e-300)
        inside = (step > low) & (step < high)
        following = np.where(inside, step, 0.5 * (low + high))
        if np.all(np.abs(following - x) < 1e-13 * np.maximum(1.0, np.abs(x))):
            break
        x = following
    return np.exp(x)


def _mean(n: Floats, r: Floats) -> Floats:
    return np.asarray(1.0 + r * (scipy.special.psi(r + n) - scipy.special.psi(r + 1)))


def _power_sum(n: Floats, r: Floats, k: int) -> Floats:
    """Σ_{i >= 1} (r / (r + i))^k."""
    if k == 1:
        return _mean(n, r) - 1.0
    sign, factorial = (-1) ** k, float(np.prod(np.arange(1, k)))
    return np.asarray(
        r**k * sign * (scipy.special.polygamma(k - 1, r + 1) - scipy.special.polygamma(k - 1, r + n)) / factorial
    )


def _variance(n: Floats, r: Floats) -> Floats:
    return _power_sum(n, r, 1) - _power_sum(n, r, 2)


def _cumulants(n: Floats, r: Floats) -> list[Floats]:
    """The second to sixth cumulant of the sum of the events, from those of single events as polynomials in p."""
    s = [np.zeros_like(n), *(_power_sum(n, r, k) for k in range(1, 7))]
    return [
        np.maximum(s[1] - s[2], 0.0),
        s[1] - 3 * s[2] + 2 * s[3],
        s[1] - 7 * s[2] + 12 * s[3] - 6 * s[4],
        s[1] - 15 * s[2] + 50 * s[3] - 60 * s[4] + 24 * s[5],
        s[1] - 31 * s[2] + 180 * s[3] - 390 * s[4] + 360 * s[5] - 120 * s[6],
    ]


def _edgeworth(cumulants: list[Floats]) -> Floats:
    """Logarithm of the saddle-point density at the mean with corrections of first and second order."""
    k2, k3, k4, k5, k6 = cumulants
    l3, l4, l5, l6 = k3 / k2**1.5, k4 / k2**2, k5 / k2**2.5, k6 / k2**3
    first = l4 / 8 - 5 * l3**2 / 24
    second = -l6 / 48 + 35 * l4**2 / 384 + 7 * l3 * l5 / 48 - 35 * l3**2 * l4 / 64 + 385 * l3**4 / 1152
    return np.asarray(np.log1p(first + second) - 0.5 * np.log(2 * np.pi * k2))


def _trapezoid(n: Floats, t: Floats, r: Floats) -> Floats:
    """Logarithm of P(T = t) as the mean of the tilted generating function over equally spaced points of the circle."""
    n_points = int(24 * WIDE)
    angles = 2 * np.pi * np.arange(n_points // 2 + 1) / n_points
    z = r[:, None] * np.exp(1j * angles)
    # log Γ(z + n) - log Γ(z + 1) + log z, whose branch does not matter after exp.
    log_ratio = (
        scipy.special.loggamma(z + n[:, None]) - scipy.special.loggamma(z + 1) + np.log(z) - _log_rising(r, n)[:, None]
    )
    values = np.exp(log_ratio - 1j * angles * t[:, None]).real
    weights = np.full(angles.size, 2.0)
    weights[0] = weights[-1] = 1.0
    return np.asarray(np.log(values @ weights / n_points))
