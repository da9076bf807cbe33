"""Kernels for sums over the orders of a lattice, and for sets missing from it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.scaled_arithmetic import NOTHING, scaled_add, scaled_divide, scaled_multiply


class Lattice(NamedTuple):
    """Sets of nodes that orders pass through, as uint64 masks: n sets in ascending order, E steps between them."""

    # (n,) uint64: bit i stands for node i; the first is empty, the last has all nodes. Ascending, so that subsets come
    # first.
    sets: Any
    starts: Any  # (n + 1,) int64: the steps from set s are starts[s] to starts[s + 1]
    nodes: Any  # (E,) uint8: the node that a step adds
    targets: Any  # (E,) int32: the set that it leads to
    # (E,) int32: where the step's set stands in the family scores of its node, members that are no candidates left out.
    places: Any


@kernel
def parent_set_score_index(set_of_nodes, node, starts, byte_places):
    """Return the index of a set of nodes in a node's family scores."""
    place = starts[node]
    for byte in range(byte_places.shape[1]):
        place += byte_places[node, byte, np.int64(set_of_nodes >> np.uint64(8 * byte)) & 255]
    return place


@kernel
def fill_lattice_steps(d, starts, byte_places, following, lattice):
    """Add the number of steps from each set to OUT following (n,) int64; and write the steps to OUT lattice if it has
    room.

    A step from set s is written at the previous following[s]; the lattice's sets must be filled in, ascending.
    """
    sets, has_room = lattice.sets, lattice.nodes.size > 0
    for node in range(d):
        bit = np.uint64(1) << np.uint64(node)
        at = 0
        for s in range(sets.size):
            if sets[s] & bit == 0:
                # Sets with one node more are in the same order.
                target = sets[s] | bit
                while at < sets.size and sets[at] < target:
                    at += 1
                if at < sets.size and sets[at] == target:
                    edge = following[s]
                    following[s] += 1
                    if has_room:
                        lattice.nodes[edge] = node
                        lattice.targets[edge] = at
                        lattice.places[edge] = parent_set_score_index(sets[s], node, starts, byte_places)


@kernel
def lattice_forward_sums(lattice, alpha, exponent, m, e):
    """Compute F(S), the sum over orders of S and over parent sets within them; alpha (total,) with its exponents; OUT
    (n,).
    """
    m[:] = 0.0
    e[:] = NOTHING
    m[0] = 1.0
    e[0] = 0
    for s in range(lattice.sets.size):
        if m[s] == 0.0:
            continue
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            a, b = scaled_multiply(m[s], np.int64(e[s]), alpha[place], np.int64(exponent[place]))
            a, b = scaled_add(m[target], np.int64(e[target]), a, b)
            m[target] = a
            e[target] = b


@kernel
def lattice_backward_sums(lattice, alpha, exponent, m, e):
    """Compute B(S), the sum over orders of the nodes outside S, after S; OUT (n,)."""
    n = lattice.sets.size
    m[n - 1] = 1.0
    e[n - 1] = 0
    for s in range(n - 2, -1, -1):
        total, top = 0.0, np.int64(NOTHING)
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            a, b = scaled_multiply(m[target], np.int64(e[target]), alpha[place], np.int64(exponent[place]))
            total, top = scaled_add(total, top, a, b)
        m[s] = total
        e[s] = top


@kernel
def add_lattice_step_weights(lattice, f, f_exponent, b, b_exponent, w, w_exponent):
    """Add F(S) B(S + node) to w[place] for every step from S at that place; OUT (total,), initially zero."""
    for s in range(lattice.sets.size):
        if f[s] == 0.0:
            continue
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            m, e = scaled_multiply(f[s], np.int64(f_exponent[s]), b[target], np.int64(b_exponent[target]))
            m, e = scaled_add(w[place], np.int64(w_exponent[place]), m, e)
            w[place] = m
            w_exponent[place] = e


@kernel
def lattice_step_probabilities(lattice, alpha, exponent, f, f_exponent, shares):
    """Compute the probability of each step to be the last one into its target; f of `lattice_forward_sums`; OUT (E,)."""
    for s in range(lattice.sets.size):
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            shares[edge] = 0.0
            if f[s] > 0.0 and f[target] > 0.0:
                m, e = scaled_multiply(f[s], np.int64(f_exponent[s]), alpha[place], np.int64(exponent[place]))
                shares[edge] = scaled_divide(m, e, f[target], np.int64(f_exponent[target]))


@kernel
def best_lattice_orders(lattice, logs, value, last):
    """Find the best sum over an order of its steps' logs (total,); OUT value (n,) up to each set, last (n,) step into
    it.
    """
    value[:] = -np.inf
    value[0] = 0.0
    last[:] = -1
    for s in range(lattice.sets.size):
        if value[s] == -np.inf:
            continue
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            reached = value[s] + logs[lattice.places[edge]]
            target = lattice.targets[edge]
            if reached > value[target]:
                value[target] = reached
                last[target] = edge


