"""Ancestors: exactly for few nodes, and in given graphs."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel
from learners.kernels.scaled_arithmetic import ratio


@kernel
def ancestor_shares(source, d, lattice, shares, alpha, exponent, starts, byte_places, ternary, p):
    """The probability that each node is a descendant of a source, over the lattice of all orders.

    p[t(S) + t(D)] is the probability of the set D of the source's descendants (itself included) among the first nodes S,
    given that those are S; t adds up powers of three. shares of `lattice_kernels.shares_of_steps`; ternary (2^d,)
    int64; OUT p (3^d,), zeros at first.

    References: Parviainen, Koivisto (2011), Ancestor relations in the presence of unobserved variables, section 4.
    """
    p[0] = 1.0
    for s in range(lattice.sets.size):
        has_source = (s >> source) & 1
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            share = shares[edge]
            if share == 0.0:
                continue
            node, place = lattice.nodes[edge], lattice.places[edge]
            power = ternary[1 << node]
            target = ternary[lattice.targets[edge]]
            if not has_source:
                p[target + (power if node == source else 0)] += share * p[ternary[s]]
                continue
            rest = s ^ (1 << source)
            within = rest
            while True:
                descendants = within | (1 << source)
                value = p[ternary[s] + ternary[descendants]]
                if value > 0.0:
                    free = starts[node]
                    outside = s & ~descendants
                    for byte in range(byte_places.shape[1]):
                        free += byte_places[node, byte, (outside >> (8 * byte)) & 255]
                    none = ratio(alpha[free], np.int64(exponent[free]), alpha[place], np.int64(exponent[place]))
                    p[target + ternary[descendants]] += share * value * none
                    p[target + ternary[descendants] + power] += share * value * max(0.0, 1.0 - none)
                if within == 0:
                    break
                within = (within - 1) & rest


@kernel
def ancestors(orders, parents, is_ancestor):
    """Which nodes each graph makes an ancestor of which; OUT is_ancestor (n, d, d) uint8: [g, i, j] of i above j."""
    d = orders.shape[1]
    above = np.empty(d, np.uint64)
    for g in range(orders.shape[0]):
        for step in range(d):
            node = orders[g, step]
            above[node] = parents[g, node]
            for other in range(d):
                if (parents[g, node] >> np.uint64(other)) & np.uint64(1):
                    above[node] |= above[other]
            for other in range(d):
                is_ancestor[g, other, node] = (above[node] >> np.uint64(other)) & np.uint64(1)
