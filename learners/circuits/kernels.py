"""Kinds of nodes and operations, and kernels that check and describe a circuit's nodes."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel

# Kinds of nodes: inner ones, then leaves; those from GAUSSIAN on are numeric.
KIND_NAMES = (
    *("sum", "product", "indicator", "categorical", "gaussian", "poisson", "exponential"),
    *("student", "rounded", "lognormal", "quantile"),
)
SUM, PRODUCT, INDICATOR, CATEGORICAL, GAUSSIAN, POISSON, EXPONENTIAL, STUDENT, ROUNDED, LOG_NORMAL, QUANTILE = range(11)
# Further parameters of leaves from ROUNDED on, after centre and spread: the recorded step (0: a density), a number of the grid,
# and of QUANTILE the number of knots, where they are, and the normal quantiles there.
STEP, ORIGIN, N_KNOTS, KNOTS = range(4)
# What an operation of a plan does. Two children are the usual case of learned circuits and spare a loop.
TABLE, TABLE_OF_TWO, LOOKUP, NUMERIC, SUM_OF, SUM_OF_TWO, PRODUCT_OF, PRODUCT_OF_TWO = range(8)


@kernel
def write_node_scopes(kind, child_starts, children, variable, scopes, fault):
    """Compute the variables of every node as bits: OUT scopes (n_nodes, n_words) uint64, initially zero.

    OUT fault (1,) int64: the first sum that is incomplete or product that is not decomposable, unchanged if there is none.
    """
    n_words = scopes.shape[1]
    for node in range(kind.size):
        if kind[node] >= INDICATOR:
            v = variable[node]
            scopes[node, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
            continue
        first = child_starts[node]
        for word in range(n_words):
            bits = scopes[children[first], word]
            for e in range(first + 1, child_starts[node + 1]):
                more = scopes[children[e], word]
                is_wrong = more != bits if kind[node] == SUM else (bits & more) != 0
                if is_wrong:
                    fault[0] = node
                    return
                bits |= more
            scopes[node, word] = bits


@kernel
def node_depths(child_starts, children, depths):
    """Compute the number of edges on the longest path down from each node; OUT depths (n_nodes,) int64."""
    for node in range(depths.size):
        deepest = -1
        for e in range(child_starts[node], child_starts[node + 1]):
            deepest = max(deepest, depths[children[e]])
        depths[node] = deepest + 1
