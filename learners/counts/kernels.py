"""Single-threaded kernels that count by comparing 64 rows at a time, and hash rows."""

from __future__ import annotations

import numpy as np

from learners.kernels.intrinsics import equal_bytes_bitmask, popcount
from learners.kernels.jit import inner_kernel, kernel

WORD = 64
# A class's rows are padded to whole words; no attribute that has bit-planes uses this code.
PADDING = 255
BLOCK_WORDS = 128
# Words of the planes of a pair in a block: they fit the first cache, or nearly.
PAIR_WORDS = 256
BLOCK_ROWS = 4096
HASH_ROWS = 1024


@kernel
def group_rows_by_class(x, y, rows, attributes, starts, grouped):
    """Copy rows so that those of a class are contiguous, starting at word boundaries.

    x (n_attributes, n) codes, y (n,) codes, rows: from rows[0] to before rows[1]; attributes (m,) which ones, starts
    (n_classes,) first row of each class; OUT grouped (m, n_padded) uint8; the caller fills what is behind the rows of each
    class with PADDING.
    """
    following = starts.copy()
    position = np.empty(BLOCK_ROWS, np.uint32)  # of a few rows, so that the first cache holds them for all attributes
    for first in range(rows[0], rows[1], BLOCK_ROWS):
        n = min(BLOCK_ROWS, rows[1] - first)
        for row in range(n):
            k = y[first + row]
            position[row] = following[k]
            following[k] += 1
        for a in range(attributes.size):
            source, target = x[attributes[a], first : first + n], grouped[a]
            for row in range(n):
                target[position[row]] = source[row]


@kernel
def set_bit_planes(grouped, sizes, plane_starts, planes):
    """Set bit r of planes[plane_starts[a] + v] where grouped[a, r] == v, for all values v but the last of each
    attribute.

    grouped (m, n_padded) uint8, sizes (m,) int64; OUT planes (n_planes, n_words) uint64.
    """
    for a in range(grouped.shape[0]):
        codes = grouped[a]
        for v in range(sizes[a] - 1):
            plane = planes[plane_starts[a] + v]
            for word in range(plane.size):
                plane[word] = equal_bytes_bitmask(codes, word * WORD, np.uint8(v))


@kernel
def add_bit_plane_pairs(planes, word_starts, n_planes, plane_starts, pairs, table_starts, tables):
    """Count co-occurrences by AND and popcount, in blocks whose planes stay in the cache.

    pairs (n_pairs, 2) int64 positions among the attributes with planes; n_planes (m,); tables[table_starts[p]:] is
    (n_planes_i, n_planes_j, n_classes), row-major; OUT tables int64.
    """
    n_classes = word_starts.size - 1
    for k in range(n_classes):
        for first in range(word_starts[k], word_starts[k + 1], PAIR_WORDS):
            last = min(first + PAIR_WORDS, word_starts[k + 1])
            for p in range(pairs.shape[0]):
                i, j = pairs[p, 0], pairs[p, 1]
                cell = table_starts[p] + k
                # Four planes of j at a time: each word of i is loaded once for them.
                whole = n_planes[j] - n_planes[j] % 4
                for a in range(n_planes[i]):
                    own = planes[plane_starts[i] + a, first:last]
                    for b in range(plane_starts[j], plane_starts[j] + whole, 4):
                        p_0, p_1, p_2, p_3 = (
                            planes[b, first:last],
                            planes[b + 1, first:last],
                            planes[b + 2, first:last],
                            planes[b + 3, first:last],
                        )
                        n_0, n_1, n_2, n_3 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
                        for word in range(own.size):
                            bits = own[word]
                            n_0 += popcount(bits & p_0[word])
                            n_1 += popcount(bits & p_1[word])
                            n_2 += popcount(bits & p_2[word])
                            n_3 += popcount(bits & p_3[word])
                        tables[cell] += np.int64(n_0)
                        tables[cell + n_classes] += np.int64(n_1)
                        tables[cell + 2 * n_classes] += np.int64(n_2)
                        tables[cell + 3 * n_classes] += np.int64(n_3)
                        cell += 4 * n_classes
                    for b in range(plane_starts[j] + whole, plane_starts[j] + n_planes[j]):
                        other = planes[b, first:last]
                        n_0 = np.uint64(0)
                        for word in range(own.size):
                            n_0 += popcount(own[word] & other[word])
                        tables[cell] += np.int64(n_0)
                        cell += n_classes


