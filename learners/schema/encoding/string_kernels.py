"""Looking up text in domains, eight bytes at a time, at addresses as Arrow and requests lend them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Integers
from learners.kernels.intrinsics import load
from learners.kernels.jit import inner_kernel, kernel

EIGHT = np.uint64(8)
ODD = np.uint64(0x9E3779B97F4A7C15)
HALF, TOP = np.uint64(32), np.uint64(52)
ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
HIGH_BITS = np.uint64(0x8080808080808080)
ABSENT = -1
LENGTH, WORD, BEGIN, CODE = range(4)  # of a slot
SLOT_BYTES = 32


class Words(NamedTuple):
    """The hash tables of several domains, one behind the other, with open addressing."""

    # (n_slots, 4) int64: a text in each: its bytes (-1: the slot is empty), the first eight of them as a little-endian
    # number filled up with zeros, where the rest of a longer one begins in `more`, and its code.
    slots: Integers
    more: Integers  # (n_words,) int64: the numbers of longer texts from the second on


@inner_kernel
def word_at(address, n, end):  # uint64, int64, uint64 -> uint64
    """The first min(n, 8) bytes at an address as a number; reads nothing from `end` on."""
    if n >= 8:
        return load(address, np.uint64)
    if address + EIGHT <= end:
        # Shifted twice, as a shift by 64 bits does nothing at all.
        return load(address, np.uint64) & ~((ALL << np.uint64(4 * n)) << np.uint64(4 * n))
    word = np.uint64(0)
    for i in range(n):
        word |= np.uint64(load(address + np.uint64(i), np.uint8)) << np.uint64(8 * i)
    return word


@inner_kernel
def mixed(state, word):  # uint64, uint64 -> uint64
    """One step of the hash; its lowest bits, which say the slot, depend on all bits of the word."""
    state = (state ^ word) * ODD
    return state ^ (state >> HALF) ^ (state >> TOP)


@inner_kernel
def hash_of(address, length, end):
    """Of the text of `length` bytes at an address."""
    state = np.uint64(length)
    for i in range(0, max(length, 1), 8):
        state = mixed(state, word_at(address + np.uint64(i), length - i, end))
    return state


@inner_kernel
def of_slot(table, slot, place):
    """A number of a slot of the table at an address."""
    return load(table + np.uint64(SLOT_BYTES * slot + 8 * place), np.int64)


@inner_kernel
def code_of_word(address, length, end, table, mask, more):
    """The code of a text in the table of mask + 1 slots at an address, whose further words are at `more`; or ABSENT.

    Addresses, because arrays that are handed on to a function have their references counted each time.
    """
    word = word_at(address, length, end)
    state = mixed(np.uint64(length), word) if length <= 8 else hash_of(address, length, end)
    slot = np.int64(state & np.uint64(mask))
    while True:
        there = of_slot(table, slot, LENGTH)
        if there < 0:
            return ABSENT
        if there == length and np.uint64(of_slot(table, slot, WORD)) == word:
            is_equal, begin = True, more + EIGHT * np.uint64(of_slot(table, slot, BEGIN))
            for i in range(8, length, 8):
                rest = word_at(address + np.uint64(i), length - i, end)
                is_equal = is_equal and load(begin + np.uint64(i - 8), np.uint64) == rest
            if is_equal:
                return of_slot(table, slot, CODE)
        slot = (slot + 1) & mask


@inner_kernel
def is_ascii(address, length, end):
    """Whether no byte of a text has its highest bit set."""
    for i in range(0, length, 8):
        if word_at(address + np.uint64(i), length - i, end) & HIGH_BITS:
            return False
    return True


@kernel
def fill_slots(address, starts, first_code, mask, words):  # (n + 1,) int64; OUT words
    """Put the distinct texts between `starts` of the bytes at an address into an empty table, with ascending codes.

    Returns how many of them are not in the slot that their hash says.
    """
    end, begin, n_displaced = address + np.uint64(starts[-1]), 0, 0
    for number in range(starts.size - 1):
        text, length = address + np.uint64(starts[number]), starts[number + 1] - starts[number]
        slot = np.int64(hash_of(text, length, end) & np.uint64(mask))
        if words.slots[slot, LENGTH] >= 0:
            n_displaced += 1
        while words.slots[slot, LENGTH] >= 0:
            slot = (slot + 1) & mask
        words.slots[slot, LENGTH], words.slots[slot, WORD] = length, np.int64(word_at(text, length, end))
        words.slots[slot, BEGIN], words.slots[slot, CODE] = begin, first_code + number
        for i in range(8, length, 8):
            words.more[begin] = np.int64(word_at(text + np.uint64(i), length - i, end))
            begin += 1
    return n_displaced
