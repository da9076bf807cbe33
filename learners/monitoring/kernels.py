"""Single-threaded kernels that count served rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Integers
from learners.kernels.jit import kernel
from learners.kernels.random import random_bits

FIXED_POINT = 4294967296.0  # 2^32: sums of such whole numbers do not depend on their order
FINE_POINT = 1099511627776.0  # 2^40, for probabilities of whole rows
CONFIDENCE_BINS = 20
SURPRISE_BINS = 64
MIN_EXPECTED = 5.0  # of a cell that is tested by itself
NATS_PER_BIN = 0.125  # of surprise for each known attribute


class Places(NamedTuple):
    """Positions of n family tables in the vector of counts, all int64."""

    sizes: Integers  # (n,): codes of each attribute, the unseen one included
    starts: Integers  # (n,): first cell of the table [context, code] of each attribute
    parent_starts: Integers  # (n + 1,)
    # `parents`, `strides`: (sum of k,): attributes whose codes number the context, and the place value of each.
    parents: Integers
    strides: Integers


@kernel
def add_served_family_counts(
    x, places, cells, counts
):  # x (n, rows) codes; OUT (rows,) int64 scratch; OUT counts int64
    """Count each attribute's code in its context."""
    for i in range(places.sizes.size):
        size, start, values = places.sizes[i], places.starts[i], x[i]
        first, last = places.parent_starts[i], places.parent_starts[i + 1]
        if first == last:
            for row in range(values.size):
                counts[start + np.int64(values[row])] += 1
            continue
        for row in range(values.size):
            cells[row] = start + np.int64(values[row])
        for d in range(first, last):
            parent, stride = x[places.parents[d]], places.strides[d] * size
            for row in range(values.size):
                cells[row] += np.int64(parent[row]) * stride
        for row in range(values.size):
            counts[cells[row]] += 1


@kernel
def hash_served_rows(x, out):  # x (n, rows) codes; OUT (rows,) uint64
    """Hash the codes of each row."""
    for row in range(out.size):
        out[row] = np.uint64(0x9E3779B97F4A7C15)
    for i in range(x.shape[0]):
        values = x[i]
        for row in range(out.size):
            out[row] = (out[row] ^ np.uint64(values[row])) * np.uint64(0x100000001B3)
            out[row] ^= out[row] >> np.uint64(29)
    for row in range(out.size):
        out[row] = random_bits(out[row])


@kernel
def add_prediction_counts(p, confidence, sums):  # (rows, C) float64; OUT (C, bins) int64, (C + 2,) int64
    """Count predicted class and confidence; add each class's p, the largest p, and the entropy in nats, in fixed point."""
    n_classes = p.shape[1]
    for row in range(p.shape[0]):
        best, entropy = 0, 0.0
        for k in range(n_classes):
            if p[row, k] > p[row, best]:
                best = k
            if p[row, k] > 0:
                entropy -= p[row, k] * np.log(p[row, k])
            sums[k] += np.int64(np.rint(p[row, k] * FIXED_POINT))
        largest = p[row, best]
        confidence[best, min(np.int64(largest * CONFIDENCE_BINS), CONFIDENCE_BINS - 1)] += 1
        sums[n_classes] += np.int64(np.rint(largest * FIXED_POINT))
        sums[n_classes + 1] += np.int64(np.rint(entropy * FIXED_POINT))


@kernel
def add_surprise_counts(log_joint, x, sizes, histogram, sums):  # (rows, C) float64; OUT (bins,) int64, (3,) int64
    """Count -log P(x) in nats for each known attribute; sums: these nats in fixed point, impossible rows, P(x)."""
    for row in range(log_joint.shape[0]):
        largest = -np.inf
        for k in range(log_joint.shape[1]):
            largest = max(largest, log_joint[row, k])
        if largest == -np.inf:
            sums[1] += 1
            continue
        total, n_known = 0.0, 0
        for k in range(log_joint.shape[1]):
            total += np.exp(log_joint[row, k] - largest)
        for i in range(sizes.size):
            if x[i, row] < sizes[i] - 1:
                n_known += 1
        if n_known == 0:
            continue
        sums[2] += np.int64(np.rint(np.exp(largest + np.log(total)) * FINE_POINT))
        nats = max(0.0, -(largest + np.log(total)) / n_known)
        histogram[min(np.int64(nats / NATS_PER_BIN), SURPRISE_BINS - 1)] += 1
        sums[0] += np.int64(np.rint(nats * FIXED_POINT))


@kernel
def g_test_statistic(window, reference, inflation):  # (n_contexts, n_values) int64 each
    """Compute G of P(value | context) with Williams' correction, degrees of freedom, nats and rows of the window; 0 if
    no cell remains.

    Cells with a small expected count in either sample are merged within their context, and left out if the merged
    cell is small, too.
    """
    whole, degrees, weighted, n_rows = 0.0, 0, 0.0, 0.0
    for context in range(window.shape[0]):
        own, other = window[context], reference[context]
        n_own, n_other = 0.0, 0.0
        for value in range(own.size):
            n_own += own[value]
            n_other += other[value]
        if n_own <= 0 or n_other <= 0:
            continue
        # Of both samples together; of rows that repeat as many more.
        least = MIN_EXPECTED * inflation * (n_own + n_other) / min(n_own, n_other)
        rest_own, rest_other = 0.0, 0.0
        for value in range(own.size):
            if own[value] + other[value] < least:
                rest_own += own[value]
                rest_other += other[value]
        if rest_own + rest_other < least:
            n_own -= rest_own
            n_other -= rest_other
            rest_own = rest_other = 0.0
        if n_own <= 0 or n_other <= 0:
            continue
        both, n_cells, g, spread = n_own + n_other, 0, 0.0, -1.0
        for value in range(own.size + 1):
            if value == own.size:
                of_own, of_other = rest_own, rest_other
            elif own[value] + other[value] < least:
                continue
            else:
                of_own, of_other = np.float64(own[value]), np.float64(other[value])
            total = of_own + of_other
            if total <= 0:
                continue
            n_cells += 1
            spread += both / total
            if of_own > 0:
                g += 2 * of_own * np.log(of_own * both / (total * n_own))
            if of_other > 0:
                g += 2 * of_other * np.log(of_other * both / (total * n_other))
        if n_cells < 2:
            continue
        free = n_cells - 1
        g /= (1 + spread * (both / n_own + both / n_other - 1) / (6 * both * free)) * inflation
        whole += g
        degrees += free
        n_rows += n_own
        weighted += (g - free) * inflation * both / (2 * n_other)  # effective rows: n_own * n_other / both
    return whole, degrees, weighted / max(n_rows, 1.0), np.int64(n_rows)
