"""Parent sets of single nodes: their posterior, and the edges in them."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel
from learners.kernels.scaled_arithmetic import ratio, times


@kernel
def family_posterior(p, p_exponent, u, u_exponent, z, q):
    """Q = p u / z, element by element: p the families' scores, u the orders that allow them, z (mantissa, exponent)."""
    for index in range(p.size):
        m, e = times(p[index], np.int64(p_exponent[index]), u[index], np.int64(u_exponent[index]))
        q[index] = ratio(m, e, z[0], z[1])


@kernel
def memberships(q, shares):  # (2^k,) float64, overwritten; OUT (k,) float64
    """How much of the sum over all sets has each bit."""
    h = q.size // 2
    bit = shares.size - 1
    while h >= 1:
        total = 0.0
        for index in range(h):
            total += q[h + index]
            q[index] += q[h + index]
        shares[bit] = total
        h //= 2
        bit -= 1
