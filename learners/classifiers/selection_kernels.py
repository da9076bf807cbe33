"""Single-threaded kernels of SkDB's selection pass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.classifiers.lookup.kernels import MULTIPLIER
from learners.kernels.arrays import Float32s, Int32s, Integers, Uint8s, Uint32s, Uint64s
from learners.kernels.intrinsics import popcount
from learners.kernels.jit import inner_kernel, kernel

BLOCK_ROWS = 2048
# Losses are summed as whole multiples of this, so that the sum does not depend on the order of the rows.
ONE = np.float32(1 << 30)


class LossTables(NamedTuple):
    """Leave-one-out log probabilities of m attributes in kDB order, each with levels 0..k of at most k parents.

    Entry e = level_starts[a] + l is attribute a with its first l parents. A key numbers the codes of the parents
    and of the attribute in mixed radix. If `is_dense[e]`, key j has row row_starts[e] + j, else its row is found
    in a hash table at hash_starts[e], as in `kernels.LookupTables`; a key without a row uses that of the level
    above.
    """

    attribute: Integers  # (m,) int64
    n_values: Integers  # (m,) int64
    parent_starts: Integers  # (m + 1,) int64
    level_starts: Integers  # (m + 1,) int64
    parents: Integers  # (sum of k,) int64
    parent_sizes: Integers  # (sum of k,) int64
    is_dense: Uint8s  # (n_entries,) uint8
    row_starts: Integers  # (n_entries,) int64: of dense entries
    n_dense: Integers  # (1,) int64: rows of all dense entries, after which those of hash tables come
    hash_starts: Integers  # (n_entries + 1,) int64
    hash_shifts: Integers  # (n_entries,) int64
    hash_words: Uint64s  # (w,) uint64
    hash_ranks: Int32s  # (w,) int32
    # key_low, key_high (r - n_dense,) uint32: `key_high` is empty where all keys are below 2^32.
    key_low: Uint32s
    key_high: Uint32s
    # (r, C) float32: log P(value | class, parents) from all rows; with two classes log P(of the other class) - left_out
    # instead.
    log_probability: Float32s
    # (r, C) float32: the same for the class of the row itself, without that row; (0, 2) with two classes.
    left_out: Float32s
    # log_prior, log_prior_left_out (C,) float32: of the other classes and of the row's own, without the row.
    log_prior: Float32s
    log_prior_left_out: Float32s


@inner_kernel
def _exp(x):
    """Return the exponential of a float32, without branches so that it vectorizes; relative error below 3e-7."""
    x = min(max(x, np.float32(-80.0)), np.float32(80.0))
    t = x * np.float32(1.4426950408889634)
    n = np.floor(t + np.float32(0.5))
    f = (t - n) * np.float32(0.6931471805599453)
    p = np.float32(1.0 / 5040.0)
    p = p * f + np.float32(1.0 / 720.0)
    p = p * f + np.float32(1.0 / 120.0)
    p = p * f + np.float32(1.0 / 24.0)
    p = p * f + np.float32(1.0 / 6.0)
    p = p * f + np.float32(0.5)
    p = p * f + np.float32(1.0)
    p = p * f + np.float32(1.0)
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@inner_kernel
def _keys(tables, a, level, x, first, n, context, keys):
    """Compute the keys of n rows; `context` holds the number of the first `level` parents' codes, and is updated."""
    if level > 0:
        p = tables.parent_starts[a] + level - 1
        codes, size = x[tables.parents[p]], np.int64(tables.parent_sizes[p])
        for row in range(n):
            context[row] = context[row] * size + codes[first + row]
    own, n_values = x[tables.attribute[a]], tables.n_values[a]
    for row in range(n):
        keys[row] = context[row] * n_values + own[first + row]


@kernel
def _rows(tables, e, n, keys, rows):
    """Find the rows of n keys, keeping the row of the level above if this level has none."""
    if tables.is_dense[e]:
        start = tables.row_starts[e]
        for row in range(n):
            rows[row] = start + keys[row]
        return
    first = tables.hash_starts[e]
    mask = (tables.hash_starts[e + 1] - first) * 64 - 1
    shift = np.uint64(tables.hash_shifts[e])
    is_wide = tables.key_high.size > 0
    for row in range(n):
        slot = np.int64((np.uint64(keys[row]) * MULTIPLIER) >> shift)
        low, high = np.uint32(keys[row]), np.uint32(keys[row] >> 32)
        while True:
            place, bit = first + (slot >> 6), np.uint64(slot & 63)
            if not (tables.hash_words[place] >> bit) & np.uint64(1):
                break
            before = tables.hash_words[place] & ((np.uint64(1) << bit) - np.uint64(1))
            entry = np.int64(tables.hash_ranks[place]) + np.int64(popcount(before))
            if tables.key_low[entry] == low and (not is_wide or tables.key_high[entry] == high):
                rows[row] = tables.n_dense[0] + entry
                break
            slot = (slot + 1) & mask


