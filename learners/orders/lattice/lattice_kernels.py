"""Sums over the orders of a lattice: paths from the empty set to the set of all nodes, one node more at each step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from learners.kernels.jit import kernel
from learners.kernels.scaled_arithmetic import NOTHING, plus, ratio, times


class Lattice(NamedTuple):
    """Uint64s of nodes through which orders pass: n sets in ascending order, E steps from one to another."""

    # (n,) uint64: bit i stands for node i; the first is empty, the last has all nodes. Ascending, so that subsets come
    # first.
    sets: Any
    starts: Any  # (n + 1,) int64: the steps from set s are starts[s] to starts[s + 1]
    nodes: Any  # (E,) uint8: the node that a step adds
    targets: Any  # (E,) int32: the set that it leads to
    # (E,) int32: where the step's set stands in the family scores of its node, members that are no candidates left out.
    places: Any


@kernel
def place_of(set_of_nodes, node, starts, byte_places):
    """Where a set of nodes stands in the family scores of a node."""
    place = starts[node]
    for byte in range(byte_places.shape[1]):
        place += byte_places[node, byte, np.int64(set_of_nodes >> np.uint64(8 * byte)) & 255]
    return place


@kernel
def fill_steps(d, starts, byte_places, following, lattice):
    """Add the number of steps from each set to OUT following (n,) int64; and, where OUT lattice has room, the steps themselves.

    A step from set s is written where following[s] is before; sets of the lattice are there, ascending.
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
                        lattice.places[edge] = place_of(sets[s], node, starts, byte_places)


@kernel
def forward(lattice, alpha, exponent, m, e):
    """F(S): the sum over orders of S, and over parent sets within them; alpha (total,) with its exponents; OUT (n,)."""
    m[:] = 0.0
    e[:] = NOTHING
    m[0] = 1.0
    e[0] = 0
    for s in range(lattice.sets.size):
        if m[s] == 0.0:
            continue
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            a, b = times(m[s], np.int64(e[s]), alpha[place], np.int64(exponent[place]))
            a, b = plus(m[target], np.int64(e[target]), a, b)
            m[target] = a
            e[target] = b


@kernel
def backward(lattice, alpha, exponent, m, e):
    """B(S): the sum over orders of the nodes that are not in S, after S; OUT (n,)."""
    n = lattice.sets.size
    m[n - 1] = 1.0
    e[n - 1] = 0
    for s in range(n - 2, -1, -1):
        total, top = 0.0, np.int64(NOTHING)
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            a, b = times(m[target], np.int64(e[target]), alpha[place], np.int64(exponent[place]))
            total, top = plus(total, top, a, b)
        m[s] = total
        e[s] = top


@kernel
def add_weights(lattice, f, f_exponent, b, b_exponent, w, w_exponent):
    """w[place] += F(S) B(S + node) for every step from S at that place; OUT (total,), zeros at first."""
    for s in range(lattice.sets.size):
        if f[s] == 0.0:
            continue
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            m, e = times(f[s], np.int64(f_exponent[s]), b[target], np.int64(b_exponent[target]))
            m, e = plus(w[place], np.int64(w_exponent[place]), m, e)
            w[place] = m
            w_exponent[place] = e


@kernel
def shares_of_steps(lattice, alpha, exponent, f, f_exponent, shares):
    """How probable each step is as the last one to its target; f of `forward`; OUT (E,)."""
    for s in range(lattice.sets.size):
        for edge in range(lattice.starts[s], lattice.starts[s + 1]):
            place, target = lattice.places[edge], lattice.targets[edge]
            shares[edge] = 0.0
            if f[s] > 0.0 and f[target] > 0.0:
                m, e = times(f[s], np.int64(f_exponent[s]), alpha[place], np.int64(exponent[place]))
                shares[edge] = ratio(m, e, f[target], np.int64(f_exponent[target]))


@kernel
def best_orders(lattice, logs, value, last):
    """The best sum over an order of the logs (total,) of its steps; OUT value (n,) up to each set, last (n,) step into it."""
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
def count_orders(lattice, parents, m, e):
    """How many orders of the lattice a graph has, as a scaled number; parents (d,) uint64; m, e (n,) scratch."""
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
                a, b = plus(m[target], np.int64(e[target]), m[s], np.int64(e[s]))
                m[target] = a
                e[target] = b
    return m[n - 1], e[n - 1]
