"""Single-threaded kernels of count tables: counting, validation, and sums for information.

Cells are numbered in blocks, in loops over many rows at a time, and then counted.
"""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

BLOCK_ROWS = 4096  # whose cells the first cache holds


@kernel
def add_pair_cell_counts(x, y, pairs, sizes, table_starts, counts):
    """Count pairs, finishing each table before the next so that it stays in the cache.

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


@inner_kernel
def block_family_cell_indices(x, y, members, sizes, first, cells):
    """Compute `family_cell_indices` of rows from `first` on, as many as cells has room for, up to three members at a
    time.
    """
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
def family_cell_indices(x, y, members, sizes, cells):
    """Compute the index of each row's cell in a family's table (class, parents in order, value): mixed radix, the value
    fastest.

    x (n_attributes, n) codes, y (n,), members (k + 1,) the parents and then the attribute itself, sizes of their
    domains; OUT cells (n,) int64, or uint32 where there are no more cells.
    """
    for first in range(0, y.size, BLOCK_ROWS):
        block_family_cell_indices(x, y, members, sizes, first, cells[first : first + BLOCK_ROWS])


@kernel
def add_family_cell_counts(x, y, members, sizes, counts):
    """Count a family's cells: counts[cell] += 1 for every row, cells numbered as in `family_cell_indices`.

    x (n_attributes, n) codes, y (n,), members (k + 1,), sizes (k + 1,); OUT counts (n_cells,) int32 or int64.
    """
    room = np.empty(BLOCK_ROWS, np.uint32)
    for first in range(0, y.size, BLOCK_ROWS):
        n = min(BLOCK_ROWS, y.size - first)
        block_family_cell_indices(x, y, members, sizes, first, room[:n])
        for row in range(n):
            counts[room[row]] += 1


@kernel
def first_invalid_count_table(counts, starts, class_counts):
    """Return the first table with a negative count, or that does not sum to the rows of each class; -1 if there is
    none.

    counts (n,) int32 or int64, table t in counts[starts[t]:starts[t + 1]] with the class fastest; class_counts (n_classes,).
    """
    n_classes = class_counts.size
    for table in range(starts.size - 1):
        for k in range(n_classes):
            total, signs = np.int64(0), np.int64(0)
            for cell in range(starts[table] + k, starts[table + 1], n_classes):
                count = np.int64(counts[cell])
                total += count
                signs |= count  # negative if one count is
            if total != class_counts[k] or signs < 0:
                return table
    return -1


@kernel
def cell_x_log_x_sums(counts, starts, sums):  # (n,) int32 or int64, (m + 1,) int64; OUT (m,) float64
    """Sum x log x over each range of counts, compensated (Kahan), so that the order of the counts does not matter."""
    for table in range(sums.size):
        total, lost = 0.0, 0.0
        for cell in range(starts[table], starts[table + 1]):
            if counts[cell] > 1:
                term = counts[cell] * np.log(np.float64(counts[cell])) - lost
                larger = total + term
                lost = (larger - total) - term
                total = larger
        sums[table] = total
