# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""The look-ahead bound of all subspaces X = x at once."""

from __future__ import annotations

import numpy as np

from learners.jit import kernel


@kernel
def look_ahead(arrays, allowed, rows, tops, leaf_tops, slots):
    """Bound of the subspace X = x for every slot, tightened at every sum; OUT slots (n_slots,) float64.

    rows[i * n_slots + s] bounds node i's value where slot s holds, and tops[i] bounds it anywhere. At a sum every
    variable X of the scope gives a bound: the maximum over x of the sum of the children's bounds at X = x, for then all
    children agree on X. The least of these bounds the sum, and caps the row. Without the cap this is the bound
    by derivatives. rows (n_inner * n_slots,), tops (n_inner,), leaf_tops (n_leaves,) scratch; allowed (n_slots,) uint8.
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
    for i in range(n_inner):
        row = rows[i * n_slots : (i + 1) * n_slots]
        row[:] = 0.0
        first, middle, end = child_starts[i], leaf_from[i], child_starts[i + 1]
        if is_sum[i]:
            for e in range(first, end):
                w = weight[e]
                below = rows[children[e] * n_slots : (children[e] + 1) * n_slots]
                for s in range(n_slots):
                    row[s] += w * below[s]
            top = np.inf
            for v in range(value_starts.size - 1):
                most = 0.0
                for s in range(value_starts[v], value_starts[v + 1]):
                    most = max(most, row[s])
                # A variable outside the scope has no bounds here: zeros.
                if 0.0 < most < top:
                    top = most
            if top == np.inf:
                top = 0.0
            for s in range(n_slots):
                row[s] = min(row[s], top)
            tops[i] = top
            continue
        product = 1.0
        for e in range(first, middle):
            product *= tops[children[e]]
        for e in range(middle, end):
            product *= leaf_tops[children[e]]
        tops[i] = product
        if product == 0.0:
            continue
        for e in range(first, middle):
            others = product / tops[children[e]]
            below = rows[children[e] * n_slots : (children[e] + 1) * n_slots]
            for s in range(n_slots):
                row[s] += others * below[s]
        for e in range(middle, end):
            leaf = children[e]
            others = product / leaf_tops[leaf]
            table, slot = leaf_starts[leaf], value_starts[leaf_variable[leaf]]
            for x in range(leaf_starts[leaf + 1] - table):
                if allowed[slot + x]:
                    row[slot + x] = others * leaf_value[table + x]
    if n_inner:
        for s in range(n_slots):
            slots[s] = rows[(n_inner - 1) * n_slots + s]
    else:
        for s in range(n_slots):
            slots[s] = leaf_value[s] if allowed[s] else 0.0
