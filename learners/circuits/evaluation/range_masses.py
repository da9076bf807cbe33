"""How probable it is that a numeric leaf lies in a range."""

from __future__ import annotations

import numpy as np
import scipy

from learners.circuits.circuit import Circuit
from learners.circuits.evaluation.warp_kernels import warp
from learners.circuits.kernels import EXPONENTIAL, GAUSSIAN, LOG_NORMAL, ORIGIN, POISSON, STEP, STUDENT
from learners.kernels.arrays import Floats, Integers


def log_range_masses(circuit: Circuit, leaves: Integers, low: float, high: float) -> Floats:
    """(n_leaves,) float64: log probability that each numeric leaf lies in a range, ends included.

    Of a leaf over the cells of a grid, that of all cells whose recorded number is in the range.
    """
    starts, p = circuit.leaf_starts, circuit.leaf_parameters
    found = [_log_mass(int(circuit.kind[i]), p[starts[i] : starts[i + 1]], low, high) for i in leaves.tolist()]
    return np.array(found).reshape(leaves.size)


def _log_mass(kind: int, p: Floats, low: float, high: float) -> float:
    if not low <= high:
        return -np.inf
    if kind == POISSON:
        return _log_poisson(float(p[0]), low, high)
    if kind == EXPONENTIAL:
        low = max(low, 0.0)
        return float(-p[0] * low + np.log1p(-np.exp(-p[0] * (high - low)))) if high > low else -np.inf
    ends = standard_ends(kind, p, low, high)
    if kind == STUDENT:
        below, above = scipy.special.stdtr(p[2], in_lower_tail(*ends))
        with np.errstate(divide="ignore"):
            return float(np.log(above - below))
    return float(log_normal_mass(*ends))


def standard_ends(kind: int, p: Floats, low: float, high: float) -> tuple[float, float]:
    """A range's ends as standard numbers of a leaf; with a grid the outer ends of its first and last cell."""
    if kind not in (GAUSSIAN, STUDENT):
        p = np.ascontiguousarray(p)
        step = float(p[2 + STEP])
        if step > 0.0:
            first, last = recorded_ends(p, low, high)
            low, high = first - 0.5 * step, last + 0.5 * step
            if not low < high:
                return np.inf, np.inf
        low, high = _warped(kind, p, low), _warped(kind, p, high)
    return (low - p[0]) / p[1], (high - p[0]) / p[1]


def in_lower_tail(low: float | Floats, high: float | Floats) -> tuple[Floats, Floats]:
    """Ranges of a symmetric density, or their mirror images: those whose masses below have all digits."""
    is_above = np.greater(low, -high)
    return np.where(is_above, -high, low), np.where(is_above, -low, high)


def recorded_ends(p: Floats, low: float, high: float) -> tuple[float, float]:
    """The first and the last number of a leaf's grid in a range; a recorded number is a multiple of the step but for rounding."""
    step, origin = float(p[2 + STEP]), float(p[2 + ORIGIN])
    return (
        origin + step * np.ceil((low - origin) / step - 1e-6),
        origin + step * np.floor((high - origin) / step + 1e-6),
    )


def _warped(kind: int, p: Floats, x: float) -> float:
    if np.isinf(x) or (kind == LOG_NORMAL and x <= 0.0):
        return np.inf if x > 0.0 else -np.inf
    return float(warp(kind, p, 2, x)[0])


def log_normal_mass(low: float | Floats, high: float | Floats) -> Floats:
    """Log probability that a standard normal number lies between two, to all digits in both tails."""
    below, above = scipy.special.log_ndtr(in_lower_tail(low, high))
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(above > below, above + np.log(-np.expm1(below - above)), -np.inf)
    return found


def _log_poisson(rate: float, low: float, high: float) -> float:
    first, last = max(np.ceil(low), 0.0), np.floor(high)
    if first > last:
        return -np.inf
    # P(N >= n) is the lower incomplete gamma function of n; both tails, and the smaller difference of the two.
    with np.errstate(divide="ignore"):
        at_least = float(scipy.special.gammainc(first, rate)) if first > 0 else 1.0
        beyond = float(scipy.special.gammainc(last + 1.0, rate)) if np.isfinite(last) else 0.0
        below = float(scipy.special.gammaincc(first, rate)) if first > 0 else 0.0
        at_most = float(scipy.special.gammaincc(last + 1.0, rate)) if np.isfinite(last) else 1.0
        return float(np.log(at_least - beyond if at_least < 0.5 else at_most - below))
