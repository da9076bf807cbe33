# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Noise for numbers that were recorded in steps."""

from __future__ import annotations

import numpy as np

from learners.circuits.queries.sampling_kernels import GOLDEN
from learners.kernels.jit import kernel
from learners.kernels.random import random_bits

TO_UNIT = 1.0 / 4503599627370496.0


@kernel
def add_noise(x, width, seed, first_row):
    """Add to IN/OUT x (n_rows, n_columns) what is uniform in ±width / 2: the same for a row and column, however rows are divided."""
    for d in range(x.shape[1]):
        if width[d] > 0.0:
            for n in range(x.shape[0]):
                place = np.uint64((first_row + n) * x.shape[1] + d + 1)
                # Never an end of the interval: a whole number with noise is rounded to itself.
                u = (
                    np.float64(random_bits(random_bits(seed + GOLDEN) + place * GOLDEN) >> np.uint64(12)) + 0.5
                ) * TO_UNIT
                x[n, d] += width[d] * (u - 0.5)
