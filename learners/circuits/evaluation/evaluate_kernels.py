"""Kernels that evaluate nodes: blocks of rows, single rows, and wide numbers beyond double precision.

A wide number is value · 2^(500 · exponent) with 2^-500 < value < 2^500, or zero with the exponent LEAST.
"""

from __future__ import annotations

import numpy as np

from learners.circuits.evaluation.density_kernels import numeric_leaf_log_density
from learners.circuits.kernels import (
    CATEGORICAL,
    INDICATOR,
    LOOKUP,
    PRODUCT,
    PRODUCT_OF,
    PRODUCT_OF_TWO,
    SUM,
    SUM_OF,
    SUM_OF_TWO,
    TABLE,
    TABLE_OF_TWO,
)
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import (
    N_LANES,
    load_code_lanes,
    load_lanes,
    select_lanes,
    store_integer_lanes,
    store_lanes,
    unchecked_array_item,
)
from learners.kernels.wide_numbers import (
    LEAST,
    LOG_RADIX,
    add_weighted_wide_numbers,
    add_wide_numbers,
    exp_as_wide_number,
    multiply_wide_numbers,
    write_wide_number_logs,
)

# Rows that are evaluated together: two AVX-512 registers; more would push the values of larger circuits out of the cache.
BLOCK = N_LANES
# Values are at most one, and so is the derivative of the root by any of them. So a value lost below 1e-300 takes no more
# than that from the root, and a root above this threshold is right to all its digits.
SMALLEST = 1e-200


@kernel
def load_row_block(plan, x, rows, first, n_rows, values, codes):
    """Load the consecutive rows[first : first + n_rows] of x: OUT values[: n_planes] and codes (n_variables, BLOCK)
    int64.

    A missing value has ones in all planes and the code n_values. Rows beyond n_rows are missing.
    """
    row = rows[first]
    for v in range(plan.n_values.size):
        n = plan.n_values[v]
        if n == 0:
            continue
        start, end = plan.plane_starts[v], plan.plane_starts[v + 1]
        if n_rows == BLOCK:
            missing = np.float64(n)
            code = load_code_lanes(x, v * x.shape[1] + row, missing)
            store_integer_lanes(codes, v, code)
            for a in range(start, end):
                store_lanes(values, a, select_lanes((code == np.float64(a - start)) | (code == missing), 1.0, 0.0))
            continue
        for r in range(BLOCK):
            codes[v, r] = n
        for r in range(n_rows):
            value = x[v, rows[first + r]]
            # NaN fails both comparisons.
            if value >= 0 and value < n:
                codes[v, r] = np.int64(value)
        for a in range(end - start):
            for r in range(BLOCK):
                values[start + a, r] = 1.0 if codes[v, r] == a or codes[v, r] == n else 0.0


@kernel
def upward_pass_block(plan, weight, x, rows, first, n_rows, values, codes):
    """Compute the values of all operations for a block of rows; values below the smallest double are zero."""
    n_planes = plan.plane_starts[-1]
    starts, child = plan.starts, plan.child
    for s in range(plan.segment_kind.size):
        kind = plan.segment_kind[s]
        begin, end = plan.segments[s], plan.segments[s + 1]
        if kind == SUM_OF_TWO or kind == TABLE_OF_TWO:
            for i in range(begin, end):
                e = unchecked_array_item(starts, i)
                a, b = (
                    load_lanes(values, unchecked_array_item(child, e)),
                    load_lanes(values, unchecked_array_item(child, e + 1)),
                )
                store_lanes(
                    values, n_planes + i, unchecked_array_item(weight, e) * a + unchecked_array_item(weight, e + 1) * b
                )
        elif kind == PRODUCT_OF_TWO:
            for i in range(begin, end):
                e = unchecked_array_item(starts, i)
                product = load_lanes(values, unchecked_array_item(child, e)) * load_lanes(
                    values, unchecked_array_item(child, e + 1)
                )
                store_lanes(values, n_planes + i, product)
        elif kind == SUM_OF or kind == TABLE:
            for i in range(begin, end):
                first_entry = unchecked_array_item(starts, i)
                total = unchecked_array_item(weight, first_entry) * load_lanes(
                    values, unchecked_array_item(child, first_entry)
                )
                for e in range(first_entry + 1, unchecked_array_item(starts, i + 1)):
                    total = total + unchecked_array_item(weight, e) * load_lanes(values, unchecked_array_item(child, e))
                store_lanes(values, n_planes + i, total)
        elif kind == PRODUCT_OF:
            for i in range(begin, end):
                first_entry = unchecked_array_item(starts, i)
                product = load_lanes(values, unchecked_array_item(child, first_entry))
                for e in range(first_entry + 1, unchecked_array_item(starts, i + 1)):
                    product = product * load_lanes(values, unchecked_array_item(child, e))
                store_lanes(values, n_planes + i, product)
        elif kind == LOOKUP:
            for i in range(begin, end):
                out, code = values[n_planes + i], codes[plan.variable[i]]
                for r in range(out.size):
                    out[r] = weight[starts[i] + code[r]]
        else:
            for i in range(begin, end):
                out, v = values[n_planes + i], plan.variable[i]
                out[:] = 1.0
                leaf = plan.numeric[i]
                for r in range(n_rows):
                    value = x[v, rows[first + r]]
                    if not np.isnan(value):
                        out[r] = np.exp(
                            numeric_leaf_log_density(leaf[0], leaf[1], leaf[2], plan.extras, plan.extra[i], value)
                            - leaf[3]
                        )


