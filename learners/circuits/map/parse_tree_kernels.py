"""Single parse trees: the best one, a greedy one, and argmax-product."""

from __future__ import annotations

import numpy as np

from learners.circuits.map.value_kernels import LANES, copy_values_into
from learners.kernels.jit import inner_kernel, kernel

# Below this the best tree, on the scale of the bound, is too near the end of double precision: use logarithms.
UNDERFLOW = 1e-250


@inner_kernel
def best_parse_tree_values(arrays, values, best_edge):
    """Compute the value of the best tree of every inner node, relative to its bound; OUT values (n_inner,), best_edge
    (n_inner,) int64.

    If the root's value underflows, all values are logarithms; returns whether they are.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight = arrays.children, arrays.weight
    for are_logs in range(2):
        for i in range(is_sum.size):
            if is_sum[i]:
                best, at = -np.inf, child_starts[i]
                for e in range(child_starts[i], child_starts[i + 1]):
                    below = values[children[e]]
                    value = np.log(weight[e]) + below if are_logs else weight[e] * below
                    if value > best:
                        best, at = value, e
                values[i] = best
                best_edge[i] = at
            else:
                # A leaf's largest value is 1, so leaves do not matter here.
                best = 0.0 if are_logs else 1.0
                for e in range(child_starts[i], leaf_from[i]):
                    below = values[children[e]]
                    best = best + below if are_logs else best * below
                values[i] = best
        if is_sum.size == 0 or not values[is_sum.size - 1] < UNDERFLOW:
            return False
    return True


@kernel
def total_node_values(arrays, values, best_edge):
    """Compute the sum over all assignments at every inner node, and the heaviest edge of every sum; OUT values,
    best_edge (n_inner,).

    If the root's value leaves double precision, all values are logarithms; returns whether they are.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, leaf_starts, leaf_value = arrays.children, arrays.weight, arrays.leaf_starts, arrays.leaf_value
    # Per value of a domain a leaf adds at most 1, so logarithms are needed only beyond some thousand variables.
    for are_logs in range(2):
        for i in range(is_sum.size):
            if is_sum[i]:
                best, at, total = -np.inf, child_starts[i], -np.inf if are_logs else 0.0
                for e in range(child_starts[i], child_starts[i + 1]):
                    below = values[children[e]]
                    value = np.log(weight[e]) + below if are_logs else weight[e] * below
                    total = np.logaddexp(total, value) if are_logs else total + value
                    if value > best:
                        best, at = value, e
                values[i] = total
                best_edge[i] = at
            else:
                total = 0.0 if are_logs else 1.0
                for e in range(child_starts[i], leaf_from[i]):
                    below = values[children[e]]
                    total = total + below if are_logs else total * below
                for e in range(leaf_from[i], child_starts[i + 1]):
                    mass = 0.0
                    for entry in range(leaf_starts[children[e]], leaf_starts[children[e] + 1]):
                        mass += leaf_value[entry]
                    total = total + np.log(mass) if are_logs else total * mass
                values[i] = total
        if is_sum.size == 0 or UNDERFLOW < values[is_sum.size - 1] < np.inf:
            return False
    return True


@kernel
def write_parse_tree_assignment(arrays, best_edge, stack, x):
    """Write the assignment of the tree that takes best_edge at every sum and the most probable value at every leaf; OUT
    x (n_variables,).
    """
    is_sum, child_starts, leaf_from, children = arrays.is_sum, arrays.child_starts, arrays.leaf_from, arrays.children
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = is_sum.size
    if n_inner == 0:
        x[leaf_variable[0]] = np.argmax(leaf_value)
        return
    stack[0] = n_inner - 1
    n = 1
    while n:
        n -= 1
        i = stack[n]
        if is_sum[i]:
            stack[n] = children[best_edge[i]]
            n += 1
            continue
        for e in range(child_starts[i], leaf_from[i]):
            stack[n] = children[e]
            n += 1
        for e in range(leaf_from[i], child_starts[i + 1]):
            leaf = children[e]
            first = leaf_starts[leaf]
            best = first
            for entry in range(first + 1, leaf_starts[leaf + 1]):
                if leaf_value[entry] > leaf_value[best]:
                    best = entry
            x[leaf_variable[leaf]] = best - first


