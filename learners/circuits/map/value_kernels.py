"""Kernels for values of a MAX problem's assignments, and bounds of its subspaces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Floats, Integers, Uint8s
from learners.kernels.jit import inner_kernel, kernel

# Assignments evaluated together: each waits for its own product, so eight at a time keep the processor busy.
LANES = 8


class MaxArrays(NamedTuple):
    """A circuit over query variables alone, with every node scaled so that its bound (max at leaves, sum elsewhere) is
    one.

    Nodes are leaves, each a table over the values of one variable, and inner nodes in topological order, children
    first; the last inner node is the root (or, without inner nodes, the only leaf).
    `children[child_starts[i]:leaf_from[i]]` are the inner children of i,
    `children[leaf_from[i]:child_starts[i + 1]]` its leaves. Sums have no leaf children: a sum over one variable
    is itself a leaf.
    """

    value_starts: Integers  # (n_variables + 1,) int64: a value of a variable is a slot
    leaf_variable: Integers  # (n_leaves,) int64
    leaf_starts: Integers  # (n_leaves + 1,) int64
    leaf_value: Floats  # (leaf_starts[-1],) float64, the largest of each leaf is 1
    is_sum: Uint8s  # (n_inner,) uint8
    child_starts: Integers  # (n_inner + 1,) int64
    leaf_from: Integers  # (n_inner,) int64
    children: Integers  # (n_edges,) int64
    weight: Floats  # (n_edges,) float64; they add to 1 at a sum, and are 1 at a product


@inner_kernel
def copy_values_into(x, to):
    """Copy x to the beginning of OUT to, which is at least as long.

    This is a loop, because a slice assignment would compile an error message into every kernel that uses it.
    """
    for i in range(x.size):
        to[i] = x[i]


@kernel
def assignment_values(arrays, assignments, n_assignments, room, values):
    """Compute the value of each assignment; assignments (at least n_assignments, n_variables) int64, room (n_inner,
    LANES) float64; OUT values.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight = arrays.children, arrays.weight
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = is_sum.size
    if n_inner == 0:
        for k in range(n_assignments):
            values[k] = leaf_value[assignments[k, leaf_variable[0]]]
        return
    lane = np.empty(LANES)
    code = np.empty((assignments.shape[1], LANES), dtype=np.int64)
    for start in range(0, n_assignments, LANES):
        for v in range(code.shape[0]):
            for k in range(LANES):
                code[v, k] = assignments[min(start + k, n_assignments - 1), v]
        for i in range(n_inner):
            first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
            if is_sum[i]:
                lane[:] = 0.0
                for e in range(first, end):
                    w, c = weight[e], children[e]
                    for k in range(LANES):
                        lane[k] += w * room[c, k]
            else:
                lane[:] = 1.0
                for e in range(first, middle):
                    c = children[e]
                    for k in range(LANES):
                        lane[k] *= room[c, k]
                for e in range(middle, end):
                    table, v = leaf_starts[children[e]], leaf_variable[children[e]]
                    for k in range(LANES):
                        lane[k] *= leaf_value[table + code[v, k]]
            for k in range(LANES):
                room[i, k] = lane[k]
        for k in range(min(LANES, n_assignments - start)):
            values[start + k] = room[n_inner - 1, k]


@inner_kernel
def assignment_value(arrays, x, room, value):
    """Compute the value of one assignment; x (n_variables,) int64, room (n_inner,) float64; OUT value (1,)."""
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight = arrays.children, arrays.weight
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = is_sum.size
    for i in range(n_inner):
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        if is_sum[i]:
            total = 0.0
            for e in range(first, end):
                total += weight[e] * room[children[e]]
        else:
            total = 1.0
            for e in range(first, middle):
                total *= room[children[e]]
            for e in range(middle, end):
                total *= leaf_value[leaf_starts[children[e]] + x[leaf_variable[children[e]]]]
        room[i] = total
    value[0] = room[n_inner - 1] if n_inner else leaf_value[x[leaf_variable[0]]]