@kernel
def root_log_values_by_block(plan, weight, x, rows, values, codes, logs):
    """Compute the log of the root: OUT logs[rows]; NaN where the value is zero or too small for a double."""
    for first in range(0, rows.size, BLOCK):
        n_rows = min(BLOCK, rows.size - first)
        load_row_block(plan, x, rows, first, n_rows, values, codes)
        upward_pass_block(plan, weight, x, rows, first, n_rows, values, codes)
        for r in range(n_rows):
            root = values[plan.root, r]
            logs[rows[first + r]] = np.log(root) if root > SMALLEST else np.nan


@inner_kernel
def upward_pass_one_row(plan, weight, codes, x, row, values):
    """Compute the values of all slots for one row, like `upward_pass_block` without blocks.

    codes (n_variables,) int64 is scratch; OUT values (n_slots,) float64. Planes are filled only if needed.
    """
    n_planes = plan.plane_starts[-1]
    starts, child, variable = plan.starts, plan.child, plan.variable
    for v in range(plan.n_values.size):
        n = plan.n_values[v]
        value = x[v, row]
        code = n
        if value >= 0 and value < n:
            code = np.int64(value)
        codes[v] = code
        if plan.needs_planes:
            start = plan.plane_starts[v]
            for a in range(plan.plane_starts[v + 1] - start):
                values[start + a] = 1.0 if code == a or code == n else 0.0
    for s in range(plan.segment_kind.size):
        kind = plan.segment_kind[s]
        begin, end = plan.segments[s], plan.segments[s + 1]
        if kind <= LOOKUP:
            for i in range(begin, end):
                v = variable[i]
                first = starts[i]
                if kind == LOOKUP or codes[v] < plan.n_values[v]:
                    values[n_planes + i] = weight[first + codes[v]]
                else:
                    total = weight[first]
                    for e in range(first + 1, starts[i + 1]):
                        total += weight[e]
                    values[n_planes + i] = total
        elif kind == SUM_OF_TWO:
            for i in range(begin, end):
                e = starts[i]
                values[n_planes + i] = weight[e] * values[child[e]] + weight[e + 1] * values[child[e + 1]]
        elif kind == SUM_OF:
            for i in range(begin, end):
                e = starts[i]
                total = weight[e] * values[child[e]]
                for e in range(starts[i] + 1, starts[i + 1]):
                    total += weight[e] * values[child[e]]
                values[n_planes + i] = total
        elif kind >= PRODUCT_OF:
            for i in range(begin, end):
                product = values[child[starts[i]]]
                for e in range(starts[i] + 1, starts[i + 1]):
                    product *= values[child[e]]
                values[n_planes + i] = product
        else:
            for i in range(begin, end):
                value = x[variable[i], row]
                leaf = plan.numeric[i]
                density = 1.0
                if not np.isnan(value):
                    density = np.exp(
                        numeric_leaf_log_density(leaf[0], leaf[1], leaf[2], plan.extras, plan.extra[i], value) - leaf[3]
                    )
                values[n_planes + i] = density


@kernel
def root_log_values_by_row(plan, weight, x, values, codes, logs):
    """Compute `root_log_values_by_block` for all rows of x, one at a time."""
    for row in range(logs.size):
        upward_pass_one_row(plan, weight, codes, x, row, values)
        root = values[plan.root]
        logs[row] = np.log(root) if root > SMALLEST else np.nan


@kernel
def write_leaf_log_values(circuit, x, logs):
    """Compute the log values of all leaves at each row of x, 0 where missing: OUT logs (n_nodes, n_rows), leaves only."""
    kinds, starts, parameters = circuit.kind, circuit.leaf_starts, circuit.leaf_parameters
    for node in range(kinds.size):
        kind, first = kinds[node], starts[node]
        if kind < INDICATOR:
            continue
        v, second = circuit.variable[node], parameters[min(first + 1, starts[node + 1] - 1)]
        for row in range(x.shape[1]):
            value = x[v, row]
            if kind > CATEGORICAL:
                log = numeric_leaf_log_density(
                    np.float64(kind), parameters[first], second, parameters, first + 2, value
                )
            elif not (value >= 0 and value < circuit.n_values[v]):  # NaN fails both comparisons
                log = 0.0
            elif kind == INDICATOR:
                log = 0.0 if value == parameters[first] else -np.inf
            else:
                log = parameters[first + np.int64(value)]
            logs[node, row] = log


