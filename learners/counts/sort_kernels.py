"""Counting sorted keys of cells, merging runs of them, and finding one."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel


@kernel
def count_sorted(keys, counts):
    """The distinct keys of a sorted array and how often each occurs; OUT keys, counts (n,) of their type; returns how many."""
    n = keys.size
    if n == 0:
        return 0
    # Every key is written where the next new one belongs, with its place; only a new one stays. So no branch is mistaken.
    before, m = keys[0], 1
    counts[0] = 0
    for i in range(1, n):
        key = keys[i]
        keys[m] = key
        counts[m] = i
        m += key != before
        before = key
    for j in range(m - 1):
        counts[j] = counts[j + 1] - counts[j]
    counts[m - 1] = n - counts[m - 1]
    return m


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


@inner_kernel
def place_among(numbers, first, last, wanted):  # (n,) ascending between first and last
    """Where numbers[first:last] hold a number; -1 if they do not."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < last and numbers[low] == wanted else np.int64(-1)
