"""Sums of sums become sums, and what that leaves unused goes."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel


@inner_kernel
def flatten_sum(out, position, first, end):
    """Replace the sum's children that are sums by theirs, if it has no more edges then; returns the new end, or -1.

    Edges first to end of `out` are those of the sum. In hidden Chow-Liu trees a latent variable whose own leaf is folded
    disappears this way. position (n_nodes,) int64 is scratch, of any content.
    """
    children, weight, child_starts, is_sum = out.children, out.weight, out.child_starts, out.is_sum
    n_sums, n = 0, 0
    for e in range(first, end):
        n_sums += is_sum[children[e]]
    if n_sums == 0:
        return -1
    below = np.empty(end - first, dtype=np.int64)
    share = np.empty(end - first)
    for e in range(first, end):
        c = children[e]
        begin, stop = (child_starts[c], child_starts[c + 1]) if is_sum[c] else (e, e + 1)
        for f in range(begin, stop):
            scale = weight[e] * weight[f] if is_sum[c] else weight[e]
            at = position[children[f]]
            if 0 <= at < n and below[at] == children[f]:
                share[at] += scale
                continue
            if n == end - first:
                return -1
            position[children[f]] = n
            below[n] = children[f]
            share[n] = scale
            n += 1
    for k in range(n):
        children[first + k] = below[k]
        weight[first + k] = share[k]
    return first + n


@inner_kernel
def drop_unreachable(out, sizes, new_leaf, new_inner):
    """Compact `out` to what the root needs; new_leaf, new_inner int64 scratch."""
    n_leaves, n_inner = sizes[0], sizes[2]
    new_leaf[:n_leaves] = 0
    new_inner[:n_inner] = 0
    new_inner[n_inner - 1] = 1
    for i in range(n_inner - 1, -1, -1):
        if new_inner[i]:
            for e in range(out.child_starts[i], out.leaf_from[i]):
                new_inner[out.children[e]] = 1
            for e in range(out.leaf_from[i], out.child_starts[i + 1]):
                new_leaf[out.children[e]] = 1
    leaf, entry = 0, 0
    for old in range(n_leaves):
        if new_leaf[old]:
            new_leaf[old] = leaf
            first, end = out.leaf_starts[old], out.leaf_starts[old + 1]
            out.leaf_variable[leaf] = out.leaf_variable[old]
            for k in range(end - first):
                out.leaf_value[entry + k] = out.leaf_value[first + k]
            out.leaf_starts[leaf] = entry
            entry += end - first
            leaf += 1
    out.leaf_starts[leaf] = entry
    new, edge = 0, 0
    for i in range(n_inner):
        if not new_inner[i]:
            continue
        first, middle, end = out.child_starts[i], out.leaf_from[i], out.child_starts[i + 1]
        new_inner[i] = new
        out.is_sum[new] = out.is_sum[i]
        out.child_starts[new] = edge
        for e in range(first, end):
            out.children[edge] = new_inner[out.children[e]] if e < middle else new_leaf[out.children[e]]
            out.weight[edge] = out.weight[e]
            edge += 1
        out.leaf_from[new] = edge - (end - middle)
        new += 1
        # The starts of later nodes are still needed as they were: this one's end is written with the next.
    sizes[0], sizes[1], sizes[2], sizes[3] = leaf, entry, new, edge
    out.child_starts[new] = edge
