"""Means, variances and modes of numeric leaves, how high their densities can be, and which of them are densities."""

from __future__ import annotations

import math

import numpy as np
import scipy

from learners.circuits.circuit import Circuit, kept_with
from learners.circuits.evaluation.density_kernels import cell_of, log_warped, unwarp
from learners.circuits.evaluation.shape_kernels import add_moments_of_leaves
from learners.circuits.evaluation.truncated_leaves import recorded_ends, truncated_moments
from learners.circuits.kernels import (
    EXPONENTIAL,
    GAUSSIAN,
    KNOTS,
    LOG_NORMAL,
    N_KNOTS,
    POISSON,
    QUANTILE,
    ROUNDED,
    STEP,
    STUDENT,
)
from learners.kernels.arrays import Floats, Integers, Mask, frozen

HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))


def leaf_moments(circuit: Circuit) -> Floats:
    """(n_nodes, 2) float64: mean and variance of numeric leaves, zero of other nodes; (0, 2) without numeric leaves."""
    return kept_with(circuit, _leaf_moments)


def _leaf_moments(circuit: Circuit) -> Floats:
    numeric = np.flatnonzero(circuit.kind >= GAUSSIAN)
    found = np.zeros((circuit.n_nodes if numeric.size else 0, 2))
    if numeric.size:
        add_moments_of_leaves(numeric, circuit.kind, circuit.leaf_starts, circuit.leaf_parameters, found)
    for v, (low, high) in circuit.ranges.items():
        for leaf in np.flatnonzero(circuit.variable == v).tolist():
            found[leaf] = truncated_moments(int(circuit.kind[leaf]), parameters_of(circuit, leaf), low, high)
    return frozen(found)


def density_leaves(circuit: Circuit) -> Mask:
    """(n_nodes,) bool: leaves whose values are densities. Those of others are probabilities, also of the cells of a grid."""
    kind = circuit.kind
    found: Mask = (kind == GAUSSIAN) | (kind == EXPONENTIAL) | (kind == STUDENT)
    warped = np.flatnonzero(kind >= ROUNDED)
    found[warped] = circuit.leaf_parameters[circuit.leaf_starts[warped] + 2 + STEP] == 0.0
    return found


def density_variables(circuit: Circuit) -> Integers:
    """The variables that have a density, ascending."""
    return np.unique(circuit.variable[density_leaves(circuit)])


def parameters_of(circuit: Circuit, leaf: int) -> Floats:
    """The parameters of a leaf."""
    return circuit.leaf_parameters[circuit.leaf_starts[leaf] : circuit.leaf_starts[leaf + 1]]


def mode_of(kind: int, p: Floats, low: float = -math.inf, high: float = math.inf) -> float:
    """Where the density, or mass, of a numeric leaf with parameters p is highest in a range; NaN if it has no number there."""
    first = float(p[0])
    if kind in (GAUSSIAN, STUDENT):
        return min(max(first, low), high)
    if kind == EXPONENTIAL:
        return max(low, 0.0) if high >= 0.0 else math.nan
    if kind == POISSON:
        return _in_grid(float(math.floor(first)), max(float(np.ceil(low)), 0.0), float(np.floor(high)))
    step, extras = float(p[2 + STEP]), frozen(p)
    if step > 0.0:
        low, high = recorded_ends(p, low, high)
    if kind == ROUNDED:
        return _in_grid(float(cell_of(extras, 2, first)) if step > 0.0 else first, low, high)
    found = _mode_of_quantile(extras) if kind == QUANTILE else [math.exp(first - float(p[1]) ** 2)]
    # Between two peaks or knots densities rise and then fall, so in a range the best number may be an end.
    found = [min(max(x, low), high) for x in found] + [x for x in (low, high) if math.isfinite(x)]
    if step > 0.0:
        # Within a segment masses rise and then fall, so the best cell has a peak or knot, or is next to one that has.
        knots = extras[2 + KNOTS : 2 + KNOTS + int(extras[2 + N_KNOTS])].tolist() if kind == QUANTILE else []
        found = [
            _in_grid(float(cell_of(extras, 2, x)) + i * step, low, high) for x in [*found, *knots] for i in (-1, 0, 1)
        ]
    return max(found, key=lambda x: float(log_warped(kind, first, float(p[1]), extras, 2, x)))


def _in_grid(x: float, low: float, high: float) -> float:
    """The number of a grid from its first to its last one in a range that is nearest to x."""
    return min(max(x, low), high) if low <= high else math.nan


def _mode_of_quantile(p: Floats) -> list[float]:
    """The peak of each segment between two knots; at its upper end the last number that is in it."""
    n = int(p[2 + N_KNOTS])
    x, z = p[2 + KNOTS : 2 + KNOTS + 2 * n].reshape(2, n)
    peaks = []
    for i in range(n - 1):
        if z[i] < p[0] < z[i + 1]:
            peaks.append(float(unwarp(QUANTILE, p, 2, p[0])))
        elif p[0] <= z[i]:
            peaks.append(float(x[i]) if i or p[0] == z[i] else float(unwarp(QUANTILE, p, 2, p[0])))
        else:
            last = i == n - 2
            peaks.append(float(unwarp(QUANTILE, p, 2, p[0])) if last else float(np.nextafter(x[i + 1], -np.inf)))
    return peaks


def peaks(circuit: Circuit, v: int) -> Floats:
    """Where the densities of a numeric variable are highest, each place once, ascending."""
    leaves = np.flatnonzero((circuit.variable == v) & (circuit.kind >= GAUSSIAN))
    return np.unique([mode_of(int(circuit.kind[leaf]), parameters_of(circuit, leaf)) for leaf in leaves.tolist()])


def log_peaks(circuit: Circuit) -> Floats:
    """(n_variables,) float64: the largest log density of any leaf of a numeric variable, or a little more; zero of others."""
    nodes = np.flatnonzero(circuit.kind >= GAUSSIAN)
    p, first, kind = circuit.leaf_parameters, circuit.leaf_starts[nodes], circuit.kind[nodes]
    height = np.zeros(nodes.size)
    waits, student, log_normal = kind == EXPONENTIAL, kind == STUDENT, kind == LOG_NORMAL
    height[waits] = np.log(p[first[waits]])
    has_spread = (kind == GAUSSIAN) | (kind >= STUDENT)
    height[has_spread] = -np.log(p[first[has_spread] + 1]) - HALF_LOG_2_PI
    if student.any():  # scipy.special is imported when it is asked: .1 s
        freedom = p[first[student] + 2]
        constant = (
            scipy.special.gammaln(0.5 * (freedom + 1.0))
            - scipy.special.gammaln(0.5 * freedom)
            - 0.5 * np.log(np.pi * freedom)
        )
        height[student] = constant - np.log(p[first[student] + 1])
    # At its mode exp(centre - spread²).
    centre, spread = p[first[log_normal]], p[first[log_normal] + 1]
    height[log_normal] += 0.5 * spread**2 - centre
    for i in np.flatnonzero(kind == QUANTILE):
        at = int(first[i]) + 2
        n = int(p[at + N_KNOTS])
        x, z = p[at + KNOTS : at + KNOTS + 2 * n].reshape(2, n)
        height[i] += np.log((np.diff(z) / np.diff(x)).max())
    warped = np.flatnonzero(kind >= ROUNDED)
    height[warped[p[first[warped] + 2] > 0.0]] = 0.0  # masses
    peak = np.full(circuit.n_variables, -np.inf)
    np.maximum.at(peak, circuit.variable[nodes], height)
    peak[np.isneginf(peak)] = 0.0
    return peak
