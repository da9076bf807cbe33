"""Leaves with a centre and a spread, from the definitions of their distributions."""

import numpy as np
from scipy import stats

from learners.circuits.kernels import LOG_NORMAL, QUANTILE, STUDENT


def transform(kind, p, x):
    """Under which a leaf with parameters p is normal."""
    if kind == LOG_NORMAL:
        return np.log(x) if x > 0 else -np.inf
    if kind != QUANTILE:
        return x
    places, quantiles = p[5:].reshape(2, int(p[4]))
    i = min(max(int(np.sum(places <= x)) - 1, 0), places.size - 2)
    slope = (quantiles[i + 1] - quantiles[i]) / (places[i + 1] - places[i])
    return quantiles[i] + slope * (x - places[i])


def below(kind, p, x):
    """P(X <= x)."""
    if kind == STUDENT:
        return stats.t.cdf((x - p[0]) / p[1], p[2])
    return stats.norm.cdf((transform(kind, p, x) - p[0]) / p[1])


def cell(p, x):
    """Ends of the cell that x is in."""
    step, origin = p[2], p[3]
    k = np.floor((x - origin) / step + 0.5)
    return origin + (k - 0.5) * step, origin + (k + 0.5) * step


def value(kind, p, x):
    """Mass of the cell of x, or density at x, by differences of the distribution function."""
    if kind != STUDENT and p[2] > 0:
        low, high = cell(p, x)
        return below(kind, p, high) - below(kind, p, low)
    width = 1e-5 * p[1] * (max(x, 1e-3) if kind == LOG_NORMAL else 1.0)
    return (below(kind, p, x + width) - below(kind, p, x - width)) / (2 * width)
