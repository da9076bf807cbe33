"""Counts of the values of many sets of columns, and the BDeu potentials that follow."""

from __future__ import annotations

import math

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

BLOCK_ROWS = 8192


@kernel
def add_set_counts(x, weights, sizes, sets, starts, tables):
    """Count the rows with each combination of values, for many sets of columns.

    x (d, n) codes; weights (n,) int64, how often each row occurs; sizes (d,) int64 of the domains; sets (s,) uint64 in
    ascending order, bit i for column i; starts (s + 1,); OUT tables int64, to which is added: tables[starts[j]:] is in
    mixed radix, the lowest column fastest.
    """
    d = x.shape[0]
    ids = np.empty((d + 1, BLOCK_ROWS), np.int32)
    chosen = np.full(d + 1, -1, np.int64)
    for first in range(0, x.shape[1], BLOCK_ROWS):
        n = min(BLOCK_ROWS, x.shape[1] - first)
        ids[0, :n] = 0
        chosen[:] = -1
        for j in range(sets.size):
            table = tables[starts[j] : starts[j + 1]]
            depth = 0
            last = -1
            # Uint64s in a row share their highest columns, and so the cells of these.
            for i in range(d - 1, -1, -1):
                if (sets[j] >> np.uint64(i)) & np.uint64(1):
                    if last >= 0:
                        if chosen[depth] != last:
                            chosen[depth] = last
                            chosen[depth + 1] = -1
                            _refine(ids[depth], x[last], first, n, sizes[last], ids[depth + 1])
                        depth += 1
                    last = i
            if last < 0:
                for row in range(n):
                    table[0] += weights[first + row]
                continue
            codes, size = x[last], np.int32(sizes[last])
            for row in range(n):
                table[ids[depth, row] * size + codes[first + row]] += weights[first + row]


@inner_kernel
def _refine(ids, codes, first, n, size, refined):
    size = np.int32(size)
    for row in range(n):
        refined[row] = ids[row] * size + codes[first + row]


@kernel
def potentials(starts, tables, pseudo_counts, h):
    """h[j] = the sum over cells of lgamma(count + a) - lgamma(a), a = pseudo_counts[j]; OUT h (s,)."""
    for j in range(h.size):
        a = pseudo_counts[j]
        at_zero = math.lgamma(a)
        total = 0.0
        for cell in range(starts[j], starts[j + 1]):
            if tables[cell] > 0:
                total += math.lgamma(tables[cell] + a) - at_zero
        h[j] = total


@kernel
def sparse_potential(x, weights, columns, pseudo_count, labels, keys, values, counts):
    """The potential of one set of columns of which few combinations occur.

    x (d, n) codes, columns (l,) int64; scratch labels (n,) int64, keys and values (2^b,) int64 of a hash table of at
    least twice as many slots as rows, counts (n,) int64.
    """
    n = x.shape[1]
    labels[:] = 0
    n_labels = 1
    slots = np.uint64(keys.size - 1)
    for column in columns:
        keys[:] = -1
        n_new = 0
        # Labels of combinations are fewer than rows, so that label and code together are one key.
        for row in range(n):
            key = labels[row] * np.int64(1 << 16) + np.int64(x[column, row])
            slot = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & slots
            while keys[slot] != key:
                if keys[slot] == -1:
                    keys[slot] = key
                    values[slot] = n_new
                    n_new += 1
                    break
                slot = (slot + np.uint64(1)) & slots
            labels[row] = values[slot]
        n_labels = n_new
    counts[:n_labels] = 0
    for row in range(n):
        counts[labels[row]] += weights[row]
    at_zero = math.lgamma(pseudo_count)
    total = 0.0
    for label in range(n_labels):
        total += math.lgamma(counts[label] + pseudo_count) - at_zero
    return total
