"""Hash tables: lookup of texts in domains, eight bytes at a time, at addresses lent by Arrow and requests; and class
counts of numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Array, Integers
from learners.kernels.intrinsics import load_number
from learners.kernels.jit import inner_kernel, kernel

EIGHT = np.uint64(8)
ODD = np.uint64(0x9E3779B97F4A7C15)
HALF, TOP = np.uint64(32), np.uint64(52)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
HIGH_BITS = np.uint64(0x8080808080808080)
ABSENT = -1
LENGTH, WORD, BEGIN, CODE = range(4)  # of a slot
SLOT_BYTES = 32
EMPTY = -1
REVERSED = 0x7FFF_FFFF_FFFF_FFFF


class Words(NamedTuple):
    """Concatenated hash tables of several domains, with open addressing."""

    # (n_slots, 4) int64: a text in each: its bytes (-1: the slot is empty), the first eight of them as a little-endian
    # number filled up with zeros, where the rest of a longer one begins in `more`, and its code.
    slots: Integers
    more: Integers  # (n_words,) int64: the numbers of longer texts from the second on


@inner_kernel
def load_text_word(address, n, end):  # uint64, int64, uint64 -> uint64
    """Return the first min(n, 8) bytes at an address as a number, without reading at or beyond `end`."""
    if n >= 8:
        return load_number(address, np.uint64)
    if address + EIGHT <= end:
        # Shifted twice, as a shift by 64 bits does nothing at all.
        return load_number(address, np.uint64) & ~((ALL << np.uint64(4 * n)) << np.uint64(4 * n))
    word = np.uint64(0)
    for i in range(n):
        word |= np.uint64(load_number(address + np.uint64(i), np.uint8)) << np.uint64(8 * i)
    return word


@inner_kernel
def mix_hash_word(state, word):  # uint64, uint64 -> uint64
    """Apply one step of the hash; its lowest bits, which give the slot, depend on all bits of the word."""
    state = (state ^ word) * ODD
    return state ^ (state >> HALF) ^ (state >> TOP)


@inner_kernel
def hash_text(address, length, end):
    """Hash the text of `length` bytes at an address."""
    state = np.uint64(length)
    for i in range(0, max(length, 1), 8):
        state = mix_hash_word(state, load_text_word(address + np.uint64(i), length - i, end))
    return state


@inner_kernel
def hash_slot_value(table, slot, place):
    """Return a number from a slot of the table at an address."""
    return load_number(table + np.uint64(SLOT_BYTES * slot + 8 * place), np.int64)


@inner_kernel
def lookup_text_code(address, length, end, table, mask, more):
    """Return the code of a text in the table of mask + 1 slots at an address, whose further words are at `more`; or
    ABSENT.

    Addresses avoid the reference counting of arrays passed to functions.
    """
    word = load_text_word(address, length, end)
    state = mix_hash_word(np.uint64(length), word) if length <= 8 else hash_text(address, length, end)
    slot = np.int64(state & np.uint64(mask))
    while True:
        there = hash_slot_value(table, slot, LENGTH)
        if there < 0:
            return ABSENT
        if there == length and np.uint64(hash_slot_value(table, slot, WORD)) == word:
            is_equal, begin = True, more + EIGHT * np.uint64(hash_slot_value(table, slot, BEGIN))
            for i in range(8, length, 8):
                rest = load_text_word(address + np.uint64(i), length - i, end)
                is_equal = is_equal and load_number(begin + np.uint64(i - 8), np.uint64) == rest
            if is_equal:
                return hash_slot_value(table, slot, CODE)
        slot = (slot + 1) & mask


@inner_kernel
def is_ascii_text(address, length, end):
    """Return whether all bytes of a text are ASCII."""
    for i in range(0, length, 8):
        if load_text_word(address + np.uint64(i), length - i, end) & HIGH_BITS:
            return False
    return True


@kernel
def fill_text_hash_table(address, starts, first_code, mask, words):  # (n + 1,) int64; OUT words
    """Insert the distinct texts, delimited by `starts` in the bytes at an address, into an empty table with ascending
    codes.

    Returns the number of texts that are not in the slot given by their hash.
    """
    end, begin, n_displaced = address + np.uint64(starts[-1]), 0, 0
    for number in range(starts.size - 1):
        text, length = address + np.uint64(starts[number]), starts[number + 1] - starts[number]
        slot = np.int64(hash_text(text, length, end) & np.uint64(mask))
        if words.slots[slot, LENGTH] >= 0:
            n_displaced += 1
        while words.slots[slot, LENGTH] >= 0:
            slot = (slot + 1) & mask
        words.slots[slot, LENGTH], words.slots[slot, WORD] = length, np.int64(load_text_word(text, length, end))
        words.slots[slot, BEGIN], words.slots[slot, CODE] = begin, first_code + number
        for i in range(8, length, 8):
            words.more[begin] = np.int64(load_text_word(text + np.uint64(i), length - i, end))
            begin += 1
    return n_displaced


class Slots(NamedTuple):
    """A hash table of keys with open addressing."""

    places: Array  # (2^bits,) int32: the place of a key among `keys`, or EMPTY
    keys: Integers  # (capacity,) int64
    counts: Integers  # (capacity, n_classes) int64


@inner_kernel
def key_hash_slot(key, shift):  # int64, uint64: 64 less the bits of a slot
    """Return the first slot to probe for a key: the highest bits of its product with an odd number, which depend on all
    its bits.
    """
    return np.int64((np.uint64(key) * ODD) >> shift)


@kernel
def count_hashed_numbers(x, y, start, level, slots, n):
    """Count numbers from a row on, until all are counted or there is no room for a new key.

    x (n_rows,) float64, NaN where missing, y (n_rows,) int64, level: number of dropped key bits; IN/OUT slots,
    with n keys in use.

    Returns the first row that is not counted, n, and the number of missing values.
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
        slot = key_hash_slot(key, shift)
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
def fill_key_hash_table(keys, n, places):  # (at least n,) int64; OUT (2^bits,) int32, EMPTY at first
    """Fill the hash table of n distinct keys."""
    last, bits = places.size - 1, 0
    while (1 << bits) <= last:
        bits += 1
    for place in range(n):
        slot = key_hash_slot(keys[place], np.uint64(64 - bits))
        while places[slot] != EMPTY:
            slot = (slot + 1) & last
        places[slot] = place