@kernel
def assignment_log_value(arrays, x, room):
    """Return the log value of one assignment, even if the value underflows; x (n_variables,), room (n_inner,) float64."""
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight = arrays.children, arrays.weight
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = is_sum.size
    if n_inner == 0:
        return np.log(leaf_value[x[leaf_variable[0]]])
    for i in range(n_inner):
        if is_sum[i]:
            top = -np.inf
            for e in range(child_starts[i], child_starts[i + 1]):
                top = max(top, room[children[e]])
            total = 0.0
            # exp(-inf - -inf) is NaN: a sum over impossible children is impossible.
            if top > -np.inf:
                for e in range(child_starts[i], child_starts[i + 1]):
                    total += weight[e] * np.exp(room[children[e]] - top)
            room[i] = top + np.log(total)
        else:
            total = 0.0
            for e in range(child_starts[i], leaf_from[i]):
                total += room[children[e]]
            mass = 1.0
            for e in range(leaf_from[i], child_starts[i + 1]):
                mass *= leaf_value[leaf_starts[children[e]] + x[leaf_variable[children[e]]]]
                if mass < 1e-200:
                    total += np.log(mass)
                    mass = 1.0
            room[i] = total + np.log(mass)
    return room[n_inner - 1]


@kernel
def upward_bound_pass(arrays, allowed, values, leaf_values):
    """Compute the bound of every node over the allowed values: OUT values (n_inner,), leaf_values (n_leaves,).

    At leaves the maximum of the allowed values; allowed (n_slots,) uint8.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, value_starts = arrays.children, arrays.weight, arrays.value_starts
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    for leaf in range(leaf_variable.size):
        first = leaf_starts[leaf]
        slot = value_starts[leaf_variable[leaf]]
        top = 0.0
        for x in range(leaf_starts[leaf + 1] - first):
            if allowed[slot + x]:
                top = max(top, leaf_value[first + x])
        leaf_values[leaf] = top
    for i in range(is_sum.size):
        if is_sum[i]:
            total = 0.0
            for e in range(child_starts[i], child_starts[i + 1]):
                total += weight[e] * values[children[e]]
        else:
            total = 1.0
            for e in range(child_starts[i], leaf_from[i]):
                total *= values[children[e]]
            for e in range(leaf_from[i], child_starts[i + 1]):
                total *= leaf_values[children[e]]
        values[i] = total


@kernel
def downward_bound_pass(arrays, values, leaf_values, derivative, slots):
    """Compute the bound of the subspace X = x for every slot, by derivatives of the root; after `upward_bound_pass`.

    derivative (n_inner,) float64 scratch; OUT slots (n_slots,) float64, including values that are not allowed.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, value_starts = arrays.children, arrays.weight, arrays.value_starts
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = is_sum.size
    slots[:] = 0.0
    if n_inner == 0:
        for x in range(leaf_value.size):
            slots[value_starts[leaf_variable[0]] + x] = leaf_value[x]
        return
    derivative[:n_inner] = 0.0
    derivative[n_inner - 1] = 1.0
    for i in range(n_inner - 1, -1, -1):
        d = derivative[i]
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        if d == 0.0:
            continue
        if is_sum[i]:
            for e in range(first, end):
                derivative[children[e]] += d * weight[e]
            continue
        n_zero, zero_at, product = 0, -1, d
        for e in range(first, end):
            value = values[children[e]] if e < middle else leaf_values[children[e]]
            if value == 0.0:
                n_zero += 1
                zero_at = e
            else:
                product *= value
        if n_zero > 1:
            continue
        begin = first
        if n_zero == 1:
            begin, end = zero_at, zero_at + 1
        for e in range(begin, end):
            child = children[e]
            if e < middle:
                derivative[child] += product if n_zero else product / values[child]
            else:
                others = product if n_zero else product / leaf_values[child]
                table = leaf_starts[child]
                slot = value_starts[leaf_variable[child]]
                for x in range(leaf_starts[child + 1] - table):
                    slots[slot + x] += others * leaf_value[table + x]


