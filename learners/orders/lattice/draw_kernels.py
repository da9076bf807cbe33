"""Drawing of parent sets and orders, and a Markov chain over orders."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel
from learners.kernels.scaled_arithmetic import scaled_add, scaled_divide, scaled_multiply
from learners.orders.lattice.lattice_kernels import parent_set_score_index


@kernel
def subset_partial_sums(p, p_exponent, sums, exponents):
    """Compute, in row b, the sums over all subsets that agree on bits b and above; OUT (k + 1, 2^k) and its exponents."""
    for index in range(p.size):
        sums[0, index] = p[index]
        exponents[0, index] = p_exponent[index]
    for b in range(sums.shape[0] - 1):
        h = 1 << b
        for index in range(p.size):
            m, e = sums[b, index], np.int64(exponents[b, index])
            if index & h:
                m, e = scaled_add(m, e, sums[b, index ^ h], np.int64(exponents[b, index ^ h]))
            sums[b + 1, index] = m
            exponents[b + 1, index] = e


@kernel
def draw_subsets(sums, exponents, uniforms, drawn):
    """Replace each set by a subset drawn in proportion to its number.

    sums, exponents of `subset_partial_sums`; uniforms (n, k) in [0, 1); drawn (n,) int64, sets with a positive sum, in place.
    """
    for row in range(drawn.size):
        index = drawn[row]
        for b in range(uniforms.shape[1] - 1, -1, -1):
            h = 1 << b
            if index & h:
                share = scaled_divide(
                    sums[b, index], np.int64(exponents[b, index]), sums[b + 1, index], np.int64(exponents[b + 1, index])
                )
                if uniforms[row, b] >= share:
                    index ^= h
        drawn[row] = index


@kernel
def draw_lattice_orders(lattice, alpha, exponent, b, b_exponent, uniforms, orders, places):
    """Draw orders of a lattice in proportion to their sums.

    b of `lattice_kernels.lattice_backward_sums`; uniforms (n, d) in [0, 1); OUT orders (n, d) uint8 the nodes in
    turn, places (n, d) int64: index of each node's predecessors in its family scores.
    """
    for row in range(orders.shape[0]):
        s = 0
        for step in range(orders.shape[1]):
            left = uniforms[row, step]
            chosen = -1
            for edge in range(lattice.starts[s], lattice.starts[s + 1]):
                place, target = lattice.places[edge], lattice.targets[edge]
                m, e = scaled_multiply(alpha[place], np.int64(exponent[place]), b[target], np.int64(b_exponent[target]))
                share = scaled_divide(m, e, b[s], np.int64(b_exponent[s]))
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


@kernel
def run_order_metropolis_steps(order, power, uniforms, log_alpha, starts, byte_places):
    """Run Metropolis steps on an order, whose target is the product of alpha over nodes, raised to a power; returns its
    log at power one.

    order (d,) int64, in place; uniforms (n, 4) in [0, 1). A step swaps two neighbours, swaps two nodes, or moves
    a node; each has the same probability as its reverse.

    References: Friedman, Koller (2003), Being Bayesian about network structure, section 4.2.
    """
    d = order.size
    before = np.zeros(d + 1, np.uint64)
    current, proposed = np.empty(d), np.empty(d)
    other = order.copy()
    for t in range(d):
        current[t] = log_alpha[parent_set_score_index(before[t], order[t], starts, byte_places)]
        before[t + 1] = before[t] | (np.uint64(1) << np.uint64(order[t]))
    for step in range(uniforms.shape[0]):
        which = uniforms[step, 0]
        low = int(uniforms[step, 1] * d)
        high = low + 1 if which < 0.5 else int(uniforms[step, 2] * d)
        if high == low or high == d:
            continue
        if high < low:
            low, high = high, low
        for t in range(low, high + 1):
            other[t] = order[t]
        if which < 0.75:
            other[low], other[high] = order[high], order[low]
        elif which < 0.875:
            for t in range(low, high):
                other[t] = order[t + 1]
            other[high] = order[low]
        else:
            for t in range(low, high):
                other[t + 1] = order[t]
            other[low] = order[high]
        change = 0.0
        seen = before[low]
        for t in range(low, high + 1):
            proposed[t] = log_alpha[parent_set_score_index(seen, other[t], starts, byte_places)]
            change += proposed[t] - current[t]
            seen |= np.uint64(1) << np.uint64(other[t])
        if np.log(uniforms[step, 3]) < power * change:
            for t in range(low, high + 1):
                order[t], current[t] = other[t], proposed[t]
                before[t + 1] = before[t] | (np.uint64(1) << np.uint64(order[t]))
    return current.sum()
