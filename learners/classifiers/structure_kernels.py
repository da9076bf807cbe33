"""Kernels that choose parents, one thread each."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel


@kernel
def best_earlier(ranks, order, parents):  # (n, n) float64, (n,) int64; OUT (n, k) int64 of -1
    """For each place of the order the k earlier attributes of the highest rank, the highest first; ties by column."""
    k = parents.shape[1]
    for place in range(order.size):
        own, chosen = ranks[order[place]], parents[place]
        n_chosen = 0
        for earlier in range(place):
            candidate = order[earlier]
            i = n_chosen
            while i > 0 and (
                own[candidate] > own[chosen[i - 1]]
                or (own[candidate] == own[chosen[i - 1]] and candidate < chosen[i - 1])
            ):
                i -= 1
            if i == k:
                continue
            n_chosen = min(n_chosen + 1, k)
            for j in range(n_chosen - 1, i, -1):
                chosen[j] = chosen[j - 1]
            chosen[i] = candidate


@kernel
def grown_tree(ranks, root, order, parent):  # (n, n) float64, int64; OUT (n,) int64, (n,) int64
    """Prim's algorithm: the maximum spanning tree as it grows from the root; of equal edges the first in column order."""
    n = order.size
    best, nearest = np.empty(n, np.float64), np.empty(n, np.int64)
    is_outside = np.ones(n, np.bool_)
    for a in range(n):
        best[a], nearest[a] = ranks[root, a], root
    is_outside[root] = False
    order[0], parent[root] = root, -1
    for place in range(1, n):
        found = -1
        for a in range(n):
            if is_outside[a] and (
                found < 0 or best[a] > best[found] or (best[a] == best[found] and nearest[a] < nearest[found])
            ):
                found = a
        is_outside[found] = False
        order[place], parent[found] = found, nearest[found]
        for a in range(n):
            if is_outside[a] and ranks[found, a] > best[a]:
                best[a], nearest[a] = ranks[found, a], found