@kernel
def look_ahead_bounds(arrays, allowed, rows, spans, tops, leaf_tops, slots):
    """Compute the bound of the subspace X = x for every slot, tightened at every sum; OUT slots (n_slots,) float64.

    rows[i * n_slots + s] bounds node i's value if slot s holds, and tops[i] bounds it anywhere. At a sum every
    variable X of the scope gives a bound: the maximum over x of the sum of the children's bounds at X = x,
    because all children must agree on X. The least of these bounds the sum, and caps the row. Without the cap
    this is the bound by derivatives. Only the span from a node's first to its last variable is written and read.
    Scratch: rows (n_inner * n_slots,), spans (n_inner, 2) int64, tops (n_inner,), leaf_tops (n_leaves,); allowed
    (n_slots,) uint8.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, value_starts = arrays.children, arrays.weight, arrays.value_starts
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_slots = value_starts[value_starts.size - 1]
    n_inner = is_sum.size
    for leaf in range(leaf_variable.size):
        table, slot = leaf_starts[leaf], value_starts[leaf_variable[leaf]]
        top = 0.0
        for x in range(leaf_starts[leaf + 1] - table):
            if allowed[slot + x]:
                top = max(top, leaf_value[table + x])
        leaf_tops[leaf] = top
    # Loops over slots run to an array's size: a bound that numba knows is not negative lets LLVM vectorise them.
    for i in range(n_inner):
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        if is_sum[i]:
            left, right = spans[children[first], 0], spans[children[first], 1]
            slot_left, slot_right = value_starts[left], value_starts[right]
            row = rows[i * n_slots + slot_left : i * n_slots + slot_right]
            w, c = weight[first], children[first] * n_slots
            below = rows[c + slot_left : c + slot_right]
            for s in range(row.size):
                row[s] = w * below[s]
            for e in range(first + 1, end):
                w, c = weight[e], children[e] * n_slots
                below = rows[c + slot_left : c + slot_right]
                for s in range(row.size):
                    row[s] += w * below[s]
            top = np.inf
            # A variable outside the scope has no bounds here: zeros.
            if row.size == 2 * (right - left):
                for v in range(row.size // 2):
                    most = max(row[2 * v], row[2 * v + 1])
                    if 0.0 < most < top:
                        top = most
            else:
                for v in range(left, right):
                    most = 0.0
                    for s in range(value_starts[v], value_starts[v + 1]):
                        most = max(most, row[s - slot_left])
                    if 0.0 < most < top:
                        top = most
            if top == np.inf:
                top = 0.0
            for s in range(row.size):
                row[s] = min(row[s], top)
            tops[i] = top
            spans[i, 0], spans[i, 1] = left, right
            continue
        product = 1.0
        left, right = value_starts.size, 0
        for e in range(first, middle):
            product *= tops[children[e]]
            left, right = min(left, spans[children[e], 0]), max(right, spans[children[e], 1])
        row = rows[i * n_slots : (i + 1) * n_slots]
        for e in range(middle, end):
            product *= leaf_tops[children[e]]
            v = leaf_variable[children[e]]
            left, right = min(left, v), max(right, v + 1)
        row[value_starts[left] : value_starts[right]] = 0.0
        tops[i] = product
        spans[i, 0], spans[i, 1] = left, right
        if product == 0.0:
            continue
        for e in range(first, middle):
            c = children[e]
            others = product / tops[c]
            slot_left, slot_right = value_starts[spans[c, 0]], value_starts[spans[c, 1]]
            part = row[slot_left:slot_right]
            below = rows[c * n_slots + slot_left : c * n_slots + slot_right]
            for s in range(part.size):
                part[s] += others * below[s]
        for e in range(middle, end):
            leaf = children[e]
            table, slot = leaf_starts[leaf], value_starts[leaf_variable[leaf]]
            others = product / leaf_tops[leaf]
            for x in range(leaf_starts[leaf + 1] - table):
                if allowed[slot + x]:
                    row[slot + x] = others * leaf_value[table + x]
    if n_inner:
        for s in range(n_slots):
            slots[s] = rows[(n_inner - 1) * n_slots + s]
    else:
        for s in range(n_slots):
            slots[s] = leaf_value[s] if allowed[s] else 0.0
