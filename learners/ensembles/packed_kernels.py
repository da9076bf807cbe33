"""Kernels that restore packed lookup tables: every row is stored as its difference from the row that it backs off to."""

from __future__ import annotations

import numpy as np

from learners.classifiers.lookup.kernels import EMPTY, MULTIPLIER
from learners.kernels.intrinsics import popcount
from learners.kernels.jit import inner_kernel, kernel

BLOCK = 1024  # numbers whose bytes are put together at a time


@inner_kernel
def _context_above(context, parent_sizes, strides):
    """Return the number of a context with its last seen parent dropped; -1 for the context without parents."""
    for d in range(parent_sizes.size - 1, -1, -1):
        code = context // strides[d] % (parent_sizes[d] + 1)
        if code < parent_sizes[d]:
            return context + (parent_sizes[d] - code) * strides[d]
    return np.int64(-1)


@kernel
def fill_dense_references(first, n_values, parent_sizes, strides, references):  # (k,), (k,) int64; OUT (rows,) int32
    """Fill in the row that each row of a dense table backs off to, where its first row is `first`; -1 without one."""
    for context in range(references.size // n_values):
        above = _context_above(context, parent_sizes, strides)
        for value in range(n_values):
            references[context * n_values + value] = first + above * n_values + value if above >= 0 else -1


@kernel
def restore_keys(planes, starts, ends, keys):  # (p, n) uint8, (m + 1,), (m,) int64; OUT (n,) int64
    """Restore keys from the bytes of their steps, where those of attribute a are starts[a] to starts[a + 1].

    Keys from `end` on are stored before the others, less `end`; the others plus `end`.
    """
    for a in range(ends.size):
        key = np.int64(0)
        for i in range(starts[a], starts[a + 1]):
            step = np.int64(0)
            for byte in range(planes.shape[0]):
                step |= np.int64(planes[byte, i]) << (8 * byte)
            key += step
            keys[i] = key + ends[a] if key < ends[a] else key - ends[a]


@kernel
def lay_out_keys(
    keys, first, layout, owners, shift, words, references, places
):  # (n,) int64, (slots,) int32; OUT (slots / 64,) uint64, (n,), (n,) int32
    """Fill in the used slots of a hash table, the position that each key backs off to, and its row in order of slots.

    Positions and rows begin at `first`; references are -1 without one. `layout` is the number of keys of contexts that end at no missing
    parent, that of keys of a context, and parents' sizes and strides. Other keys refer to the same context with that parent summed over.
    """
    end, n_keys, parent_sizes, strides = layout
    mask, row = owners.size - 1, first
    for word in range(words.size):
        bits = np.uint64(0)
        for bit in range(64):
            owner = owners[64 * word + bit]
            if owner != EMPTY:
                bits |= np.uint64(1) << np.uint64(bit)
                places[owner] = row
                row += 1
        words[word] = bits
    whole = np.int64(0)
    while whole < keys.size and keys[whole] >= end:
        whole += 1
    base, above = np.int64(-1) - n_keys, np.int64(-1)  # first keys of a context, and of that above
    for position in range(keys.size):
        key = keys[position]
        references[position] = -1
        if key >= end:  # both ascend
            while whole < keys.size and keys[whole] < key - end:
                whole += 1
            if whole < keys.size and keys[whole] == key - end:
                references[position] = first + whole
            continue
        if key < base or key >= base + n_keys:
            context = key // n_keys
            base, above = context * n_keys, _context_above(context, parent_sizes, strides) * n_keys
        if above >= 0:
            wanted = above + key - base
            slot = np.int64((np.uint64(wanted) * MULTIPLIER) >> np.uint64(shift))
            while owners[slot] != EMPTY:
                if keys[owners[slot]] == wanted:
                    references[position] = first + owners[slot]
                    break
                slot = (slot + 1) & mask


@kernel
def restore_rows(masks, planes, steps, references, places, grid, terms, codes):  # OUT (n, C) float32, (n, C) uint8
    """Restore rows of terms and codes from those that they back off to: row i at places[i], from the last to the first.

    masks (bytes, n) uint8: in which classes row i differs from row references[i] > i, or from zeros; planes (p, changes) uint8: by class
    and row, the bytes of the changes in parts of one `grid`, lowest first, the sign in the lowest bit; steps (changes,) uint8: the
    changes of codes, modulo 256; references, places (n,) int32.
    """
    n_classes, n, n_changes = terms.shape[1], places.size, steps.size
    numbers, moved = np.empty(BLOCK, np.int32), np.empty(n_changes, np.float32)
    part = np.float32(1.0 / grid)
    for first in range(0, n_changes, BLOCK):
        block = moved[first : first + BLOCK]
        numbers[:] = 0
        for byte in range(planes.shape[0]):
            own = planes[byte, first : first + BLOCK]
            for i in range(own.size):
                numbers[i] |= np.int32(own[i]) << np.int32(8 * byte)
        for i in range(block.size):
            block[i] = np.float32((numbers[i] >> np.int32(1)) ^ -(numbers[i] & np.int32(1))) * part
    ends, end = np.empty(n_classes, np.int64), np.int64(0)
    for k in range(n_classes):
        mask, bit = masks[k // 8], np.uint8(k % 8)
        for i in range(n):
            end += (mask[i] >> bit) & np.uint8(1)
        ends[k] = end
    flat_terms, flat_codes, width = terms.reshape(-1), codes.reshape(-1), np.uint64(n_classes)
    for i in range(n - 1, -1, -1):
        own_start = np.uint64(places[i]) * width
        if references[i] > i:
            above = np.uint64(places[references[i]]) * width
            for k in range(width):
                flat_terms[own_start + k] = flat_terms[above + k]
            for k in range(width):
                flat_codes[own_start + k] = flat_codes[above + k]
        else:
            for k in range(width):
                flat_terms[own_start + k], flat_codes[own_start + k] = np.float32(0.0), np.uint8(0)
        for byte in range(masks.shape[0]):
            bits = np.uint64(masks[byte, i])
            while bits:
                lowest = bits & (~bits + np.uint64(1))
                k = 8 * byte + np.int64(popcount(lowest - np.uint64(1)))
                bits ^= lowest
                ends[k] -= 1
                flat_terms[own_start + np.uint64(k)] += moved[ends[k]]
                flat_codes[own_start + np.uint64(k)] += steps[ends[k]]
