"""Best parse trees: one, greedily, or the K best."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

# Below this the best tree, on the scale of the bound, is too near the end of double precision: use logarithms.
UNDERFLOW = 1e-250


@inner_kernel
def best_values(arrays, values, best_edge):
    """Value of the best tree of every inner node, relative to its bound; OUT values (n_inner,), best_edge (n_inner,) int64.

    Where that of the root underflows, all are logarithms; returns whether they are.
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
def total_values(arrays, values, best_edge):
    """Sum over all assignments at every inner node, and the heaviest edge of every sum; OUT values, best_edge (n_inner,).

    Where that of the root leaves double precision, all are logarithms; returns whether they are.
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
def follow(arrays, best_edge, stack, x):
    """Assignment of the tree that takes best_edge at every sum and the likeliest value at every leaf; OUT x (n_variables,)."""
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
def best_tree(arrays, scratch, x):
    """Best tree (BT); scratch (3, n_inner + 1) int64; OUT x (n_variables,) int64."""
    best_values(arrays, scratch[0].view(np.float64), scratch[1])
    follow(arrays, scratch[1], scratch[2], x)
