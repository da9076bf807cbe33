"""Domains of text as tables that kernels look up without making Python objects of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.kernels.arrays import Integers
from learners.schema.encoding.string_kernels import BEGIN, LENGTH, Words, fill_slots

MAX_ROOMY_SLOTS = 1024


def word_table(values: Sequence[str], first_code: int) -> Words:
    """The table of distinct texts, whose codes ascend from `first_code` on; it has a power of two of slots."""
    encoded = [value.encode() for value in values]
    text = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    n_slots = 1 << max(3, (2 * len(values)).bit_length())
    # A second probe is a branch that nobody can foretell, so a small table grows until there is none.
    most = max(n_slots, min(MAX_ROOMY_SLOTS, 16 * n_slots))
    while True:
        slots = np.zeros((n_slots, 4), np.int64)
        slots[:, LENGTH] = -1
        words = Words(slots, np.zeros(sum(len(word) // 8 for word in encoded) + 1, np.int64))
        n_displaced = fill_slots(np.uint64(text.ctypes.data), starts, first_code, n_slots - 1, words)
        if not n_displaced or n_slots >= most:
            return words
        n_slots *= 2


def joined(tables: Sequence[Words]) -> tuple[Words, Integers, Integers]:
    """Several tables in one, and the first slot and the mask of each."""
    if not tables:
        tables = [word_table([], 0)]
    n_slots = np.array([len(table.slots) for table in tables], np.int64)
    shifts = np.cumsum([0, *(table.more.size for table in tables)])
    slots = np.concatenate([table.slots for table in tables])
    slots[:, BEGIN] += np.repeat(shifts[:-1], n_slots)
    return Words(slots, np.concatenate([table.more for table in tables])), np.cumsum(n_slots) - n_slots, n_slots - 1
