"""Values of several assignments in parallel, and of each after any change of one variable.

A change is a variable and the number of values by which to rotate it. Variable v with d values has the d - 1
changes from value_starts[v] - v on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.circuits.map.value_kernels import copy_values_into
from learners.kernels.arrays import Floats, Integers
from learners.kernels.jit import inner_kernel, kernel

# Assignments side by side: four registers of 512 bits.
WIDTH = 32
# A flow that is lost below 1e-308 takes less than 1e-218 from a value, and none is asked for of assignments below this root.
SMALLEST_LEAF = 1e-90
SMALLEST_ROOT = 1e-200


class BlockRoom(NamedTuple):
    """Values of one block of assignments; width is at most WIDTH."""

    codes: Integers  # (n_variables, width) int64: the assignments
    up: Floats  # (n_inner, width) float64: values
    down: Floats  # (n_inner, width) float64: derivatives of the root, or flows
    found: Floats  # (n_changes, width) float64: values after every change
    prefix: Floats  # (most children + 1, width) float64
    size: Integers  # (2,) int64: how many assignments, and how many columns are computed


class LeafEdges(NamedTuple):
    """Leaves below products, in the order of their edges and in that of their variables."""

    variable: Integers  # (n_edges,) int64
    low: Floats  # (n_edges,) float64: the leaf's first value
    high: Floats  # (n_edges,) float64: its second
    rise: Floats  # (n_edges,) float64: second ÷ first
    fall: Floats  # (n_edges,) float64: first ÷ second
    starts: Integers  # (n_variables + 1,) int64 into parent and edge
    parent: Integers  # (n_edges,) int64: the product
    edge: Integers  # (n_edges,) int64
    is_binary: bool  # whether all variables have two values
    has_zeros: bool  # whether a leaf has a value, zero or nearly, with which ratios will not do


@kernel
def leaf_edges(arrays):
    """Return the leaf edges of a circuit."""
    child_starts, leaf_from, children = arrays.child_starts, arrays.leaf_from, arrays.children
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_edges, n_variables = children.size, arrays.value_starts.size - 1
    variable, starts = np.empty(n_edges, dtype=np.int64), np.zeros(n_variables + 2, dtype=np.int64)
    low, high, rise, fall = np.ones(n_edges), np.ones(n_edges), np.empty(n_edges), np.empty(n_edges)
    least = 1.0
    for i in range(leaf_from.size):
        for e in range(leaf_from[i], child_starts[i + 1]):
            v, table = leaf_variable[children[e]], leaf_starts[children[e]]
            variable[e], low[e], high[e] = v, leaf_value[table], leaf_value[table + 1]
            starts[v + 2] += 1
            least = min(least, min(low[e], high[e]))
    for v in range(n_variables):
        starts[v + 2] += starts[v + 1]
    is_binary = arrays.value_starts[n_variables] == 2 * n_variables
    if not is_binary:
        for i in range(leaf_value.size):
            least = min(least, leaf_value[i])
    for e in range(n_edges):
        rise[e] = high[e] / low[e]
    for e in range(n_edges):
        fall[e] = low[e] / high[e]
    parent, edge = np.empty(n_edges, dtype=np.int64), np.empty(n_edges, dtype=np.int64)
    # starts is one place ahead, and moves back as each variable's leaves are filled in.
    for i in range(leaf_from.size):
        for e in range(leaf_from[i], child_starts[i + 1]):
            position = starts[variable[e] + 1]
            starts[variable[e] + 1] += 1
            parent[position], edge[position] = i, e
    return LeafEdges(
        variable, low, high, rise, fall, starts[: n_variables + 1], parent, edge, is_binary, least < SMALLEST_LEAF
    )


# The loops over columns below run to an array's size: trip counts that numba knows would be unrolled and not vectorised.
# Four edges at a time: a column is then read and written once for four.


@kernel
def node_values_of_assignments(arrays, edges, block):
    """Compute the values of all nodes for the assignments block.codes; OUT block.up[:, :n_columns]."""
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, leaf_starts, leaf_value = arrays.children, arrays.weight, arrays.leaf_starts, arrays.leaf_value
    variable, low, high, is_binary = edges.variable, edges.low, edges.high, edges.is_binary
    up, codes, n_columns = block.up, block.codes, block.size[1]
    for i in range(is_sum.size):
        e, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        out = up[i, :n_columns]
        if is_sum[i]:
            out[:] = 0.0
            while e + 4 <= end:
                w0, w1, w2, w3 = weight[e], weight[e + 1], weight[e + 2], weight[e + 3]
                a0, a1, a2, a3 = up[children[e]], up[children[e + 1]], up[children[e + 2]], up[children[e + 3]]
                for k in range(out.size):
                    out[k] += (w0 * a0[k] + w1 * a1[k]) + (w2 * a2[k] + w3 * a3[k])
                e += 4
            while e < end:
                w0, a0 = weight[e], up[children[e]]
                for k in range(out.size):
                    out[k] += w0 * a0[k]
                e += 1
            continue
        out[:] = 1.0
        while e < middle:
            a0 = up[children[e]]
            for k in range(out.size):
                out[k] *= a0[k]
            e += 1
        while is_binary and e + 4 <= end:
            c0, c1, c2, c3 = codes[variable[e]], codes[variable[e + 1]], codes[variable[e + 2]], codes[variable[e + 3]]
            p0, p1, p2, p3 = low[e], low[e + 1], low[e + 2], low[e + 3]
            q0, q1, q2, q3 = high[e], high[e + 1], high[e + 2], high[e + 3]
            for k in range(out.size):
                out[k] *= ((q0 if c0[k] else p0) * (q1 if c1[k] else p1)) * (
                    (q2 if c2[k] else p2) * (q3 if c3[k] else p3)
                )
            e += 4
        while is_binary and e < end:
            c0, p0, q0 = codes[variable[e]], low[e], high[e]
            for k in range(out.size):
                out[k] *= q0 if c0[k] else p0
            e += 1
        while e < end:
            table, code = leaf_value[leaf_starts[children[e]] :], codes[variable[e]]
            for k in range(out.size):
                out[k] *= table[code[k]]
            e += 1


@kernel
def neighbour_values(arrays, edges, block):
    """Compute the values after every change from values_side_by_side, if no values are zero: OUT block.found[:,
    :n_columns].

    A node's flow is its value times the derivative of the root by it. A product's flow, times the ratio of a
    leaf's values after and before the change, is the product's new contribution to the root.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight = arrays.children, arrays.weight
    n_columns = block.size[1]
    up, flow = block.up, block.down
    flow[:, :n_columns] = 0.0
    copy_values_into(up[is_sum.size - 1, :n_columns], flow[is_sum.size - 1])
    for i in range(is_sum.size - 1, -1, -1):
        own = flow[i, :n_columns]
        if is_sum[i]:
            value = up[i]
            for k in range(own.size):
                own[k] = own[k] / value[k] if value[k] > 0.0 else 0.0
            for e in range(child_starts[i], leaf_from[i]):
                w, below, out = weight[e], up[children[e]], flow[children[e]]
                for k in range(own.size):
                    out[k] += own[k] * (w * below[k])
        else:
            for e in range(child_starts[i], leaf_from[i]):
                out = flow[children[e]]
                for k in range(own.size):
                    out[k] += own[k]
    value_starts = arrays.value_starts
    for v in range(value_starts.size - 1):
        change = value_starts[v] - v
        block.found[change : value_starts[v + 1] - v - 1, :n_columns] = 0.0
        if value_starts[v + 1] - value_starts[v] == 2:
            add_binary_neighbour_values(edges, v, flow, block.codes[v, :n_columns], block.found[change])
            continue
        for position in range(edges.starts[v], edges.starts[v + 1]):
            table = arrays.leaf_value[arrays.leaf_starts[children[edges.edge[position]]] :]
            own, others = flow[edges.parent[position]], block.prefix[0, :n_columns]
            for k in range(others.size):
                others[k] = own[k] / table[block.codes[v, k]]
            add_leaf_neighbour_values(
                others, table, block.codes[v], value_starts[v + 1] - value_starts[v], block.found[change:]
            )


