"""Kernels for cells and rows too many for a table: sorting, counting and merging of keys, and a hash table of rows."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import inner_kernel, kernel

MOST_BITS = 12  # of a digit
# So many keys lie beyond the second cache: fewer moves then pay for digits of more bits, whose buckets take 64 KB.
MANY_KEYS, MOST_BITS_OF_MANY = 1 << 21, 14
EMPTY = np.int32(-1)


@kernel
def radix_sort_keys(keys, scratch, n_bits):
    """Sort fewer than 2^32 keys (n,) int64 or uint32, from 0 to below 2**n_bits, in place, least significant digit
    first; OUT scratch (n,), of their type.
    """
    n = keys.size
    most_bits = MOST_BITS_OF_MANY if n > MANY_KEYS else MOST_BITS
    n_digits = (n_bits + most_bits - 1) // most_bits
    bits = (n_bits + n_digits - 1) // n_digits
    n_buckets = 1 << bits
    mask = np.uint64(n_buckets - 1)
    ends = np.empty(n_buckets, np.uint32)  # of one digit at a time: those of 12 bits fit the first cache
    a, b = keys, scratch
    n_moves = 0
    for d in range(n_digits):
        shift = np.uint64(d * bits)
        for bucket in range(n_buckets):
            ends[bucket] = 0
        for i in range(n):
            ends[(np.uint64(a[i]) >> shift) & mask] += np.uint32(1)
        total, is_one_bucket = np.uint32(0), False
        for bucket in range(n_buckets):
            count = ends[bucket]
            is_one_bucket |= count == n
            ends[bucket] = total
            total += count
        if not is_one_bucket:
            for i in range(n):
                bucket = (np.uint64(a[i]) >> shift) & mask
                b[ends[bucket]] = a[i]
                ends[bucket] += np.uint32(1)
            a, b = b, a
            n_moves += 1
    if n_moves % 2:
        for i in range(n):
            keys[i] = scratch[i]


@kernel
def count_sorted_keys(keys, counts):
    """Count the distinct keys of a sorted array; OUT keys, counts (n,) of their type; returns the number of distinct
    keys.
    """
    n = keys.size
    if n == 0:
        return 0
    # Every key is written where the next new one belongs, with its place; only a new one stays. So no branch is mistaken.
    before, m = keys[0], 1
    counts[0] = 0
    for i in range(1, n):
        key = keys[i]
        keys[m] = key
        counts[m] = i
        m += key != before
        before = key
    for j in range(m - 1):
        counts[j] = counts[j + 1] - counts[j]
    counts[m - 1] = n - counts[m - 1]
    return m


@kernel
def merge_sorted_runs(a_cells, a_counts, b_cells, b_counts, cells, counts):
    """Merge two ascending runs, adding counts of equal cells and dropping zeros; OUT cells, counts; returns their
    number.
    """
    i, j, m = 0, 0, 0
    n_a, n_b = a_cells.size, b_cells.size
    while i < n_a and j < n_b:
        x, y = a_cells[i], b_cells[j]
        if x < y:
            cells[m] = x
            counts[m] = a_counts[i]
            i += 1
        elif y < x:
            cells[m] = y
            counts[m] = b_counts[j]
            j += 1
        else:
            cells[m] = x
            counts[m] = a_counts[i] + b_counts[j]
            i += 1
            j += 1
        m += counts[m] != 0
    while i < n_a:
        cells[m] = a_cells[i]
        counts[m] = a_counts[i]
        m += counts[m] != 0
        i += 1
    while j < n_b:
        cells[m] = b_cells[j]
        counts[m] = b_counts[j]
        m += counts[m] != 0
        j += 1
    return m


@inner_kernel
def binary_search_index(numbers, first, last, wanted):  # (n,) ascending between first and last
    """Return the index of a number in numbers[first:last], or -1."""
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < last and numbers[low] == wanted else np.int64(-1)


@inner_kernel
def packed_row_hash(packed, row):
    """Hash a row to 64 bits, each word mixed as in SplitMix64."""
    h = np.uint64(0)
    for w in range(packed.shape[1]):
        h = (h ^ packed[row, w]) + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return h


@kernel
def add_packed_row_counts(packed, counts, slots, rows, totals, n):
    """Add counts of rows, merging equal ones; returns the number of distinct rows.

    packed (m, w) uint64, counts (m,) int64; slots (2^b,) int32, a hash table of positions in rows; IN/OUT rows
    (at least n + m, w) and totals, of which n are in use.
    """
    last = np.uint64(slots.size - 1)
    for row in range(packed.shape[0]):
        slot = packed_row_hash(packed, row) & last
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
def fill_row_hash_table(rows, n, slots):  # (at least n, w) uint64; OUT (2^b,) int32
    """Fill the hash table of n distinct rows."""
    slots[:] = EMPTY
    last = np.uint64(slots.size - 1)
    for row in range(n):
        slot = packed_row_hash(rows, row) & last
        while slots[slot] != EMPTY:
            slot = (slot + np.uint64(1)) & last
        slots[slot] = row
