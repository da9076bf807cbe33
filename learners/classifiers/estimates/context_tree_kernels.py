"""Single-threaded kernels that build context trees."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel


@inner_kernel
def shell_sort(values, n):  # IN, OUT (m,) int64; the first n
    """Sort by Shell's method with Knuth's gaps; numba's own sort takes as long to compile as the rest of this file."""
    gap = 1
    while gap < n // 3:
        gap = 3 * gap + 1
    while gap:
        for i in range(gap, n):
            value, place = values[i], i
            while place >= gap and values[place - gap] > value:
                values[place] = values[place - gap]
                place -= gap
            values[place] = value
        gap //= 3


@kernel
def aggregate_context_tree_level(node, value, count, above_of_node, seen, out_node, out_value, out_count, cell_parent):
    """Aggregate the cells of one level from those of the level below; returns their number.

    node, value (m,) int32, count (m,) int64: the cells below, node by node; above_of_node (n_below,) int32: the node above
    each node below; seen (n_values,) int64 scratch of -1. OUT out_node, out_value (m,) int32, out_count (m,) int64: the cells
    above, node by node and ascending by value; cell_parent (m,) int32: where in them each cell below is.
    """
    n_cells = 0
    first = 0
    touched = np.empty(seen.size, np.int64)
    while first < node.size:
        above = above_of_node[node[first]]
        last, n_touched = first, 0
        while last < node.size and above_of_node[node[last]] == above:
            if seen[value[last]] < 0:
                seen[value[last]] = 0
                touched[n_touched] = value[last]
                n_touched += 1
            last += 1
        shell_sort(touched, n_touched)
        for i in range(n_touched):
            seen[touched[i]] = n_cells + i
            out_node[n_cells + i], out_value[n_cells + i], out_count[n_cells + i] = above, touched[i], 0
        for cell in range(first, last):
            place = seen[value[cell]]
            cell_parent[cell] = place
            out_count[place] += count[cell]
        for i in range(n_touched):
            seen[touched[i]] = -1
        n_cells += n_touched
        first = last
    return n_cells
