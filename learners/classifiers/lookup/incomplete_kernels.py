"""Kernels that look for rows that lack something, one thread each."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel


@kernel
def mark_rows(x, limits, nullable, marks):  # (m, n) codes, (m,) uint16, (m,) bool; OUT (n,) uint8
    """Set bit 0 of rows with a code that is not below the limit of its attribute, bit 1 of rows with a null as a value."""
    for i in range(x.shape[0]):
        codes, limit = x[i], limits[i]
        if limit < 65535:
            for row in range(codes.size):
                marks[row] |= np.uint8(codes[row] >= limit)
        if nullable[i]:
            for row in range(codes.size):
                marks[row] |= np.uint8(2) * np.uint8(codes[row] == 0)
