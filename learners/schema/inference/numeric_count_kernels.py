"""Counting the values of columns as they come: numbers by class in a hash table, and indices of dictionaries."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Array, Integers
from learners.kernels.jit import inner_kernel, kernel

ODD = np.uint64(0x9E3779B97F4A7C15)
EMPTY = -1
REVERSED = 0x7FFF_FFFF_FFFF_FFFF


class Slots(NamedTuple):
    """A hash table of keys with open addressing."""

    places: Array  # (2^bits,) int32: the place of a key among `keys`, or EMPTY
    keys: Integers  # (capacity,) int64
    counts: Integers  # (capacity, n_classes) int64


@inner_kernel
def slot_of(key, shift):  # int64, uint64: 64 less the bits of a slot
    """Where a key is looked for first: the highest bits of its product with an odd number, which all its bits decide."""
    return np.int64((np.uint64(key) * ODD) >> shift)


@kernel
def count_numbers(x, y, start, level, slots, n):
    """Count numbers from a row on, until all are counted or there is no room for a new key.

    x (n_rows,) float64, NaN where missing, y (n_rows,) int64, level: bits of a key that are dropped; IN and OUT slots, of
    whose keys n are in use.

    Returns the first row that is not counted, n, and how many are missing.
    """
    last, n_missing = slots.places.size - 1, 0
    bits = 0
    while (1 << bits) <= last:
        bits += 1
    shift = np.uint64(64 - bits)
    for row in range(start, x.size):
        number = x[row]
        if np.isnan(number):
            n_missing += 1
            continue
        key = np.float64(number + 0.0).view(np.int64)  # + 0.0 makes one zero of the two
        if key < 0:
            key ^= REVERSED
        key >>= level
        slot = slot_of(key, shift)
        while True:
            place = slots.places[slot]
            if place == EMPTY:
                if n == slots.keys.size or 2 * n > last:
                    return row, n, n_missing
                slots.places[slot] = n
                slots.keys[n] = key
                slots.counts[n, y[row]] += 1
                n += 1
                break
            if slots.keys[place] == key:
                slots.counts[place, y[row]] += 1
                break
            slot = (slot + 1) & last
    return x.size, n, n_missing


@kernel
def fill_places(keys, n, places):  # (at least n,) int64; OUT (2^bits,) int32, EMPTY at first
    """The hash table of n different keys."""
    last, bits = places.size - 1, 0
    while (1 << bits) <= last:
        bits += 1
    for place in range(n):
        slot = slot_of(keys[place], np.uint64(64 - bits))
        while places[slot] != EMPTY:
            slot = (slot + 1) & last
        places[slot] = place


@kernel
def count_indices(indices, counts):  # (n,) int32; OUT (n_values,) int64
    """counts[index] += 1; whether every index has a place."""
    for row in range(indices.size):
        index = indices[row]
        if index < 0 or index >= counts.size:
            return False
        counts[index] += 1
    return True
