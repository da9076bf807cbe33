"""Kernels of information from counts, one thread each."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel


@kernel
def sums_of_x_log_x(counts, starts, sums):  # (n,) int32 or int64, (m + 1,) int64; OUT (m,) float64
    """Of each range of counts the sum of x log x, compensated (Kahan): tables of the same counts in any order are equal."""
    for table in range(sums.size):
        total, lost = 0.0, 0.0
        for cell in range(starts[table], starts[table + 1]):
            if counts[cell] > 1:
                term = counts[cell] * np.log(np.float64(counts[cell])) - lost
                larger = total + term
                lost = (larger - total) - term
                total = larger
        sums[table] = total
