"""Hash tables from 64-bit keys to rows of a table."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import (
    EMPTY,
    fill_lookup_hash_table,
)
from learners.kernels.arrays import Int32s, Integers, Uint32s, Uint64s

WORD = 64


class Slots(NamedTuple):
    """The slots of some keys, at most half of them in use."""

    words: Uint64s
    shift: int
    order: Int32s  # (n,): the keys in the order of their slots


def build_hash_slots(keys: Integers) -> Slots:
    """Slots for different keys (n,) int64."""
    bits = max(WORD.bit_length() - 1, int(2 * keys.size - 1).bit_length())
    owners = np.full(1 << bits, EMPTY, np.int32)
    fill_lookup_hash_table(keys, WORD - bits, owners)
    is_used = owners != EMPTY
    words = np.packbits(is_used, bitorder="little").view("<u8").astype(np.uint64)
    return Slots(words, WORD - bits, owners[is_used])


def bit_vector_word_ranks(words: Uint64s) -> Int32s:
    """The row of the first used slot of each word."""
    n_used = np.bitwise_count(words)
    return (np.cumsum(n_used, dtype=np.int64) - n_used).astype(np.int32)


def split_64_bit_keys(keys: Integers) -> tuple[Uint32s, Uint32s]:
    """The lower and the upper 32 bits of keys; no upper ones where all are zero."""
    is_wide = keys.size and int(keys.max()) >= 1 << 32
    return keys.astype(np.uint32), (keys >> 32).astype(np.uint32) if is_wide else np.empty(0, np.uint32)
