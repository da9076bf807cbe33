"""Whether tables of counts are those of any rows."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel


@kernel
def first_wrong_table(counts, starts, class_counts):
    """The first table with a negative count, or that does not sum to the rows of each class; -1 if there is none.

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
def add_class_sums(cells, counts, cells_per_class, sums):
    """Add to sums (n_classes,) int64 the counts (n,) int64 of ascending cells (n,) int64; whether none is negative."""
    signs, cell = np.int64(0), 0
    for k in range(sums.size):
        end, total = (k + 1) * cells_per_class, np.int64(0)
        while cell < cells.size and cells[cell] < end:
            total += counts[cell]
            signs |= counts[cell]
            cell += 1
        sums[k] += total
    return signs >= 0
