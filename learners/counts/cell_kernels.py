"""Counting cells by one increment a row; one thread each.

The cells of some rows are numbered first, in loops that take many rows at a time, and counted then.
"""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

BLOCK_ROWS = 4096  # whose cells the first cache holds


@kernel
def add_pairs(x, y, pairs, sizes, table_starts, counts):
    """Count pairs: each table is finished before the next, so that it stays in the cache.

    x (n_attributes, n) codes, y (n,) codes, pairs (n_pairs, 2), sizes (n_attributes + 1,) of the domains, classes last,
    table_starts (n_pairs,); OUT counts int32 or int64, to which is added: counts[table_starts[p]:] is (v_i, v_j, n_classes),
    of less than 2^32 cells.
    """
    room = np.empty(BLOCK_ROWS, np.uint32)
    n_classes = np.uint32(sizes[sizes.size - 1])
    for p in range(pairs.shape[0]):
        i, j = pairs[p, 0], pairs[p, 1]
        size = np.uint32(sizes[j])
        table = counts[table_starts[p] :]
        for first in range(0, y.size, BLOCK_ROWS):
            n = min(BLOCK_ROWS, y.size - first)
            cells, a, b, k = room[:n], x[i, first : first + n], x[j, first : first + n], y[first : first + n]
            for row in range(n):
                cells[row] = (a[row] * size + b[row]) * n_classes + k[row]
            for row in range(n):
                table[cells[row]] += 1


@kernel
def add_pair_counts(x_i, x_j, y, counts):  # (n,) codes, (n,) codes, (n,) uint8; OUT (v_i, v_j, c) int32 or int64
    """Add to counts[a, b, k] the number of rows with x_i = a, x_j = b and y = k, however many cells there are."""
    for row in range(y.size):
        counts[x_i[row], x_j[row], y[row]] += 1


@kernel
def add_margin(codes, y, margin):  # (n,) codes, (n,) uint8; OUT (v, c) int64
    """Add to margin[a, k] the number of rows with code a and class k."""
    for row in range(y.size):
        margin[codes[row], y[row]] += 1


@kernel
def add_classes(y, counts):  # (n,) codes; OUT (n_classes,) int64
    """Add to counts[k] the number of rows of class k."""
    # Four tables in turn: an increment need not wait for the one before it of the same class.
    parts, whole = np.zeros((4, counts.size), np.int64), y.size - y.size % 4
    for row in range(0, whole, 4):
        parts[0, y[row]] += 1
        parts[1, y[row + 1]] += 1
        parts[2, y[row + 2]] += 1
        parts[3, y[row + 3]] += 1
    for row in range(whole, y.size):
        parts[0, y[row]] += 1
    for part in range(4):
        for k in range(counts.size):
            counts[k] += parts[part, k]


@inner_kernel
def number_cells(x, y, members, sizes, first, cells):
    """As `family_cells`, of as many rows from `first` on as there is room for in cells: up to three members at a time."""
    n, n_members = cells.size, members.size
    last = first + n
    k, a, size_a = y[first:last], x[members[0], first:last], sizes[0]
    if n_members == 1:
        for row in range(n):
            cells[row] = k[row] * size_a + a[row]
        return
    b, size_b = x[members[1], first:last], sizes[1]
    m = 2 + n_members % 2
    if m == 2:
        for row in range(n):
            cells[row] = (k[row] * size_a + a[row]) * size_b + b[row]
    else:
        c, size_c = x[members[2], first:last], sizes[2]
        for row in range(n):
            cells[row] = ((k[row] * size_a + a[row]) * size_b + b[row]) * size_c + c[row]
    while m < n_members:
        a, b, p, q = x[members[m], first:last], x[members[m + 1], first:last], sizes[m], sizes[m + 1]
        for row in range(n):
            cells[row] = (cells[row] * p + a[row]) * q + b[row]
        m += 2


@kernel
def family_cells(x, y, members, sizes, cells):
    """Index of each row's cell in a family's table (class, parents in order, value): mixed radix, the value fastest.

    x (n_attributes, n) codes, y (n,), members (k + 1,) the parents and then the attribute itself, sizes of their
    domains; OUT cells (n,) int64, or uint32 where there are no more cells.
    """
    for first in range(0, y.size, BLOCK_ROWS):
        number_cells(x, y, members, sizes, first, cells[first : first + BLOCK_ROWS])


@kernel
def add_family(x, y, members, sizes, counts):
    """Count a family's cells: counts[cell] += 1 for every row, cells numbered as in `family_cells`.

    x (n_attributes, n) codes, y (n,), members (k + 1,), sizes (k + 1,); OUT counts (n_cells,) int32 or int64.
    """
    room = np.empty(BLOCK_ROWS, np.uint32)
    for first in range(0, y.size, BLOCK_ROWS):
        n = min(BLOCK_ROWS, y.size - first)
        number_cells(x, y, members, sizes, first, room[:n])
        for row in range(n):
            counts[room[row]] += 1
