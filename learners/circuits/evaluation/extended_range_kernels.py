"""Values and derivatives of every node in numbers that neither underflow nor overflow, in blocks of rows.

A wide number is value · 2^(500 · exponent) with 2^-500 < value < 2^500, or zero with the exponent LEAST.
"""

from __future__ import annotations

import math

import numpy as np

from learners.circuits.evaluation.density_kernels import log_density
from learners.circuits.evaluation.evaluate_kernels import BLOCK
from learners.circuits.kernels import CATEGORICAL, INDICATOR, PRODUCT, SUM
from learners.kernels.jit import inner_kernel, kernel

RADIX_BITS = 500
RADIX, INVERSE_RADIX = 2.0**RADIX_BITS, 2.0**-RADIX_BITS
LOG_RADIX = RADIX_BITS * math.log(2.0)
LEAST = -1e300


@inner_kernel
def of_log(log):
    """Exp(log) as a wide number."""
    if log == -np.inf:
        return 0.0, LEAST
    whole = np.rint(log / LOG_RADIX)
    # Of a logarithm beyond 1e16 the remainder is rounding, and may be larger than the radix.
    rest = min(max(log - whole * LOG_RADIX, -0.5 * LOG_RADIX), 0.5 * LOG_RADIX)
    return np.exp(rest), whole


@kernel
def times(a, a_power, b, b_power):
    """Product of two wide numbers."""
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
def plus(a, a_power, b, b_power):
    """Sum of two wide numbers; what is 2^-500 of the other does not matter much, and less than that not at all."""
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
def log_leaf_at(kind, parameters, first, last, n_values, x):
    """Logarithm of a leaf's value at x; 0 if x is missing. Its parameters are the first to the last, inclusive."""
    if kind > CATEGORICAL:
        return log_density(
            np.float64(kind), parameters[first], parameters[min(first + 1, last)], parameters, first + 2, np.float64(x)
        )
    # NaN fails both comparisons.
    if not (x >= 0 and x < n_values):
        return 0.0
    if kind == INDICATOR:
        return 0.0 if x == parameters[first] else -np.inf
    return parameters[first + np.int64(x)]


@kernel
def leaf_logs(circuit, x, logs):
    """Logarithms of all leaves at each row of x: OUT logs (n_nodes, n_rows), only leaves."""
    kinds, starts, parameters = circuit.kind, circuit.leaf_starts, circuit.leaf_parameters
    for node in range(kinds.size):
        if kinds[node] >= INDICATOR:
            v, low, high = circuit.variable[node], starts[node], starts[node + 1] - 1
            for row in range(x.shape[1]):
                logs[node, row] = log_leaf_at(kinds[node], parameters, low, high, circuit.n_values[v], x[v, row])


@inner_kernel
def wide_upward(circuit, log_leaf, first, n_rows, values, exponents):
    """Wide values of all nodes for n_rows rows from the first on, by log_leaf of `leaf_logs`: OUT values, exponents (n_nodes, BLOCK)."""
    kinds, child_starts, children, log_weight = circuit.kind, circuit.child_starts, circuit.children, circuit.log_weight
    for node in range(kinds.size):
        kind = kinds[node]
        begin, end = child_starts[node], child_starts[node + 1]
        if kind >= INDICATOR:
            for r in range(n_rows):
                values[node, r], exponents[node, r] = of_log(log_leaf[node, first + r])
        elif kind == PRODUCT:
            for r in range(n_rows):
                value, power = 1.0, 0.0
                for k in range(begin, end):
                    c = children[k]
                    value, power = times(value, power, values[c, r], exponents[c, r])
                values[node, r], exponents[node, r] = value, power
        else:
            for r in range(n_rows):
                values[node, r], exponents[node, r] = 0.0, LEAST
            for k in range(begin, end):
                weigh_and_add(log_weight[k], children[k], values, exponents, node, n_rows)