@inner_kernel
def count_common_bits(a, b):  # (n,) uint64 twice
    """Return the number of bits that are set in both."""
    n = np.uint64(0)
    for word in range(a.size):
        n += popcount(a[word] & b[word])
    return np.int64(n)


@kernel
def add_binary_pair_counts(planes, word_starts, tables):
    """Count as `add_bit_plane_pairs` all pairs of attributes with one plane each; each plane is loaded once for four
    others.

    planes (m, n_words) uint64; OUT tables (m (m - 1) / 2, n_classes) int64, pairs in ascending order.
    """
    m = planes.shape[0]
    for k in range(word_starts.size - 1):
        for first in range(word_starts[k], word_starts[k + 1], PAIR_WORDS):
            last = min(first + PAIR_WORDS, word_starts[k + 1])
            for i in range(0, m, 4):
                # Where the pair of i and j is, less j; the next attribute's pairs begin m - i - 2 further on.
                pair_0 = i * m - i * (i + 1) // 2 - i - 1
                pair_1 = pair_0 + m - i - 2
                pair_2 = pair_1 + m - i - 3
                pair_3 = pair_2 + m - i - 4
                for j in range(i + 1, min(i + 4, m)):
                    near = planes[j, first:last]
                    tables[pair_0 + j, k] += count_common_bits(planes[i, first:last], near)
                    if j > i + 1:
                        tables[pair_1 + j, k] += count_common_bits(planes[i + 1, first:last], near)
                    if j > i + 2:
                        tables[pair_2 + j, k] += count_common_bits(planes[i + 2, first:last], near)
                for j in range(i + 4, m):
                    far = planes[j, first:last]
                    a_0, a_1 = planes[i, first:last], planes[i + 1, first:last]
                    a_2, a_3 = planes[i + 2, first:last], planes[i + 3, first:last]
                    n_0, n_1, n_2, n_3 = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
                    for word in range(far.size):
                        bits = far[word]
                        n_0 += popcount(a_0[word] & bits)
                        n_1 += popcount(a_1[word] & bits)
                        n_2 += popcount(a_2[word] & bits)
                        n_3 += popcount(a_3[word] & bits)
                    tables[pair_0 + j, k] += np.int64(n_0)
                    tables[pair_1 + j, k] += np.int64(n_1)
                    tables[pair_2 + j, k] += np.int64(n_2)
                    tables[pair_3 + j, k] += np.int64(n_3)


@kernel
def complete_pair_tables(
    inner, inner_starts, margins, n_planes, plane_starts, pairs, class_counts, tables, table_starts
):
    """Fill each pair's table from its co-occurrences, which lack the last values, and from the margins.

    inner as `add_bit_plane_pairs` counted it, margins (n_planes, c), pairs (n_pairs, 2) positions among the attributes with
    planes, class_counts (c,); OUT tables int32 or int64, to which is added: tables[table_starts[p]:] is (v_i, v_j, c).
    """
    n_classes = class_counts.size
    for p in range(pairs.shape[0]):
        i, j = pairs[p, 0], pairs[p, 1]
        last_i, last_j = n_planes[i], n_planes[j]
        margin_i, margin_j = margins[plane_starts[i] :], margins[plane_starts[j] :]
        for k in range(n_classes):
            cell = inner_starts[p] + k
            table = table_starts[p] + k
            rest_of_last = class_counts[k]
            for b in range(last_j):
                tables[table + (last_i * (last_j + 1) + b) * n_classes] += margin_j[b, k]
                rest_of_last -= margin_j[b, k]
            for a in range(last_i):
                rest = margin_i[a, k]
                for b in range(last_j):
                    n = inner[cell]
                    tables[table] += n
                    tables[table_starts[p] + k + (last_i * (last_j + 1) + b) * n_classes] -= n
                    rest -= n
                    cell += n_classes
                    table += n_classes
                tables[table] += rest
                rest_of_last -= rest
                table += n_classes
            tables[table_starts[p] + k + (last_i * (last_j + 1) + last_j) * n_classes] += rest_of_last


