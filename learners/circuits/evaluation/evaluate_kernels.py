"""Values of a circuit for blocks of rows, upwards."""

from __future__ import annotations

import numpy as np

from learners.circuits.evaluation.density_kernels import log_density
from learners.circuits.kernels import LOOKUP, PRODUCT_OF, PRODUCT_OF_TWO, SUM_OF, SUM_OF_TWO, TABLE, TABLE_OF_TWO
from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.simd import N_LANES, codes_at, item, lanes_at, put_lanes, put_whole, where

# Rows that are evaluated together: two AVX-512 registers; more would push the values of larger circuits out of the cache.
BLOCK = N_LANES
# Values are at most one, and so is the derivative of the root by any of them. So a value lost below 1e-300 takes no more
# than that from the root, and a root above this threshold is right to all its digits.
SMALLEST = 1e-200


@kernel
def load(plan, x, rows, first, n_rows, values, codes):
    """Read rows[first : first + n_rows] of x, which follow each other: OUT values[: n_planes] and codes (n_variables, BLOCK) int64.

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
            code = codes_at(x, v * x.shape[1] + row, missing)
            put_whole(codes, v, code)
            for a in range(start, end):
                put_lanes(values, a, where((code == np.float64(a - start)) | (code == missing), 1.0, 0.0))
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
def upward(plan, weight, x, rows, first, n_rows, values, codes):
    """Values of all operations for a block of rows, zero where they are below the smallest double."""
    n_planes = plan.plane_starts[-1]
    starts, child = plan.starts, plan.child
    for s in range(plan.segment_kind.size):
        kind = plan.segment_kind[s]
        begin, end = plan.segments[s], plan.segments[s + 1]
        if kind == SUM_OF_TWO or kind == TABLE_OF_TWO:
            for i in range(begin, end):
                e = item(starts, i)
                a, b = lanes_at(values, item(child, e)), lanes_at(values, item(child, e + 1))
                put_lanes(values, n_planes + i, item(weight, e) * a + item(weight, e + 1) * b)
        elif kind == PRODUCT_OF_TWO:
            for i in range(begin, end):
                e = item(starts, i)
                product = lanes_at(values, item(child, e)) * lanes_at(values, item(child, e + 1))
                put_lanes(values, n_planes + i, product)
        elif kind == SUM_OF or kind == TABLE:
            for i in range(begin, end):
                first_entry = item(starts, i)
                total = item(weight, first_entry) * lanes_at(values, item(child, first_entry))
                for e in range(first_entry + 1, item(starts, i + 1)):
                    total = total + item(weight, e) * lanes_at(values, item(child, e))
                put_lanes(values, n_planes + i, total)
        elif kind == PRODUCT_OF:
            for i in range(begin, end):
                first_entry = item(starts, i)
                product = lanes_at(values, item(child, first_entry))
                for e in range(first_entry + 1, item(starts, i + 1)):
                    product = product * lanes_at(values, item(child, e))
                put_lanes(values, n_planes + i, product)
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
                            log_density(leaf[0], leaf[1], leaf[2], plan.extras, plan.extra[i], value) - leaf[3]
                        )


@kernel
def root_logs(plan, weight, x, rows, values, codes, logs):
    """Logarithms of the root: OUT logs[rows]; NaN where the value is too small for a double, or zero."""
    for first in range(0, rows.size, BLOCK):
        n_rows = min(BLOCK, rows.size - first)
        load(plan, x, rows, first, n_rows, values, codes)
        upward(plan, weight, x, rows, first, n_rows, values, codes)
        for r in range(n_rows):
            root = values[plan.root, r]
            logs[rows[first + r]] = np.log(root) if root > SMALLEST else np.nan


@inner_kernel
def upward_one(plan, weight, codes, x, row, values):
    """Values of all slots for one row: the same as `upward`, operation by operation, without blocks.

    codes (n_variables,) int64 is scratch; OUT values (n_slots,) float64. Planes are filled only where something needs them.
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
                        log_density(leaf[0], leaf[1], leaf[2], plan.extras, plan.extra[i], value) - leaf[3]
                    )
                values[n_planes + i] = density


@kernel
def few_root_logs(plan, weight, x, values, codes, logs):
    """As `root_logs` for all rows of x, one at a time."""
    for row in range(logs.size):
        upward_one(plan, weight, codes, x, row, values)
        root = values[plan.root]
        logs[row] = np.log(root) if root > SMALLEST else np.nan