@inner_kernel
def weigh_and_add(log_weight, source, values, exponents, target, n_rows):
    """Add exp(log_weight) times the wide numbers of one node to those of another."""
    weight, whole = of_log(log_weight)
    if weight == 0.0:
        return
    for r in range(n_rows):
        term, power = times(values[source, r], exponents[source, r], weight, whole)
        values[target, r], exponents[target, r] = plus(values[target, r], exponents[target, r], term, power)


@inner_kernel
def wide_downward(circuit, n_rows, values, exponents, derivatives, powers, scratch):
    """Wide derivatives of the root by every node, from the wide values.

    Products multiply what is left and right of a child, so that children of value zero need no division. scratch
    (2, most children + 1, BLOCK) float64; OUT derivatives, powers (n_nodes, BLOCK).
    """
    kinds, child_starts, children, log_weight = circuit.kind, circuit.child_starts, circuit.children, circuit.log_weight
    n_nodes = kinds.size
    for node in range(n_nodes):
        for r in range(n_rows):
            derivatives[node, r] = 1.0 if node == n_nodes - 1 else 0.0
            powers[node, r] = 0.0 if node == n_nodes - 1 else LEAST
    for node in range(n_nodes - 1, -1, -1):
        begin, end = child_starts[node], child_starts[node + 1]
        if kinds[node] == SUM:
            for k in range(begin, end):
                weigh_and_add(log_weight[k], node, derivatives, powers, children[k], n_rows)
        elif kinds[node] == PRODUCT:
            for r in range(n_rows):
                # scratch[:, k] is the product of the children from the k-th on, times the derivative by the node.
                right, right_power = derivatives[node, r], powers[node, r]
                for k in range(end - begin - 1, -1, -1):
                    scratch[0, k + 1, r], scratch[1, k + 1, r] = right, right_power
                    c = children[begin + k]
                    right, right_power = times(right, right_power, values[c, r], exponents[c, r])
                left, left_power = 1.0, 0.0
                for k in range(end - begin):
                    c = children[begin + k]
                    term, power = times(scratch[0, k + 1, r], scratch[1, k + 1, r], left, left_power)
                    derivatives[c, r], powers[c, r] = plus(derivatives[c, r], powers[c, r], term, power)
                    left, left_power = times(left, left_power, values[c, r], exponents[c, r])


@inner_kernel
def write_logs(values, exponents, n_rows, first, logs):
    """OUT logs[:, first : first + n_rows] of wide numbers."""
    for node in range(values.shape[0]):
        for r in range(n_rows):
            value = values[node, r]
            log = -np.inf
            if value > 0.0:
                log = np.log(value) + exponents[node, r] * LOG_RADIX
            logs[node, first + r] = log


@kernel
def wide_root_logs(circuit, log_leaf, scratch, logs):
    """Logarithms of the root: OUT logs (n_rows,). log_leaf of `leaf_logs`; scratch (2, n_nodes, BLOCK) float64."""
    root = circuit.kind.size - 1
    for first in range(0, logs.size, BLOCK):
        n_rows = min(BLOCK, logs.size - first)
        wide_upward(circuit, log_leaf, first, n_rows, scratch[0], scratch[1])
        for r in range(n_rows):
            value = scratch[0, root, r]
            logs[first + r] = np.log(value) + scratch[1, root, r] * LOG_RADIX if value > 0.0 else -np.inf


@kernel
def node_logs(circuit, log_leaf, scratch, products, logs, derivative_logs):
    """Logarithms of all nodes: OUT logs (n_nodes, n_rows) of values, and of derivatives if derivative_logs has columns.

    log_leaf of `leaf_logs`; scratch (4, n_nodes, BLOCK), products (2, most children + 1, BLOCK).
    """
    for first in range(0, log_leaf.shape[1], BLOCK):
        n_rows = min(BLOCK, log_leaf.shape[1] - first)
        wide_upward(circuit, log_leaf, first, n_rows, scratch[0], scratch[1])
        write_logs(scratch[0], scratch[1], n_rows, first, logs)
        if derivative_logs.shape[1] > 0:
            wide_downward(circuit, n_rows, scratch[0], scratch[1], scratch[2], scratch[3], products)
            write_logs(scratch[2], scratch[3], n_rows, first, derivative_logs)