@kernel
def add_value_counts_by_class(x, y, attributes, sizes, starts, counts):
    """Count every value of some attributes by class, comparing 64 rows at a time.

    x (n_attributes, n) uint8 codes, y (n,) uint8, attributes (m,), sizes (m,) of their domains; IN/OUT counts
    int64: counts[starts[a]:] is (n_classes, sizes[a]). The last value and the last class follow from the margins.
    """
    n_classes = (starts[1] - starts[0]) // sizes[0]
    n_words = y.size // WORD
    class_counts = np.zeros(n_classes, np.int64)
    for row in range(n_words * WORD):
        class_counts[y[row]] += 1
    of_class = np.empty((n_classes - 1, BLOCK_WORDS), np.uint64)
    for first in range(0, n_words, BLOCK_WORDS):
        last = min(first + BLOCK_WORDS, n_words)
        for k in range(n_classes - 1):
            for word in range(first, last):
                of_class[k, word - first] = equal_bytes_bitmask(y, word * WORD, np.uint8(k))
        for a in range(attributes.size):
            codes, size = x[attributes[a]], sizes[a]
            for value in range(size - 1):
                n = np.uint64(0)
                for word in range(first, last):
                    n += popcount(equal_bytes_bitmask(codes, word * WORD, np.uint8(value)))
                rest = np.int64(n)
                for k in range(n_classes - 1):
                    n = np.uint64(0)
                    for word in range(first, last):
                        n += popcount(
                            equal_bytes_bitmask(codes, word * WORD, np.uint8(value)) & of_class[k, word - first]
                        )
                    rest -= np.int64(n)
                    counts[starts[a] + k * size + value] += np.int64(n)
                    counts[starts[a] + k * size + size - 1] -= np.int64(n)
                counts[starts[a] + (n_classes - 1) * size + value] += rest
                counts[starts[a] + (n_classes - 1) * size + size - 1] -= rest
    for a in range(attributes.size):
        codes, size = x[attributes[a]], sizes[a]
        for k in range(n_classes):
            counts[starts[a] + k * size + size - 1] += class_counts[k]
        for row in range(n_words * WORD, y.size):
            counts[starts[a] + y[row] * size + codes[row]] += 1


@kernel
def hash_row_contents(x, y, tables, class_keys, hashes):  # (n_attributes, n) codes, (n,) uint8; OUT (n,) uint64
    """Hash each row's content to 64 bits: the sum of the keys of its values, mixed as in splitmix64.

    tables: of `Schema.value_keys`; one lookup covers several attributes of few values.
    """
    place = np.empty(HASH_ROWS, np.uint16)
    for first in range(0, y.size, HASH_ROWS):
        n = min(HASH_ROWS, y.size - first)
        block = hashes[first : first + n]
        for row in range(n):
            block[row] = class_keys[y[first + row]]
        for t in range(tables.starts.size - 1):
            begin, end = tables.firsts[t], tables.firsts[t + 1]
            if begin == end:  # a schema without attributes
                continue
            codes = x[begin, first : first + n]
            for row in range(n):
                place[row] = codes[row]
            for i in range(begin + 1, end):
                codes, radix = x[i, first : first + n], np.uint16(tables.radices[i])
                for row in range(n):
                    place[row] = place[row] * radix + np.uint16(codes[row])
            keys = tables.keys[tables.starts[t] : tables.starts[t + 1]]
            for row in range(n):
                block[row] += keys[place[row]]
        for row in range(n):
            h = (block[row] ^ (block[row] >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            block[row] = h ^ (h >> np.uint64(31))
