# mypy: disallow-untyped-defs=False, check-untyped-defs=False
"""Draws of parent sets and of orders."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel
from learners.kernels.scaled_arithmetic import plus, ratio, times


@kernel
def partial_sums(p, p_exponent, sums, exponents):
    """Row b: the sums over all subsets that agree on bits b and above; OUT (k + 1, 2^k) and its exponents."""
    for index in range(p.size):
        sums[0, index] = p[index]
        exponents[0, index] = p_exponent[index]
    for b in range(sums.shape[0] - 1):
        h = 1 << b
        for index in range(p.size):
            m, e = sums[b, index], np.int64(exponents[b, index])
            if index & h:
                m, e = plus(m, e, sums[b, index ^ h], np.int64(exponents[b, index ^ h]))
            sums[b + 1, index] = m
            exponents[b + 1, index] = e


@kernel
def draw_subsets(sums, exponents, uniforms, drawn):
    """Replace each set by one of its subsets, drawn in proportion to its number.

    sums, exponents of `partial_sums`; uniforms (n, k) in [0, 1); drawn (n,) int64, sets with a positive sum, in place.
    """
    for row in range(drawn.size):
        index = drawn[row]
        for b in range(uniforms.shape[1] - 1, -1, -1):
            h = 1 << b
            if index & h:
                share = ratio(
                    sums[b, index], np.int64(exponents[b, index]), sums[b + 1, index], np.int64(exponents[b + 1, index])
                )
                if uniforms[row, b] >= share:
                    index ^= h
        drawn[row] = index


@kernel
def draw_orders(lattice, alpha, exponent, b, b_exponent, uniforms, orders, places):
    """Draw orders of a lattice in proportion to their sums.

    b of `lattice_kernels.backward`; uniforms (n, d) in [0, 1); OUT orders (n, d) uint8 the nodes in turn, places (n, d)
    int64: where each node's predecessors stand in its family scores.
    """
    for row in range(orders.shape[0]):
        s = 0
        for step in range(orders.shape[1]):
            left = uniforms[row, step]
            chosen = -1
            for edge in range(lattice.starts[s], lattice.starts[s + 1]):
                place, target = lattice.places[edge], lattice.targets[edge]
                m, e = times(alpha[place], np.int64(exponent[place]), b[target], np.int64(b_exponent[target]))
                share = ratio(m, e, b[s], np.int64(b_exponent[s]))
                if share > 0.0:
                    # Rounding may leave a little after the last one, which then is it.
                    chosen = edge
                    left -= share
                    if left < 0.0:
                        break
            node = lattice.nodes[chosen]
            orders[row, step] = node
            places[row, node] = lattice.places[chosen]
            s = lattice.targets[chosen]
