"""Exact sums of products of columns: numbers become digits, whose products are integers."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel

# Digits are at most 2^28 in size, so the products of so many rows stay below 2^63.
BLOCK_ROWS = 64
DIGIT = 2.0**29
LOW_HALF = 0xFFFF_FFFF


@kernel
def add_moment_digit_products(digits, n, low, high):
    """Add the products of rows a and b of digits, over the first n columns, for b <= a: low[a, b] + 2^32 high[a, b].

    digits (m, at least n) int32, m even, each at most 2^28 in size; OUT low, high (m, m) int64, which 2^37
    columns cannot overflow. Rows are processed in pairs, which halves the memory reads.
    """
    for first in range(0, n, BLOCK_ROWS):
        last = min(first + BLOCK_ROWS, n)
        for a in range(0, digits.shape[0], 2):
            a0, a1 = digits[a, first:last], digits[a + 1, first:last]
            for b in range(0, a + 2, 2):
                b0, b1 = digits[b, first:last], digits[b + 1, first:last]
                s00, s01, s10, s11 = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
                for row in range(last - first):
                    x0, x1 = np.int64(a0[row]), np.int64(a1[row])
                    y0, y1 = np.int64(b0[row]), np.int64(b1[row])
                    s00 += x0 * y0
                    s01 += x0 * y1
                    s10 += x1 * y0
                    s11 += x1 * y1
                low[a, b] += s00 & LOW_HALF
                low[a, b + 1] += s01 & LOW_HALF
                low[a + 1, b] += s10 & LOW_HALF
                low[a + 1, b + 1] += s11 & LOW_HALF
                high[a, b] += s00 >> 32
                high[a, b + 1] += s01 >> 32
                high[a + 1, b] += s10 >> 32
                high[a + 1, b + 1] += s11 >> 32
