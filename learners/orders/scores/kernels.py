"""Kernels for counts and potentials of column sets, and scores of parent sets."""

from __future__ import annotations

import math

import numpy as np

from learners.kernels.intrinsics import popcount
from learners.kernels.jit import kernel

BLOCK_ROWS = 8192


@kernel
def add_column_set_counts(x, weights, sizes, sets, starts, tables):
    """Count the rows with each combination of values, for many sets of columns.

    x (d, n) codes; weights (n,) int64, how often each row occurs; sizes (d,) int64 of the domains; sets (s,)
    uint64 in ascending order, bit i for column i; starts (s + 1,); IN/OUT tables int64: tables[starts[j]:] is in
    mixed radix, the lowest column fastest.
    """
    d = x.shape[0]
    ids = np.empty((d + 1, BLOCK_ROWS), np.int32)
    chosen = np.full(d + 1, -1, np.int64)
    for first in range(0, x.shape[1], BLOCK_ROWS):
        n = min(BLOCK_ROWS, x.shape[1] - first)
        ids[0, :n] = 0
        chosen[:] = -1
        for j in range(sets.size):
            table = tables[starts[j] : starts[j + 1]]
            depth = 0
            last = -1
            # Uint64s in a row share their highest columns, and so the cells of these.
            for i in range(d - 1, -1, -1):
                if (sets[j] >> np.uint64(i)) & np.uint64(1):
                    if last >= 0:
                        if chosen[depth] != last:
                            chosen[depth] = last
                            chosen[depth + 1] = -1
                            before, refined, codes, size = ids[depth], ids[depth + 1], x[last], np.int32(sizes[last])
                            for row in range(n):
                                refined[row] = before[row] * size + codes[first + row]
                        depth += 1
                    last = i
            if last < 0:
                for row in range(n):
                    table[0] += weights[first + row]
                continue
            codes, size = x[last], np.int32(sizes[last])
            for row in range(n):
                table[ids[depth, row] * size + codes[first + row]] += weights[first + row]


@kernel
def bdeu_potentials(starts, tables, pseudo_counts, h):
    """Compute h[j], the sum over cells of lgamma(count + a) - lgamma(a), a = pseudo_counts[j]; OUT h (s,)."""
    for j in range(h.size):
        a = pseudo_counts[j]
        at_zero = math.lgamma(a)
        total = 0.0
        for cell in range(starts[j], starts[j + 1]):
            if tables[cell] > 0:
                total += math.lgamma(tables[cell] + a) - at_zero
        h[j] = total


@kernel
def sparse_bdeu_potential(x, weights, columns, pseudo_count, labels, keys, values, counts):
    """Compute the potential of one set of columns with few observed combinations.

    x (d, n) codes, columns (l,) int64; scratch labels (n,) int64, keys and values (2^b,) int64 of a hash table of at
    least twice as many slots as rows, counts (n,) int64.
    """
    n = x.shape[1]
    labels[:] = 0
    n_labels = 1
    slots = np.uint64(keys.size - 1)
    for column in columns:
        keys[:] = -1
        n_new = 0
        # Labels of combinations are fewer than rows, so that label and code together are one key.
        for row in range(n):
            key = labels[row] * np.int64(1 << 16) + np.int64(x[column, row])
            slot = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & slots
            while keys[slot] != key:
                if keys[slot] == -1:
                    keys[slot] = key
                    values[slot] = n_new
                    n_new += 1
                    break
                slot = (slot + np.uint64(1)) & slots
            labels[row] = values[slot]
        n_labels = n_new
    counts[:n_labels] = 0
    for row in range(n):
        counts[labels[row]] += weights[row]
    at_zero = math.lgamma(pseudo_count)
    total = 0.0
    for label in range(n_labels):
        total += math.lgamma(counts[label] + pseudo_count) - at_zero
    return total


