"""Whole rows as words of bits, and how often each occurs."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

EMPTY = np.int32(-1)


@inner_kernel
def hash_of(packed, row):
    """A 64-bit hash of a row: each word mixed as in SplitMix64."""
    h = np.uint64(0)
    for w in range(packed.shape[1]):
        h = (h ^ packed[row, w]) + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return h


@kernel
def add_rows(packed, counts, slots, rows, totals, n):
    """Add counts of rows, equal ones together; returns how many distinct rows there are now.

    packed (m, w) uint64, counts (m,) int64; slots (2^b,) int32, a hash table of places in rows; IN and OUT rows (at least
    n + m, w) and totals, of which n are in use.
    """
    last = np.uint64(slots.size - 1)
    for row in range(packed.shape[0]):
        slot = hash_of(packed, row) & last
        while True:
            place = slots[slot]
            if place == EMPTY:
                slots[slot] = n
                for w in range(packed.shape[1]):
                    rows[n, w] = packed[row, w]
                totals[n] = counts[row]
                n += 1
                break
            is_same = True
            for w in range(packed.shape[1]):
                is_same &= rows[place, w] == packed[row, w]
            if is_same:
                totals[place] += counts[row]
                break
            slot = (slot + np.uint64(1)) & last
    return n


@kernel
def fill_slots(rows, n, slots):  # (at least n, w) uint64; OUT (2^b,) int32
    """The hash table of n distinct rows."""
    slots[:] = EMPTY
    last = np.uint64(slots.size - 1)
    for row in range(n):
        slot = hash_of(rows, row) & last
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & last
        slots[slot] = row