@inner_kernel
def _add_two_class_losses(log_odds, n, is_zero_one, y):
    """Sum the losses of n rows, given the log odds of the wrong class."""
    total = np.int64(0)
    if is_zero_one:
        for row in range(n):
            # Equal probabilities go to the first class.
            wrong = log_odds[row] > 0 or (log_odds[row] == 0 and y[row] == 1)
            total += np.int64(wrong) << 30
    else:
        for row in range(n):
            p_wrong = np.float32(1.0) - np.float32(1.0) / (np.float32(1.0) + _exp(log_odds[row]))
            total += np.int64(np.int32(p_wrong * p_wrong * ONE))
    return total


@kernel
def add_two_class_selection_losses(tables, x, y, is_zero_one, losses):
    """Add each row's leave-one-out loss for every number of parents and every prefix of the attributes; two classes.

    x (n_attributes, n) codes, y (n,) uint8; OUT losses (k + 1, m + 1) int64.
    """
    n_levels = losses.shape[0]
    log_odds = np.empty((n_levels, BLOCK_ROWS), np.float32)
    context = np.empty(BLOCK_ROWS, np.int64)
    keys = np.empty(BLOCK_ROWS, np.int64)
    rows = np.zeros(BLOCK_ROWS, np.int64)
    table = tables.log_probability.ravel()
    for first in range(0, y.size, BLOCK_ROWS):
        n = min(BLOCK_ROWS, y.size - first)
        labels = y[first : first + n]
        for row in range(n):
            own = labels[row]
            log_odds[0, row] = tables.log_prior[1 - own] - tables.log_prior_left_out[own]
        for level in range(1, n_levels):
            for row in range(n):
                log_odds[level, row] = log_odds[0, row]
        start = _add_two_class_losses(log_odds[0], n, is_zero_one, labels)
        for level in range(n_levels):
            losses[level, 0] += start
        for a in range(tables.attribute.size):
            deepest = tables.level_starts[a + 1] - tables.level_starts[a] - 1
            context[:n] = 0
            for level in range(n_levels):
                odds = log_odds[level]
                if level <= deepest:
                    _keys(tables, a, level, x, first, n, context, keys)
                    _rows(tables, tables.level_starts[a] + level, n, keys, rows)
                for row in range(n):
                    odds[row] += table[2 * rows[row] + labels[row]]
                losses[level, a + 1] += _add_two_class_losses(odds, n, is_zero_one, labels)


@kernel
def add_selection_losses(tables, x, y, is_zero_one, losses):
    """Add each row's leave-one-out loss for every number of parents and every prefix of the attributes; any number of
    classes.

    x (n_attributes, n) codes, y (n,) uint8; OUT losses (k + 1, m + 1) int64.
    """
    n_levels, n_classes = losses.shape[0], tables.log_prior.size
    log_joint = np.empty((n_levels, BLOCK_ROWS, n_classes), np.float32)
    context = np.empty(BLOCK_ROWS, np.int64)
    keys = np.empty(BLOCK_ROWS, np.int64)
    rows = np.zeros(BLOCK_ROWS, np.int64)
    for first in range(0, y.size, BLOCK_ROWS):
        n = min(BLOCK_ROWS, y.size - first)
        for level in range(n_levels):
            for row in range(n):
                own = y[first + row]
                for k in range(n_classes):
                    log_joint[level, row, k] = tables.log_prior[k]
                log_joint[level, row, own] = tables.log_prior_left_out[own]
            losses[level, 0] += _sum_of_losses(log_joint[level], y, first, n, is_zero_one)
        for a in range(tables.attribute.size):
            context[:n] = 0
            deepest = tables.level_starts[a + 1] - tables.level_starts[a] - 1
            for level in range(n_levels):
                if level <= deepest:
                    _keys(tables, a, level, x, first, n, context, keys)
                    _rows(tables, tables.level_starts[a] + level, n, keys, rows)
                joint = log_joint[level]
                for row in range(n):
                    own, cell = y[first + row], rows[row]
                    before = joint[row, own]
                    for k in range(n_classes):
                        joint[row, k] += tables.log_probability[cell, k]
                    joint[row, own] = before + tables.left_out[cell, own]
                losses[level, a + 1] += _sum_of_losses(joint, y, first, n, is_zero_one)


@inner_kernel
def _sum_of_losses(joint, y, first, n, is_zero_one):
    total = np.int64(0)
    for row in range(n):
        own = y[first + row]
        reference = joint[row, own]
        if is_zero_one:
            wrong = False
            for k in range(joint.shape[1]):
                wrong |= joint[row, k] > reference or (joint[row, k] == reference and k < own)
            total += np.int64(wrong) << 30
        else:
            others = np.float32(0.0)
            for k in range(joint.shape[1]):
                others += _exp(joint[row, k] - reference)
            others -= _exp(np.float32(0.0))
            p_wrong = np.float32(1.0) - np.float32(1.0) / (np.float32(1.0) + others)
            total += np.int64(np.int32(p_wrong * p_wrong * ONE))
    return total
