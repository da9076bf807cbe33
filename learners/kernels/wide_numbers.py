"""Numbers beyond the range of double precision: a fraction and a separate exponent."""

from __future__ import annotations

import math

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

RADIX_BITS = 500
RADIX, INVERSE_RADIX = 2.0**RADIX_BITS, 2.0**-RADIX_BITS
LOG_RADIX = RADIX_BITS * math.log(2.0)
LEAST = -1e300


@inner_kernel
def exp_as_wide_number(log):
    """Return exp(log) as a wide number."""
    if log == -np.inf:
        return 0.0, LEAST
    whole = np.rint(log / LOG_RADIX)
    # The remainder of a logarithm beyond 1e16 is rounding, and may exceed the radix.
    rest = min(max(log - whole * LOG_RADIX, -0.5 * LOG_RADIX), 0.5 * LOG_RADIX)
    return np.exp(rest), whole


@kernel
def multiply_wide_numbers(a, a_power, b, b_power):
    """Return the product of two wide numbers."""
    product, power = a * b, a_power + b_power
    if product < INVERSE_RADIX:
        product *= RADIX
        power -= 1.0
    elif product > RADIX:
        product *= INVERSE_RADIX
        power += 1.0
    if product == 0.0:
        power = LEAST
    return product, power


@inner_kernel
def add_wide_numbers(a, a_power, b, b_power):
    """Return the sum of two wide numbers; terms below 2^-500 of the other are negligible, and smaller ones are dropped."""
    if b_power > a_power:
        a, a_power, b, b_power = b, b_power, a, a_power
    total = a
    if b_power == a_power:
        total += b
    elif b_power == a_power - 1.0:
        total += b * INVERSE_RADIX
    if total > RADIX:
        return total * INVERSE_RADIX, a_power + 1.0
    return total, a_power


@inner_kernel
def add_weighted_wide_numbers(log_weight, source, values, exponents, target, n_rows):
    """Add exp(log_weight) times the wide numbers of one node to those of another."""
    weight, whole = exp_as_wide_number(log_weight)
    if weight == 0.0:
        return
    for r in range(n_rows):
        term, power = multiply_wide_numbers(values[source, r], exponents[source, r], weight, whole)
        values[target, r], exponents[target, r] = add_wide_numbers(values[target, r], exponents[target, r], term, power)


@inner_kernel
def write_wide_number_logs(values, exponents, n_rows, first, logs):
    """Write the logarithms of wide numbers; OUT logs[:, first : first + n_rows]."""
    for node in range(values.shape[0]):
        for r in range(n_rows):
            value = values[node, r]
            log = -np.inf
            if value > 0.0:
                log = np.log(value) + exponents[node, r] * LOG_RADIX
            logs[node, first + r] = log
