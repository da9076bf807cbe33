"""Kernels of hidden trees: one matrix product per variable and block of rows, up and down."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Float32s, Integers
from learners.kernels.jit import inner_kernel, kernel

# Rows at a time.
TREE_BLOCK = 64
# Single precision: twice as fast, and the shares of a row need no more digits. A row's values are scaled to a maximum of one
# where they fall below LEAST_SCALED; a message below NO_MESSAGE is zero, as nothing that goes through it counts.
LEAST_SCALED = 1e-8
NO_MESSAGE = np.float32(1e-35)
NOTHING = np.float32(0.0)


class TreeArrays(NamedTuple):
    """A hidden tree: each variable has a state, which depends on the state of its parent."""

    order: Integers  # (n,) int64: children before parents, the root last
    parent: Integers  # (n,) int64: of each variable; -1 for the root
    starts: Integers  # (n + 1,) int64: rows of each variable in `leaves`
    prior: Float32s  # (h,) float32: probability of each state of the root
    # (n, h, h) float32: P(state of v = j | state of its parent = i) at [v, i, j]; the root's are unused.
    weights: Float32s
    upward: Float32s  # (n, h, h) float32: the same at [v, j, i]
    leaves: Float32s  # (n_leaves, h) float32: P(value | state) of each value of each variable


class TreeWork(NamedTuple):
    """Memory for a block of rows, (n, TREE_BLOCK, h) float32: `own` and `flows` of each variable's states, and
    `messages` to its parent's.
    """

    own: Float32s
    messages: Float32s
    flows: Float32s
    ratio: Float32s  # (TREE_BLOCK, h) float32
    turned: Float32s  # (h, TREE_BLOCK) float32


class TreeCounts(NamedTuple):
    """Expected numbers of rows."""

    prior: Float32s  # (h,) float32
    weights: Float32s  # (n, h, h) float32: divided by the weight
    leaves: Float32s  # (n_leaves, h) float32: rows that have the value


@inner_kernel
def _add_products(a, b, total, n_rows, n_terms):
    """Add the product of the first n_terms columns of a with the rows of b to the first n_rows rows of total.

    Eight terms are added at a time, always in the same order: the same bits on every processor.
    """
    whole = n_terms // 8 * 8
    for k in range(0, whole, 8):
        for i in range(n_rows):
            p, q, r, s = a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]
            t, u, v, w = a[i, k + 4], a[i, k + 5], a[i, k + 6], a[i, k + 7]
            for j in range(b.shape[1]):
                first = (p * b[k, j] + q * b[k + 1, j]) + (r * b[k + 2, j] + s * b[k + 3, j])
                second = (t * b[k + 4, j] + u * b[k + 5, j]) + (v * b[k + 6, j] + w * b[k + 7, j])
                total[i, j] += first + second
    for k in range(whole, n_terms):
        for i in range(n_rows):
            for j in range(b.shape[1]):
                total[i, j] += a[i, k] * b[k, j]


@kernel
def add_tree_counts(tree, codes, rows, share, work, log, counts):
    """Compute the log likelihood of rows, OUT log (rows.size,) float64, and add their expected counts.

    codes (n, n_all_rows) int64: values of the variables, -1 if missing.
    share (rows.size,) float32: factor of each row's counts; empty if only the likelihoods are needed.
    """
    own, messages, flows, ratio, turned = work
    n_states, root = tree.prior.size, tree.order[-1]
    for first in range(0, rows.size, TREE_BLOCK):
        n_rows = min(TREE_BLOCK, rows.size - first)
        log[first : first + n_rows] = 0.0
        for v in range(tree.order.size):
            for b in range(n_rows):
                code = codes[v, rows[first + b]]
                if code < 0:
                    own[v, b, :] = 1.0
                else:
                    own[v, b, :] = tree.leaves[tree.starts[v] + code]
        for v in tree.order[:-1]:
            messages[v] = 0.0
            _add_products(own[v], tree.upward[v], messages[v], n_rows, n_states)
            parent = tree.parent[v]
            for b in range(n_rows):
                most = NOTHING
                for j in range(n_states):
                    own[parent, b, j] *= messages[v, b, j]
                    most = max(most, own[parent, b, j])
                if most < LEAST_SCALED:
                    scale = np.float32(1.0 / most)
                    for j in range(n_states):
                        own[parent, b, j] *= scale
                    log[first + b] += np.log(most)
        for b in range(n_rows):
            likelihood = 0.0
            for j in range(n_states):
                likelihood += tree.prior[j] * own[root, b, j]
            scale = np.float32(1.0 / likelihood)
            for j in range(n_states):
                own[root, b, j] *= scale
            log[first + b] += np.log(likelihood)
        if share.size == 0:
            continue
        for b in range(n_rows):
            for j in range(n_states):
                flows[root, b, j] = share[first + b] * tree.prior[j] * own[root, b, j]
                counts.prior[j] += flows[root, b, j]
        for v in tree.order[::-1]:
            if v != root:
                parent = tree.parent[v]
                for b in range(n_rows):
                    for j in range(n_states):
                        message = messages[v, b, j]
                        ratio[b, j] = flows[parent, b, j] / message if message > NO_MESSAGE else NOTHING
                        turned[j, b] = ratio[b, j]
                _add_products(turned, own[v], counts.weights[v], n_states, n_rows)
                flows[v] = 0.0
                _add_products(ratio, tree.weights[v], flows[v], n_rows, n_states)
                for b in range(n_rows):
                    for j in range(n_states):
                        flows[v, b, j] *= own[v, b, j]
            for b in range(n_rows):
                code = codes[v, rows[first + b]]
                if code >= 0:
                    for j in range(n_states):
                        counts.leaves[tree.starts[v] + code, j] += flows[v, b, j]
