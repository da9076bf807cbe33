"""Counting kernels, one thread each."""

from __future__ import annotations

import numpy as np

from learners.jit import kernel, match_bits, popcount

WORD = 64
# A class's rows are padded to whole words; no attribute that has bit-planes uses this code.
PADDING = 255
BLOCK_WORDS = 128


@kernel
def group_by_class(x, y, attributes, starts, position, grouped):
    """Copy rows so that those of a class are contiguous, from word boundaries on.

    x (n_attributes, n) codes, y (n,) uint8, attributes (m,) which ones, starts (n_classes,) first row of each class;
    position (n,) int64 scratch; OUT grouped (m, n_padded) uint8, filled with PADDING by the caller.
    """
    following = starts.copy()
    for row in range(y.size):
        position[row] = following[y[row]]
        following[y[row]] += 1
    for a in range(attributes.size):
        source, target = x[attributes[a]], grouped[a]
        for row in range(y.size):
            target[position[row]] = source[row]


@kernel
def set_planes(grouped, sizes, plane_starts, planes):
    """planes[plane_starts[a] + v] has bit r set where grouped[a, r] == v, for all values v but the last of each attribute.

    grouped (m, n_padded) uint8, sizes (m,) int64; OUT planes (n_planes, n_words) uint64.
    """
    for a in range(grouped.shape[0]):
        codes = grouped[a]
        for v in range(sizes[a] - 1):
            plane = planes[plane_starts[a] + v]
            for word in range(plane.size):
                plane[word] = match_bits(codes, word * WORD, np.uint8(v))


@kernel
def add_plane_margins(planes, word_starts, margins):
    """margins[p, k] += number of bits of plane p in the words of class k; word_starts (n_classes + 1,) int64."""
    for p in range(planes.shape[0]):
        for k in range(margins.shape[1]):
            n = np.uint64(0)
            for word in range(word_starts[k], word_starts[k + 1]):
                n += popcount(planes[p, word])
            margins[p, k] += np.int64(n)


@kernel
def add_plane_pairs(planes, word_starts, n_planes, plane_starts, pairs, table_starts, tables):
    """Count co-occurrences by AND and popcount, block by block so that the planes in use stay in the cache.

    pairs (n_pairs, 2) int64 positions among the attributes with planes; n_planes (m,); tables[table_starts[p]:] is
    (n_planes_i, n_planes_j, n_classes), row-major; OUT tables int64.
    """
    n_classes = word_starts.size - 1
    for k in range(n_classes):
        for first in range(word_starts[k], word_starts[k + 1], BLOCK_WORDS):
            last = min(first + BLOCK_WORDS, word_starts[k + 1])
            for p in range(pairs.shape[0]):
                i, j = pairs[p, 0], pairs[p, 1]
                cell = table_starts[p] + k
                for a in range(n_planes[i]):
                    plane_a = planes[plane_starts[i] + a, first:last]
                    for b in range(n_planes[j]):
                        plane_b = planes[plane_starts[j] + b, first:last]
                        n = np.uint64(0)
                        for word in range(plane_a.size):
                            n += popcount(plane_a[word] & plane_b[word])
                        tables[cell] += np.int64(n)
                        cell += n_classes


@kernel
def complete_pair(inner, margin_i, margin_j, class_counts, table):
    """Fill a pair's table from its co-occurrences without the last values, and from the margins.

    inner (v_i - 1, v_j - 1, c), margin_i (v_i - 1, c), margin_j (v_j - 1, c), class_counts (c,); OUT table (v_i, v_j, c),
    all int64, to which is added.
    """
    last_i, last_j = inner.shape[0], inner.shape[1]
    for k in range(class_counts.size):
        rest_of_last = class_counts[k]
        for a in range(last_i):
            rest = margin_i[a, k]
            for b in range(last_j):
                table[a, b, k] += inner[a, b, k]
                rest -= inner[a, b, k]
            table[a, last_j, k] += rest
            rest_of_last -= margin_i[a, k]
        for b in range(last_j):
            rest = margin_j[b, k]
            for a in range(last_i):
                rest -= inner[a, b, k]
            table[last_i, b, k] += rest
            rest_of_last -= rest
        table[last_i, last_j, k] += rest_of_last


@kernel
def add_pair_counts(x_i, x_j, y, counts):  # (n,) codes, (n,) codes, (n,) uint8; OUT (v_i, v_j, c) int64
    """Add to counts[a, b, k] the number of rows with x_i = a, x_j = b and y = k."""
    for row in range(y.size):
        counts[x_i[row], x_j[row], y[row]] += 1


@kernel
def family_cells(x, y, members, sizes, first, last, cells):
    """Index of each row's cell in a family's table (class, parents in order, value): mixed radix, the value fastest.

    x (n_attributes, n) codes, y (n,), members (k + 1,) the parents and then the attribute itself, sizes of their
    domains; rows first..last-1; OUT cells (last - first,) int64.
    """
    for row in range(first, last):
        cells[row - first] = y[row]
    for m in range(members.size):
        codes, size = x[members[m]], sizes[m]
        for row in range(first, last):
            cells[row - first] = cells[row - first] * size + codes[row]


@kernel
def add_cells(cells, counts):  # (n,) int64; OUT (n_cells,) int64
    """counts[cell] += 1 for every row."""
    for row in range(cells.size):
        counts[cells[row]] += 1


@kernel
def row_hashes(x, y, hashes):  # (n_attributes, n) codes, (n,) uint8; OUT (n,) uint64
    """A 64-bit hash of each row's content, mixed as in splitmix64."""
    for row in range(y.size):
        hashes[row] = np.uint64(y[row]) + np.uint64(0x9E3779B97F4A7C15)
    for i in range(x.shape[0]):
        codes = x[i]
        for row in range(y.size):
            h = (hashes[row] ^ np.uint64(codes[row])) * np.uint64(0xBF58476D1CE4E5B9)
            hashes[row] = h ^ (h >> np.uint64(29))
    for row in range(y.size):
        h = (hashes[row] ^ (hashes[row] >> np.uint64(30))) * np.uint64(0x94D049BB133111EB)
        hashes[row] = h ^ (h >> np.uint64(31))
