"""Values and derivatives of every node in numbers that neither underflow nor overflow, in blocks of rows.

A wide number is value · 2^(500 · exponent) with 2^-500 < value < 2^500, or zero with the exponent LEAST.
"""

from __future__ import annotations

import math

import numpy as np

from learners.circuits.evaluate_kernels import BLOCK, log_density
from learners.jit import kernel

SUM, PRODUCT, INDICATOR, CATEGORICAL = range(4)
RADIX_BITS = 500
RADIX, INVERSE_RADIX = 2.0**RADIX_BITS, 2.0**-RADIX_BITS
LOG_RADIX = RADIX_BITS * math.log(2.0)
LEAST = -1e300


@kernel
def of_log(log, value, exponent, r):
    """Write exp(log) as a wide number."""
    if log == -np.inf:
        value[r], exponent[r] = 0.0, LEAST
    else:
        whole = np.rint(log / LOG_RADIX)
        value[r], exponent[r] = np.exp(log - whole * LOG_RADIX), whole


@kernel
def multiply(value, exponent, r, v, e):
    """Multiply a wide number by another."""
    product = value[r] * v
    power = exponent[r] + e
    if product < INVERSE_RADIX:
        product *= RADIX
        power -= 1.0
    elif product > RADIX:
        product *= INVERSE_RADIX
        power += 1.0
    if product == 0.0:
        power = LEAST
    value[r], exponent[r] = product, power


@kernel
def add(value, exponent, r, v, e):
    """Add a wide number to another; what is 2^-500 of it does not matter."""
    if e > exponent[r]:
        low = value[r] if exponent[r] == e - 1.0 else 0.0
        total, power = v + low * INVERSE_RADIX, e
    else:
        low = v if e == exponent[r] - 1.0 else 0.0
        total, power = value[r] + (v if e == exponent[r] else low * INVERSE_RADIX), exponent[r]
    if total > RADIX:
        total *= INVERSE_RADIX
        power += 1.0
    value[r], exponent[r] = total, power


@kernel
def log_leaf_at(circuit, node, x):
    """Logarithm of a leaf's value at x; 0 if x is missing."""
    first = circuit.leaf_starts[node]
    kind = circuit.kind[node]
    if kind > CATEGORICAL:
        last = circuit.leaf_starts[node + 1] - 1
        return log_density(kind, circuit.leaf_parameters[first], circuit.leaf_parameters[last], x)
    # NaN fails both comparisons.
    if not (x >= 0 and x < circuit.n_values[circuit.variable[node]]):
        return 0.0
    if kind == INDICATOR:
        return 0.0 if x == circuit.leaf_parameters[first] else -np.inf
    return circuit.leaf_parameters[first + np.int64(x)]


@kernel
def wide_upward(circuit, log_leaf, x, rows, first, values, exponents):
    """Wide values of all nodes for the rows rows[first : first + BLOCK].

    Leaves are those of x, or, where log_leaf (n_nodes, n_rows) has columns, of log_leaf. OUT values, exponents
    (n_nodes, BLOCK).
    """
    n_rows = min(BLOCK, rows.size - first)
    child_starts, children = circuit.child_starts, circuit.children
    for node in range(circuit.kind.size):
        value, exponent = values[node], exponents[node]
        kind = circuit.kind[node]
        begin, end = child_starts[node], child_starts[node + 1]
        if kind >= INDICATOR:
            for r in range(n_rows):
                if log_leaf.shape[1] > 0:
                    of_log(log_leaf[node, rows[first + r]], value, exponent, r)
                else:
                    of_log(log_leaf_at(circuit, node, x[circuit.variable[node], rows[first + r]]), value, exponent, r)
        elif kind == PRODUCT:
            value[:n_rows] = values[children[begin], :n_rows]
            exponent[:n_rows] = exponents[children[begin], :n_rows]
            for k in range(begin + 1, end):
                v, e = values[children[k]], exponents[children[k]]
                for r in range(n_rows):
                    multiply(value, exponent, r, v[r], e[r])
        else:
            value[:n_rows] = 0.0
            exponent[:n_rows] = LEAST
            for k in range(begin, end):
                weigh_and_add(circuit.log_weight[k], children[k], values, exponents, node, n_rows)


