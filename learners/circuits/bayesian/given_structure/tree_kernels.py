"""Induced trees of rows, drawn given the parameters of a circuit, and counts of where they pass."""

from __future__ import annotations

import numpy as np

from learners.circuits.kernels import CATEGORICAL, GAUSSIAN, PRODUCT, SUM
from learners.circuits.queries.answer_kernels import SMALLEST, upward
from learners.circuits.queries.sampling_kernels import chosen_edge, uniform
from learners.kernels.jit import kernel


@kernel
def count_tree(arrays, weight, values, x, row, centre, state, stack, edges, cells, leaves):
    """Draw an induced tree of a row, and add it to OUT edges (n_edges,), cells (n_parameters,) and leaves (n_nodes, 3).

    Children of sums are those of `chosen_edge`. leaves: of numeric ones the
    rows, the sum and the sum of squares of their numbers less the centre (n_variables,). stack (n_nodes,) int64 is scratch.
    """
    child_starts, children, kinds = arrays.child_starts, arrays.children, arrays.kind
    variable, leaf_starts = arrays.variable, arrays.leaf_starts
    stack[0] = kinds.size - 1
    depth = 1
    while depth:
        depth -= 1
        node = stack[depth]
        first, last = child_starts[node], child_starts[node + 1]
        if kinds[node] == SUM:
            chosen = chosen_edge(weight, values, children, first, last, uniform(state) * values[node])
            edges[chosen] += 1
            stack[depth] = children[chosen]
            depth += 1
        elif kinds[node] == PRODUCT:
            for e in range(first, last):
                stack[depth] = children[e]
                depth += 1
        else:
            number = x[variable[node], row]
            if np.isnan(number):
                continue
            if kinds[node] == CATEGORICAL:
                cells[leaf_starts[node] + np.int64(number)] += 1
            elif kinds[node] >= GAUSSIAN:
                z = number - centre[variable[node]]
                leaves[node, 0] += 1.0
                leaves[node, 1] += z
                leaves[node, 2] += z * z


@kernel
def count_trees(arrays, x, centre, state, values, stack, edges, cells, leaves, is_left):
    """As `count_tree` of every row of x (n_variables, n_rows); OUT is_left (n_rows,): rows too improbable for linear space."""
    for row in range(x.shape[1]):
        upward(arrays, x, row, values)
        is_left[row] = not values[values.size - 1] > SMALLEST
        if not is_left[row]:
            count_tree(arrays, arrays.weight, values, x, row, centre, state, stack, edges, cells, leaves)
