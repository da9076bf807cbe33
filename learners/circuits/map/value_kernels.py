"""Values of assignments, on the scale of the bound, and their derivatives with respect to every value of every variable."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.random import random_bits

# Assignments evaluated together: each waits for its own product, so eight at a time keep the processor busy.
LANES = 8


@inner_kernel
def copy(x, to):
    """OUT to: the first values are those of x, which has no more.

    A loop, as the assignment of one slice to another compiles the words of an error into every kernel that has one.
    """
    for i in range(x.size):
        to[i] = x[i]


@kernel
def assignment_values(arrays, assignments, n_assignments, room, values):
    """Value of each assignment; assignments (at least n_assignments, n_variables) int64, room (n_inner, LANES) float64; OUT values."""
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
    """Value of one assignment; x (n_variables,) int64, room (n_inner,) float64; OUT value (1,)."""
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
def log_value(arrays, x, room):
    """Logarithm of the value of one assignment, also where the value itself underflows; x (n_variables,), room (n_inner,) float64."""
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
def upward(arrays, allowed, values, leaf_values):
    """Bound of every node over the allowed values: OUT values (n_inner,), leaf_values (n_leaves,).

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
def downward(arrays, values, leaf_values, derivative, slots):
    """Bound of the subspace X = x for every slot, by derivatives of the root; after `upward`.

    derivative (n_inner,) float64 scratch; OUT slots (n_slots,) float64, for values that are not allowed as if they were.
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
def distinct(assignments, kept):
    """Positions of the first occurrence of each assignment; assignments (n, n_variables) int64; OUT kept (n,); returns how many."""
    names = np.empty(assignments.shape[0], np.uint64)
    n = 0
    for k in range(assignments.shape[0]):
        name = np.uint64(0)
        for v in range(assignments.shape[1]):
            name = random_bits(name + np.uint64(assignments[k, v] + 1))
        names[n] = name
        before = 0
        while names[before] != name:
            before += 1
        if before == n:
            kept[n] = k
            n += 1
    return n