@kernel
def weigh_and_add(log_weight, source, values, exponents, target, n_rows):
    """Add exp(log_weight) times the wide numbers of one node to those of another."""
    if log_weight == -np.inf:
        return
    whole = np.rint(log_weight / LOG_RADIX)
    weight = np.exp(log_weight - whole * LOG_RADIX)
    value, exponent = values[target], exponents[target]
    v, e = values[source], exponents[source]
    for r in range(n_rows):
        term, power = v[r] * weight, e[r] + whole
        if term < INVERSE_RADIX:
            term *= RADIX
            power -= 1.0
        elif term > RADIX:
            term *= INVERSE_RADIX
            power += 1.0
        if term > 0.0:
            add(value, exponent, r, term, power)


@kernel
def wide_downward(circuit, n_rows, values, exponents, derivatives, powers, scratch):
    """Wide derivatives of the root by every node, from the wide values.

    Products multiply what is left and right of a child, so that children of value zero need no division. scratch
    (2, most children + 1, BLOCK) float64; OUT derivatives, powers (n_nodes, BLOCK).
    """
    derivatives[:, :n_rows] = 0.0
    powers[:, :n_rows] = LEAST
    n_nodes = circuit.kind.size
    derivatives[n_nodes - 1, :n_rows] = 1.0
    powers[n_nodes - 1, :n_rows] = 0.0
    for node in range(n_nodes - 1, -1, -1):
        begin, end = circuit.child_starts[node], circuit.child_starts[node + 1]
        if circuit.kind[node] == SUM:
            for k in range(begin, end):
                weigh_and_add(circuit.log_weight[k], node, derivatives, powers, circuit.children[k], n_rows)
        elif circuit.kind[node] == PRODUCT:
            # scratch[:, k] is the product of the children from the k-th on, times the derivative by the node.
            scratch[0, end - begin, :n_rows] = derivatives[node, :n_rows]
            scratch[1, end - begin, :n_rows] = powers[node, :n_rows]
            for k in range(end - begin - 1, 0, -1):
                child = circuit.children[begin + k]
                for r in range(n_rows):
                    scratch[0, k, r] = scratch[0, k + 1, r]
                    scratch[1, k, r] = scratch[1, k + 1, r]
                    multiply(scratch[0, k], scratch[1, k], r, values[child, r], exponents[child, r])
            # scratch[:, 0] is the product of the children before the k-th.
            scratch[0, 0, :n_rows] = 1.0
            scratch[1, 0, :n_rows] = 0.0
            for k in range(end - begin):
                child = circuit.children[begin + k]
                for r in range(n_rows):
                    multiply(scratch[0, k + 1], scratch[1, k + 1], r, scratch[0, 0, r], scratch[1, 0, r])
                    if scratch[0, k + 1, r] > 0.0:
                        add(derivatives[child], powers[child], r, scratch[0, k + 1, r], scratch[1, k + 1, r])
                    multiply(scratch[0, 0], scratch[1, 0], r, values[child, r], exponents[child, r])


@kernel
def write_logs(values, exponents, n_rows, rows, first, logs):
    """OUT logs[:, rows[first : first + n_rows]] of wide numbers."""
    for node in range(values.shape[0]):
        for r in range(n_rows):
            value = values[node, r]
            log = -np.inf
            if value > 0.0:
                log = np.log(value) + exponents[node, r] * LOG_RADIX
            logs[node, rows[first + r]] = log


@kernel
def wide_root_logs(circuit, log_leaf, x, rows, scratch, logs):
    """Logarithms of the root: OUT logs[rows]. scratch (2, n_nodes, BLOCK) float64."""
    root = circuit.kind.size - 1
    for first in range(0, rows.size, BLOCK):
        wide_upward(circuit, log_leaf, x, rows, first, scratch[0], scratch[1])
        for r in range(min(BLOCK, rows.size - first)):
            value = scratch[0, root, r]
            logs[rows[first + r]] = np.log(value) + scratch[1, root, r] * LOG_RADIX if value > 0.0 else -np.inf


@kernel
def node_logs(circuit, x, rows, scratch, products, logs, derivative_logs):
    """Logarithms of all nodes' values, OUT logs (n_nodes, n_rows), and derivatives if derivative_logs has columns.

    scratch (4, n_nodes, BLOCK), products (2, most children + 1, BLOCK).
    """
    no_leaf = np.empty((0, 0))
    for first in range(0, rows.size, BLOCK):
        n_rows = min(BLOCK, rows.size - first)
        wide_upward(circuit, no_leaf, x, rows, first, scratch[0], scratch[1])
        if derivative_logs.shape[1] > 0:
            wide_downward(circuit, n_rows, scratch[0], scratch[1], scratch[2], scratch[3], products)
            write_logs(scratch[2], scratch[3], n_rows, rows, first, derivative_logs)
        else:
            write_logs(scratch[0], scratch[1], n_rows, rows, first, logs)