@inner_kernel
def add_binary_neighbour_values(edges, v, flow, code, out):
    """Add to OUT out the flows of the parents of the two-valued variable v, times their ratios; code (n_columns,)
    int64.
    """
    edge, parent, rise, fall = edges.edge, edges.parent, edges.rise, edges.fall
    n, end = edges.starts[v], edges.starts[v + 1]
    while n + 4 <= end:
        a0, a1, a2, a3 = flow[parent[n]], flow[parent[n + 1]], flow[parent[n + 2]], flow[parent[n + 3]]
        p0, p1, p2, p3 = rise[edge[n]], rise[edge[n + 1]], rise[edge[n + 2]], rise[edge[n + 3]]
        q0, q1, q2, q3 = fall[edge[n]], fall[edge[n + 1]], fall[edge[n + 2]], fall[edge[n + 3]]
        for k in range(code.size):
            out[k] += (a0[k] * (q0 if code[k] else p0) + a1[k] * (q1 if code[k] else p1)) + (
                a2[k] * (q2 if code[k] else p2) + a3[k] * (q3 if code[k] else p3)
            )
        n += 4
    for position in range(n, end):
        a, p, q = flow[parent[position]], rise[edge[position]], fall[edge[position]]
        for k in range(code.size):
            out[k] += a[k] * (q if code[k] else p)