@kernel
def bge_scores(r, constants, degrees, most, work, scores):
    """Compute the log score of every set of candidate parents, by Schur complements shared between sets.

    r (k + 1, k + 1) float64, the posterior scale matrix of the node and then of its k candidates; constants (k + 1,) the
    terms that depend on the number of parents only; degrees = N + alpha_w - d; most parents; work (k + 1, k + 1, k + 1)
    scratch; OUT scores (2^k,), sets as bits of the index, -inf where there are too many parents.
    """
    k = constants.size - 1
    # Level b: the node and candidates 0..b-1 once the candidates from b on are in or out; its matrix is work[at[b]], of
    # which the lower triangle counts.
    at = np.full(k + 1, k, np.int64)
    log_det = np.zeros(k + 1)
    for i in range(k + 1):
        for j in range(i + 1):
            work[k, i, j] = r[i, j]
    for index in range(1 << k):
        n_parents = np.int64(popcount(np.uint64(index)))
        if n_parents > most:
            scores[index] = -np.inf
            continue
        # Levels above the highest bit that has changed, the lowest one set, still hold: the first set with these upper bits had no others.
        highest = np.int64(popcount(np.uint64((index & -index) - 1))) if index > 0 else k - 1
        for b in range(highest, -1, -1):
            at[b] = at[b + 1]
            log_det[b] = log_det[b + 1]
            if (index >> b) & 1:
                above, below = work[at[b + 1]], work[b]
                pivot = above[b + 1, b + 1]
                for i in range(b + 1):
                    factor = above[b + 1, i] / pivot
                    for j in range(i + 1):
                        below[i, j] = above[i, j] - factor * above[b + 1, j]
                at[b] = b
                log_det[b] += np.log(pivot)
        half = (degrees + n_parents) / 2.0
        log_variance = np.log(work[at[0], 0, 0])
        scores[index] = constants[n_parents] - 0.5 * log_det[0] - (half + 0.5) * log_variance


@kernel
def best_bge_parent_additions(r, constants, degrees, t, most, best):
    """Raise best[j] to the largest BGe score of a parent set with other j, the newest of t candidates, and any of the
    rest.

    r (1 + t + o, 1 + t + o) float64: scale matrix of the node, its t candidates and o others; constants by number of
    parents; most parents; OUT best (o,).
    """
    n_others = r.shape[0] - 1 - t
    own = np.empty((t + 1, t + 1, t + 1))
    cross = np.empty((t + 1, n_others, t + 1))
    diagonal = np.empty((t + 1, n_others))
    at = np.full(t + 1, t, np.int64)
    log_det = np.zeros(t + 1)
    for i in range(t + 1):
        for j in range(i + 1):
            own[t, i, j] = r[i, j]
    for j in range(n_others):
        for i in range(t + 1):
            cross[t, j, i] = r[t + 1 + j, i]
        diagonal[t, j] = r[t + 1 + j, t + 1 + j]
    first = 1 << (t - 1) if t > 0 else 0
    for index in range(first, 1 << t):
        n_parents = np.int64(popcount(np.uint64(index))) + 1
        if n_parents > most:
            continue
        highest = np.int64(popcount(np.uint64((index & -index) - 1))) if index > first else t - 1
        for b in range(highest, -1, -1):
            at[b] = at[b + 1]
            log_det[b] = log_det[b + 1]
            if (index >> b) & 1:
                above, below = at[b + 1], b
                pivot = own[above, b + 1, b + 1]
                for i in range(b + 1):
                    factor = own[above, b + 1, i] / pivot
                    for j in range(i + 1):
                        own[below, i, j] = own[above, i, j] - factor * own[above, b + 1, j]
                    for j in range(n_others):
                        cross[below, j, i] = cross[above, j, i] - factor * cross[above, j, b + 1]
                for j in range(n_others):
                    diagonal[below, j] = diagonal[above, j] - cross[above, j, b + 1] ** 2 / pivot
                at[b] = b
                log_det[b] += np.log(pivot)
        level = at[0]
        half = (degrees + n_parents) / 2.0
        for j in range(n_others):
            variance = own[level, 0, 0] - cross[level, j, 0] ** 2 / diagonal[level, j]
            score = (
                constants[n_parents] - 0.5 * (log_det[0] + np.log(diagonal[level, j])) - (half + 0.5) * np.log(variance)
            )
            best[j] = max(best[j], score)
