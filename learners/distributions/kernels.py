"""Whether rows are distributions."""

from __future__ import annotations

from learners.kernels.jit import kernel

TOLERANCE = 1e-6


@kernel
def first_invalid(probabilities):  # (n, c) float64
    """The first row that has a negative entry, or does not sum to one; -1 if there is none."""
    for row in range(probabilities.shape[0]):
        total, least = 0.0, 0.0
        for k in range(probabilities.shape[1]):
            p = probabilities[row, k]
            total += p
            least = min(least, p)
        # NaN and infinite sums are not within the tolerance either.
        if not (abs(total - 1.0) <= TOLERANCE and least >= 0.0):
            return row
    return -1