@inner_kernel
def add_leaf_neighbour_values(others, table, code, n_values, out):
    """Add to OUT out (n_values - 1 or more, width): others (n_columns,) times the leaf's value after every change."""
    for step in range(1, n_values):
        for k in range(others.size):
            after = code[k] + step
            out[step - 1, k] += others[k] * table[after if after < n_values else after - n_values]


@kernel
def neighbour_values_with_zeros(arrays, block):
    """Compute the values after every change if values may be zero or tiny, by products from both ends instead of
    divisions.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, value_starts = arrays.children, arrays.weight, arrays.value_starts
    n_columns = block.size[1]
    up, down, prefix = block.up, block.down, block.prefix
    block.found[:, :n_columns] = 0.0
    down[:, :n_columns] = 0.0
    down[is_sum.size - 1, :n_columns] = 1.0
    right = np.empty(n_columns)
    for i in range(is_sum.size - 1, -1, -1):
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        if is_sum[i]:
            own = down[i]
            for e in range(first, end):
                w, out = weight[e], down[children[e]]
                for k in range(right.size):
                    out[k] += w * own[k]
            continue
        copy_values_into(down[i, :n_columns], prefix[0])
        for e in range(first, end):
            left, out = prefix[e - first], prefix[e - first + 1]
            if e < middle:
                below = up[children[e]]
                for k in range(right.size):
                    out[k] = left[k] * below[k]
                continue
            code, table = (
                block.codes[arrays.leaf_variable[children[e]]],
                arrays.leaf_value[arrays.leaf_starts[children[e]] :],
            )
            for k in range(right.size):
                out[k] = left[k] * table[code[k]]
        right[:] = 1.0
        for e in range(end - 1, first - 1, -1):
            left = prefix[e - first]
            if e < middle:
                below, out = up[children[e]], down[children[e]]
                for k in range(right.size):
                    out[k] += left[k] * right[k]
                    right[k] *= below[k]
                continue
            v = arrays.leaf_variable[children[e]]
            code, table = block.codes[v], arrays.leaf_value[arrays.leaf_starts[children[e]] :]
            for k in range(right.size):
                left[k] *= right[k]
                right[k] *= table[code[k]]
            others = left[: right.size]
            add_leaf_neighbour_values(
                others, table, code, value_starts[v + 1] - value_starts[v], block.found[value_starts[v] - v :]
            )
