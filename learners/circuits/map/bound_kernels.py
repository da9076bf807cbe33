"""The look-ahead bound of all subspaces X = x at once."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel


@kernel
def look_ahead(arrays, allowed, rows, spans, tops, leaf_tops, slots):
    """Bound of the subspace X = x for every slot, tightened at every sum; OUT slots (n_slots,) float64.

    rows[i * n_slots + s] bounds node i's value where slot s holds, and tops[i] bounds it anywhere. At a sum every
    variable X of the scope gives a bound: the maximum over x of the sum of the children's bounds at X = x, for then all
    children agree on X. The least of these bounds the sum, and caps the row. Without the cap this is the bound
    by derivatives. Only the span from a node's first to its last variable is written and read. Scratch: rows
    (n_inner * n_slots,), spans (n_inner, 2) int64, tops (n_inner,), leaf_tops (n_leaves,); allowed (n_slots,) uint8.
    """
    is_sum, child_starts, leaf_from = arrays.is_sum, arrays.child_starts, arrays.leaf_from
    children, weight, value_starts = arrays.children, arrays.weight, arrays.value_starts
    leaf_starts, leaf_value, leaf_variable = arrays.leaf_starts, arrays.leaf_value, arrays.leaf_variable
    n_slots = value_starts[value_starts.size - 1]
    n_inner = is_sum.size
    for leaf in range(leaf_variable.size):
        table, slot = leaf_starts[leaf], value_starts[leaf_variable[leaf]]
        top = 0.0
        for x in range(leaf_starts[leaf + 1] - table):
            if allowed[slot + x]:
                top = max(top, leaf_value[table + x])
        leaf_tops[leaf] = top
    # Loops over slots run to an array's size: a bound that numba knows is not negative lets LLVM vectorise them.
    for i in range(n_inner):
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        if is_sum[i]:
            left, right = spans[children[first], 0], spans[children[first], 1]
            slot_left, slot_right = value_starts[left], value_starts[right]
            row = rows[i * n_slots + slot_left : i * n_slots + slot_right]
            w, c = weight[first], children[first] * n_slots
            below = rows[c + slot_left : c + slot_right]
            for s in range(row.size):
                row[s] = w * below[s]
            for e in range(first + 1, end):
                w, c = weight[e], children[e] * n_slots
                below = rows[c + slot_left : c + slot_right]
                for s in range(row.size):
                    row[s] += w * below[s]
            top = np.inf
            # A variable outside the scope has no bounds here: zeros.
            if row.size == 2 * (right - left):
                for v in range(row.size // 2):
                    most = max(row[2 * v], row[2 * v + 1])
                    if 0.0 < most < top:
                        top = most
            else:
                for v in range(left, right):
                    most = 0.0
                    for s in range(value_starts[v], value_starts[v + 1]):
                        most = max(most, row[s - slot_left])
                    if 0.0 < most < top:
                        top = most
            if top == np.inf:
                top = 0.0
            for s in range(row.size):
                row[s] = min(row[s], top)
            tops[i] = top
            spans[i, 0], spans[i, 1] = left, right
            continue
        product = 1.0
        left, right = value_starts.size, 0
        for e in range(first, middle):
            product *= tops[children[e]]
            left, right = min(left, spans[children[e], 0]), max(right, spans[children[e], 1])
        row = rows[i * n_slots : (i + 1) * n_slots]
        for e in range(middle, end):
            product *= leaf_tops[children[e]]
            v = leaf_variable[children[e]]
            left, right = min(left, v), max(right, v + 1)
        row[value_starts[left] : value_starts[right]] = 0.0
        tops[i] = product
        spans[i, 0], spans[i, 1] = left, right
        if product == 0.0:
            continue
        for e in range(first, middle):
            c = children[e]
            others = product / tops[c]
            slot_left, slot_right = value_starts[spans[c, 0]], value_starts[spans[c, 1]]
            part = row[slot_left:slot_right]
            below = rows[c * n_slots + slot_left : c * n_slots + slot_right]
            for s in range(part.size):
                part[s] += others * below[s]
        for e in range(middle, end):
            leaf = children[e]
            table, slot = leaf_starts[leaf], value_starts[leaf_variable[leaf]]
            others = product / leaf_tops[leaf]
            for x in range(leaf_starts[leaf + 1] - table):
                if allowed[slot + x]:
                    row[slot + x] = others * leaf_value[table + x]
    if n_inner:
        for s in range(n_slots):
            slots[s] = rows[(n_inner - 1) * n_slots + s]
    else:
        for s in range(n_slots):
            slots[s] = leaf_value[s] if allowed[s] else 0.0