@kernel
def count_graph_orders_in_lattice(lattice, parents, m, e):
    """Count the lattice orders of a graph, as a scaled number; parents (d,) uint64; m, e (n,) scratch."""
    m[:] = 0.0
    e[:] = NOTHING
    m[0] = 1.0
    e[0] = 0
    n = lattice.sets.size
    for s in range(n):
        if m[s] == 0.0:
            continue
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            if parents[lattice.nodes[edge]] & ~lattice.sets[s] == 0:
                target = lattice.targets[edge]
                a, b = scaled_add(m[target], np.int64(e[target]), m[s], np.int64(e[s]))
                m[target] = a
                e[target] = b
    return m[n - 1], e[n - 1]


# No set of nodes of a lattice is this: it would be all 64 nodes, from which no step leads.
NONE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
N_FOLLOWING = 3


@kernel
def scaled_product_ratios(p, p_exponent, u, u_exponent, z, shares):
    """Compute p u / z elementwise, for numbers and z (mantissa, exponent); OUT (n,) float64."""
    for i in range(p.size):
        m, e = scaled_multiply(p[i], np.int64(p_exponent[i]), u[i], np.int64(u_exponent[i]))
        shares[i] = scaled_divide(m, e, z[0], z[1])


@inner_kernel
def likeliest_next_nodes(lattice, s, alpha, exponent, b, b_exponent, nodes, shares):
    """Find the most probable successors of a set, most probable first; OUT nodes, shares (N_FOLLOWING,); returns their
    number.
    """
    n = 0
    for edge in range(lattice.starts[s], lattice.starts[s + 1]):
        place, target = lattice.places[edge], lattice.targets[edge]
        m, e = scaled_multiply(alpha[place], np.int64(exponent[place]), b[target], np.int64(b_exponent[target]))
        share = scaled_divide(m, e, b[s], np.int64(b_exponent[s]))
        if n < N_FOLLOWING:
            n += 1
        elif share <= shares[n - 1]:
            continue
        at = n - 1
        while at > 0 and shares[at - 1] < share:
            nodes[at], shares[at] = nodes[at - 1], shares[at - 1]
            at -= 1
        nodes[at], shares[at] = lattice.nodes[edge], share
    return n


@kernel
def lattice_extension_candidates(lattice, alpha, exponent, b, b_exponent, masses, threshold, families, found, gains):
    """Estimate the mass that each missing set would add to the lattice, if it may reach a threshold.

    A set A + node adds at least the orders that go from A over it to A + node + k, for the likely successors k of
    A.

    b of `lattice_kernels.lattice_backward_sums`; masses (n,); families: the starts and byte places of the scores;
    OUT found (2^b,) uint64, a hash table, gains (2^b,); returns the number found, or -1 if the table is too
    small.
    """
    starts, byte_places = families
    found[:] = NONE
    last = np.uint64(found.size - 1)
    d = starts.size - 1
    nodes, shares = np.empty(N_FOLLOWING, np.int64), np.empty(N_FOLLOWING)
    n_found = 0
    for s in range(lattice.sets.size):
        # Sets that add more than the threshold go from sets that have more.
        if masses[s] < threshold:
            continue
        known = lattice.sets[s]
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            known |= np.uint64(1) << np.uint64(lattice.nodes[edge])
        n_following = likeliest_next_nodes(lattice, s, alpha, exponent, b, b_exponent, nodes, shares)
        for node in range(d):
            bit = np.uint64(1) << np.uint64(node)
            if known & bit:
                continue
            larger = lattice.sets[s] | bit
            place = parent_set_score_index(lattice.sets[s], node, starts, byte_places)
            if alpha[place] == 0.0:
                continue
            gain = 0.0
            for k in nodes[:n_following]:
                largest = larger | (np.uint64(1) << np.uint64(k))
                over = np.searchsorted(lattice.sets, largest)
                if lattice.sets[over] == largest:  # the last set has all nodes
                    following = parent_set_score_index(larger, k, starts, byte_places)
                    m, e = scaled_multiply(
                        alpha[place], np.int64(exponent[place]), alpha[following], np.int64(exponent[following])
                    )
                    m, e = scaled_multiply(m, e, b[over], np.int64(b_exponent[over]))
                    # More than twice what the set has now is enough to know.
                    gain += scaled_divide(m, e, b[s], np.int64(b_exponent[s])) if e - b_exponent[s] < 2 else 1e9
            gain *= masses[s]
            if gain < threshold / 32.0:
                continue
            h = (larger ^ (larger >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
            slot = (h ^ (h >> np.uint64(29))) & last
            while found[slot] != NONE and found[slot] != larger:
                slot = (slot + np.uint64(1)) & last
            if found[slot] == larger:
                gains[slot] += gain
                continue
            if 4 * n_found > 3 * found.size:
                return -1
            found[slot] = larger
            gains[slot] = gain
            n_found += 1
    return n_found