@inner_kernel
def wide_upward_pass(circuit, log_leaf, first, n_rows, values, exponents):
    """Compute wide values of all nodes for n_rows rows starting at `first`, from log_leaf of `write_leaf_log_values`:
    OUT values, exponents (n_nodes, BLOCK).
    """
    kinds, child_starts, children, log_weight = circuit.kind, circuit.child_starts, circuit.children, circuit.log_weight
    for node in range(kinds.size):
        kind = kinds[node]
        begin, end = child_starts[node], child_starts[node + 1]
        if kind >= INDICATOR:
            for r in range(n_rows):
                values[node, r], exponents[node, r] = exp_as_wide_number(log_leaf[node, first + r])
        elif kind == PRODUCT:
            for r in range(n_rows):
                value, power = 1.0, 0.0
                for k in range(begin, end):
                    c = children[k]
                    value, power = multiply_wide_numbers(value, power, values[c, r], exponents[c, r])
                values[node, r], exponents[node, r] = value, power
        else:
            for r in range(n_rows):
                values[node, r], exponents[node, r] = 0.0, LEAST
            for k in range(begin, end):
                add_weighted_wide_numbers(log_weight[k], children[k], values, exponents, node, n_rows)


@inner_kernel
def wide_downward_pass(circuit, n_rows, values, exponents, derivatives, powers, scratch):
    """Compute wide derivatives of the root by every node, from the wide values.

    Products multiply the factors left and right of a child, so that children of value zero need no division.
    scratch (2, most children + 1, BLOCK) float64; OUT derivatives, powers (n_nodes, BLOCK).
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
                add_weighted_wide_numbers(log_weight[k], node, derivatives, powers, children[k], n_rows)
        elif kinds[node] == PRODUCT:
            for r in range(n_rows):
                # scratch[:, k] is the product of the children from the k-th on, times the derivative by the node.
                right, right_power = derivatives[node, r], powers[node, r]
                for k in range(end - begin - 1, -1, -1):
                    scratch[0, k + 1, r], scratch[1, k + 1, r] = right, right_power
                    c = children[begin + k]
                    right, right_power = multiply_wide_numbers(right, right_power, values[c, r], exponents[c, r])
                left, left_power = 1.0, 0.0
                for k in range(end - begin):
                    c = children[begin + k]
                    term, power = multiply_wide_numbers(scratch[0, k + 1, r], scratch[1, k + 1, r], left, left_power)
                    derivatives[c, r], powers[c, r] = add_wide_numbers(derivatives[c, r], powers[c, r], term, power)
                    left, left_power = multiply_wide_numbers(left, left_power, values[c, r], exponents[c, r])


@kernel
def wide_root_log_values(circuit, log_leaf, scratch, logs):
    """Compute the log of the root: OUT logs (n_rows,). log_leaf of `write_leaf_log_values`; scratch (2, n_nodes, BLOCK)
    float64.
    """
    root = circuit.kind.size - 1
    for first in range(0, logs.size, BLOCK):
        n_rows = min(BLOCK, logs.size - first)
        wide_upward_pass(circuit, log_leaf, first, n_rows, scratch[0], scratch[1])
        for r in range(n_rows):
            value = scratch[0, root, r]
            logs[first + r] = np.log(value) + scratch[1, root, r] * LOG_RADIX if value > 0.0 else -np.inf


@kernel
def write_node_log_values(circuit, log_leaf, scratch, products, logs, derivative_logs):
    """Compute the logs of all nodes: OUT logs (n_nodes, n_rows) of values, and of derivatives if derivative_logs has
    columns.

    log_leaf of `write_leaf_log_values`; scratch (4, n_nodes, BLOCK), products (2, most children + 1, BLOCK).
    """
    for first in range(0, log_leaf.shape[1], BLOCK):
        n_rows = min(BLOCK, log_leaf.shape[1] - first)
        wide_upward_pass(circuit, log_leaf, first, n_rows, scratch[0], scratch[1])
        write_wide_number_logs(scratch[0], scratch[1], n_rows, first, logs)
        if derivative_logs.shape[1] > 0:
            wide_downward_pass(circuit, n_rows, scratch[0], scratch[1], scratch[2], scratch[3], products)
            write_wide_number_logs(scratch[2], scratch[3], n_rows, first, derivative_logs)
