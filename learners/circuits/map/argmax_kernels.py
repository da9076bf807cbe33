"""Argmax-product."""

from __future__ import annotations

import numpy as np

from learners.circuits.map.value_kernels import LANES, copy
from learners.kernels.jit import inner_kernel, kernel


@inner_kernel
def choose_child(arrays, top, choices, mark, room):
    """Edge of sum `top` whose child's assignment has the largest value at the sum itself.

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
    """Argmax-product (Conaty, Mauá, de Campos 2017): a sum takes the child whose assignment it values most.

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
            copy(choices[arrays.children[choose_child(arrays, i, choices, mark, room)]], choices[i])
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
    copy(choices[n_inner - 1], x)
