"""Which sets a lattice of orders lacks most."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel
from learners.kernels.scaled_arithmetic import ratio, times
from learners.orders.lattice.lattice_kernels import place_of

# No set of nodes of a lattice is this: it would be all 64 nodes, from which no step leads.
NONE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
N_FOLLOWING = 3


@inner_kernel
def slot_of(key, last):
    """Where a key is first looked for in a hash table of last + 1 slots."""
    h = (key ^ (key >> np.uint64(32))) * np.uint64(0xBF58476D1CE4E5B9)
    return (h ^ (h >> np.uint64(29))) & last


@inner_kernel
def find_set(wanted, sets):
    """The place of a set among sets (n,) uint64, which ascend, or -1."""
    low, high = 0, sets.size
    while low < high:
        middle = (low + high) >> 1
        if sets[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < sets.size and sets[low] == wanted else -1


@kernel
def set_masses(f, f_exponent, b, b_exponent, masses):
    """The probability that the nodes of each set come first: F(S) B(S) / Z; OUT (n,)."""
    for s in range(masses.size):
        m, e = times(f[s], np.int64(f_exponent[s]), b[s], np.int64(b_exponent[s]))
        masses[s] = ratio(m, e, b[0], np.int64(b_exponent[0]))


@inner_kernel
def likely_following(lattice, s, alpha, exponent, b, b_exponent, nodes, shares):
    """The nodes that most probably follow a set, the most probable first; OUT nodes, shares (N_FOLLOWING,); returns how many."""
    n = 0
    for edge in range(lattice.starts[s], lattice.starts[s + 1]):
        place, target = lattice.places[edge], lattice.targets[edge]
        m, e = times(alpha[place], np.int64(exponent[place]), b[target], np.int64(b_exponent[target]))
        share = ratio(m, e, b[s], np.int64(b_exponent[s]))
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
def promising_sets(lattice, alpha, exponent, b, b_exponent, masses, threshold, families, found, gains):
    """How much mass each set that the lattice lacks would add, where that may be as much as a threshold.

    A set A + node adds at least the orders that go from A over it to A + node + k, for the likely followers k of A.

    b of `lattice_kernels.backward`; masses (n,); families: the starts and byte places of the scores; OUT found (2^b,) uint64, a hash table, gains (2^b,); returns how many, or -1 if it is too small.
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
        n_following = likely_following(lattice, s, alpha, exponent, b, b_exponent, nodes, shares)
        for node in range(d):
            bit = np.uint64(1) << np.uint64(node)
            if known & bit:
                continue
            larger = lattice.sets[s] | bit
            place = place_of(lattice.sets[s], node, starts, byte_places)
            if alpha[place] == 0.0:
                continue
            gain = 0.0
            for k in nodes[:n_following]:
                over = find_set(larger | (np.uint64(1) << np.uint64(k)), lattice.sets)
                if over >= 0:
                    following = place_of(larger, k, starts, byte_places)
                    m, e = times(
                        alpha[place], np.int64(exponent[place]), alpha[following], np.int64(exponent[following])
                    )
                    m, e = times(m, e, b[over], np.int64(b_exponent[over]))
                    # More than twice what the set has now is enough to know.
                    gain += ratio(m, e, b[s], np.int64(b_exponent[s])) if e - b_exponent[s] < 2 else 1e9
            gain *= masses[s]
            if gain < threshold / 32.0:
                continue
            slot = slot_of(larger, last)
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
