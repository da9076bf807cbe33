"""Hash tables from keys to rows, as kernels look into them: see `kernels.LookupTables`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import EMPTY, fill_hash
from learners.kernels.arrays import Int32s, Integers, Uint32s, Uint64s

WORD = 64


class Slots(NamedTuple):
    """The slots of some keys, at most half of them in use."""

    words: Uint64s
    shift: int
    order: Int32s  # (n,): the keys in the order of their slots


def slots_of(keys: Integers) -> Slots:
    """Slots for different keys (n,) int64."""
    bits = max(WORD.bit_length() - 1, int(2 * keys.size - 1).bit_length())
    owners = np.full(1 << bits, EMPTY, np.int32)
    fill_hash(keys, WORD - bits, owners)
    is_used = owners != EMPTY
    words = np.packbits(is_used, bitorder="little").view("<u8").astype(np.uint64)
    return Slots(words, WORD - bits, owners[is_used])


def ranks_of(words: Uint64s) -> Int32s:
    """The row of the first used slot of each word."""
    n_used = np.bitwise_count(words)
    return (np.cumsum(n_used, dtype=np.int64) - n_used).astype(np.int32)


def halves_of(keys: Integers) -> tuple[Uint32s, Uint32s]:
    """The lower and the upper 32 bits of keys; no upper ones where all are zero."""
    is_wide = keys.size and int(keys.max()) >= 1 << 32
    return keys.astype(np.uint32), (keys >> 32).astype(np.uint32) if is_wide else np.empty(0, np.uint32)


def starts_of(sizes: Sequence[int] | Integers) -> Integers:
    """Where each of some ranges of these sizes begins, one behind the other, and where the last ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
