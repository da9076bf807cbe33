"""Sorting, counting and merging the keys of cells."""

from __future__ import annotations

import numpy as np

from learners.jit import kernel

DIGIT = 11
BUCKETS = 1 << DIGIT


@kernel
def sort_keys(keys, scratch, n_bits):
    """Sort non-negative keys (n,) int64 below 2**n_bits in place, least digit first; OUT scratch (n,) int64."""
    n = keys.size
    a, b = keys, scratch
    ends = np.empty(BUCKETS, np.int64)
    n_swaps = 0
    shift = 0
    while shift < n_bits:
        ends[:] = 0
        for i in range(n):
            ends[(a[i] >> shift) & (BUCKETS - 1)] += 1
        total, is_one_bucket = 0, False
        for d in range(BUCKETS):
            count = ends[d]
            is_one_bucket |= count == n
            ends[d] = total
            total += count
        if not is_one_bucket:
            for i in range(n):
                d = (a[i] >> shift) & (BUCKETS - 1)
                b[ends[d]] = a[i]
                ends[d] += 1
            a, b = b, a
            n_swaps += 1
        shift += DIGIT
    if n_swaps % 2:
        for i in range(n):
            keys[i] = scratch[i]


@kernel
def count_sorted(keys, cells, counts):
    """Distinct keys of a sorted array and how often each occurs; OUT cells, counts (n,) int64; returns how many."""
    m = -1
    last = np.int64(-1)
    for i in range(keys.size):
        if keys[i] != last:
            m += 1
            last = keys[i]
            cells[m] = last
            counts[m] = 0
        counts[m] += 1
    return m + 1


@kernel
def merge_runs(a_cells, a_counts, b_cells, b_counts, cells, counts):
    """Merge two ascending runs, adding counts of equal cells and leaving out zeros; OUT cells, counts; returns how many."""
    i, j, m = 0, 0, 0
    n_a, n_b = a_cells.size, b_cells.size
    while i < n_a and j < n_b:
        x, y = a_cells[i], b_cells[j]
        if x < y:
            cells[m] = x
            counts[m] = a_counts[i]
            i += 1
        elif y < x:
            cells[m] = y
            counts[m] = b_counts[j]
            j += 1
        else:
            cells[m] = x
            counts[m] = a_counts[i] + b_counts[j]
            i += 1
            j += 1
        m += counts[m] != 0
    while i < n_a:
        cells[m] = a_cells[i]
        counts[m] = a_counts[i]
        m += counts[m] != 0
        i += 1
    while j < n_b:
        cells[m] = b_cells[j]
        counts[m] = b_counts[j]
        m += counts[m] != 0
        j += 1
    return m
