"""How high densities of leaves can be."""

from __future__ import annotations

import numpy as np
import scipy

from learners.circuits.circuit import Circuit
from learners.circuits.kernels import KNOTS, LOG_NORMAL, N_KNOTS, QUANTILE, STUDENT
from learners.kernels.arrays import Floats, Integers

HALF_LOG_2_PI = 0.5 * float(np.log(2.0 * np.pi))


def heights(circuit: Circuit, nodes: Integers) -> Floats:
    """(n,) float64: the logarithm that no value of leaves (n,) from STUDENT on exceeds, zero of masses."""
    p, first, kind = circuit.leaf_parameters, circuit.leaf_starts[nodes], circuit.kind[nodes]
    centre, spread, third = p[first], p[first + 1], p[first + 2]
    height = -np.log(spread) - HALF_LOG_2_PI
    student, log_normal = kind == STUDENT, (kind == LOG_NORMAL)
    if student.any():  # scipy.special is imported when it is asked: .1 s
        freedom = third[student]
        constant = (
            scipy.special.gammaln(0.5 * (freedom + 1.0))
            - scipy.special.gammaln(0.5 * freedom)
            - 0.5 * np.log(np.pi * freedom)
        )
        height[student] = constant - np.log(spread[student])
    # At its mode exp(centre - spread²).
    height[log_normal] += (0.5 * spread**2 - centre)[log_normal]
    for i in np.flatnonzero((kind == QUANTILE) & (third == 0.0)):
        at = int(first[i]) + 2
        n = int(p[at + N_KNOTS])
        x, z = p[at + KNOTS : at + KNOTS + 2 * n].reshape(2, n)
        height[i] += np.log((np.diff(z) / np.diff(x)).max())
    height[~student & (third > 0.0)] = 0.0
    return height
