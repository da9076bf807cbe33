"""How high densities of leaves can be."""

from __future__ import annotations

import numpy as np
import scipy

from learners.circuits.circuit import Circuit
from learners.circuits.kernels import EXPONENTIAL, GAUSSIAN, KNOTS, LOG_NORMAL, N_KNOTS, QUANTILE, ROUNDED, STUDENT
from learners.kernels.arrays import Floats

HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))


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