@kernel
def best_parse_tree(arrays, scratch, x):
    """Find the best tree (BT); scratch (3, n_inner + 1) int64; OUT x (n_variables,) int64."""
    best_parse_tree_values(arrays, scratch[0].view(np.float64), scratch[1])
    write_parse_tree_assignment(arrays, scratch[1], scratch[2], x)


@inner_kernel
def choose_argmax_product_child(arrays, top, choices, mark, room):
    """Return the edge of sum `top` whose child's assignment has the largest value at the sum itself.

    choices (n_inner, n_variables) int64, the assignments below; mark (2, n_inner) int64: the smallest number among a node and those below it, and stamps.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight = arrays.children, arrays.weight
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    lowest, stamp = mark[0, top], mark[1]
    stamp[top] = top
    for i in range(top, lowest - 1, -1):
        if stamp[i] == top:
            for e in range(child_starts[i], leaf_from[i]):
                stamp[children[e]] = top
    best, best_edge = -1.0, -1
    lane = np.empty(LANES)
    row = np.empty(LANES, dtype=np.int64)
    for start in range(child_starts[top], child_starts[top + 1], LANES):
        for k in range(LANES):
            row[k] = children[min(start + k, child_starts[top + 1] - 1)]
        for i in range(lowest, top + 1):
            if stamp[i] != top:
                continue
            if is_sum[i]:
                lane[:] = 0.0
                for e in range(child_starts[i], child_starts[i + 1]):
                    w, c = weight[e], children[e]
                    for k in range(LANES):
                        lane[k] += w * room[c, k]
            else:
                lane[:] = 1.0
                for e in range(child_starts[i], leaf_from[i]):
                    c = children[e]
                    for k in range(LANES):
                        lane[k] *= room[c, k]
                for e in range(leaf_from[i], child_starts[i + 1]):
                    table, v = leaf_starts[children[e]], leaf_variable[children[e]]
                    for k in range(LANES):
                        lane[k] *= leaf_value[table + choices[row[k], v]]
            for k in range(LANES):
                room[i, k] = lane[k]
        for k in range(min(LANES, child_starts[top + 1] - start)):
            if room[top, k] > best:
                best, best_edge = room[top, k], start + k
    return best_edge


@kernel
def argmax_product(arrays, choices, mark, room, x):
    """Compute argmax-product (Conaty, Mauá, de Campos 2017): each sum takes the child whose assignment has the largest
    value at the sum.

    choices (n_inner, n_variables), mark (2, n_inner) int64, room (n_inner, LANES) float64 scratch; OUT x (n_variables,) int64.
    """
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_inner = arrays.is_sum.size
    if n_inner == 0:
        x[leaf_variable[0]] = np.argmax(leaf_value)
        return
    mark[1, :] = -1
    for i in range(n_inner):
        least = i
        for e in range(arrays.child_starts[i], arrays.leaf_from[i]):
            least = min(least, mark[0, arrays.children[e]])
        mark[0, i] = least
        if arrays.is_sum[i]:
            copy_values_into(
                choices[arrays.children[choose_argmax_product_child(arrays, i, choices, mark, room)]], choices[i]
            )
            continue
        choices[i] = -1
        for e in range(arrays.child_starts[i], arrays.leaf_from[i]):
            below = choices[arrays.children[e]]
            for v in range(below.size):
                if below[v] >= 0:
                    choices[i, v] = below[v]
        for e in range(arrays.leaf_from[i], arrays.child_starts[i + 1]):
            leaf = arrays.children[e]
            choices[i, leaf_variable[leaf]] = np.argmax(leaf_value[leaf_starts[leaf] : leaf_starts[leaf + 1]])
    copy_values_into(choices[n_inner - 1], x)
