"""Single-threaded lookup kernels, for few classes and for many."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.counts.sparse_kernels import binary_search_index
from learners.kernels.arrays import Codes, Float32s, Floats, Int32s, Integers, Uint8s, Uint32s, Uint64s
from learners.kernels.intrinsics import add_four, popcount, prefetch
from learners.kernels.jit import borrowing_kernel, kernel

BLOCK_ROWS = 256
# Tables larger than a processor's own cache are read an attribute at a time for as many rows as have so many sums, which the
# cache holds: the 97 MB of an ensemble take 1.9 us a row instead of 4.8 (`benchmarks.null_rows`).
CACHED_CELLS, BLOCK_SUMS = 1 << 17, 1 << 16
FEW_ROWS = 2  # a row alone, or with its nulls hidden beside it
NEGLIGIBLE = -46.0  # logarithm of a term that no sum of 2^20 terms and the largest, in float64, tells from 0
EMPTY = -1
AHEAD = 8  # rows of which a table's numbers are asked for before they are added
ABSENT, FOUND = -1, -2  # in place of a key: it has no row; its row, subtracted
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # of keys, whose highest bits are the slot


class LookupTables(NamedTuple):
    """Compiled form of m attributes with C classes; all arrays read-only.

    An attribute has either a dense table [context, value, class] of log probabilities, back-off resolved, or a
    hash table from (context, value) to a vector of C logarithms. A context is numbered in mixed radix by its
    parents' codes, including the unseen code; a context with its last parents dropped has their unseen codes.

    A context that ends at a missing parent may have its own entries, averaged over the missing value: their keys
    are those of the context, offset by the number of all keys.

    Only the used slots of a hash table have a row: bit i of word w tells whether slot 64 w + i is used, and
    `hash_ranks[w]` is the row of the first of them. So slots are cheap, and a row holds only a key and its
    vector.
    """

    attribute: Integers  # (m,) int64
    n_values: Integers  # (m,) int64
    parent_starts: Integers  # (m + 1,) int64
    # parents, parent_sizes, strides (sum of k,) int64: attribute, domain size and place value of each parent.
    parents: Integers
    parent_sizes: Integers
    strides: Integers
    dense_starts: Integers  # (m,) int64: where the dense table begins in `dense`; -1 without one
    dense: Float32s  # (n,) float32
    hash_starts: Integers  # (m + 1,) int64: words of each attribute's hash table; none where it has a dense table
    hash_shifts: Integers  # (m,) int64: 64 minus the binary logarithm of the number of slots
    hash_words: Uint64s  # (w,) uint64
    hash_ranks: Int32s  # (w,) int32
    # key_low, key_high (r,) uint32: key context * (v + 1) + value, with value v for the context's rest; `key_high` is
    # empty where all keys are below 2^32.
    key_low: Uint32s
    key_high: Uint32s
    vectors: Float32s  # (r, C) float32
    log_prior: Floats  # (C,) float64
    is_hierarchical: Uint8s  # (1,) uint8


@kernel
def fill_lookup_hash_table(keys, shift, owners):  # (n,) int64; OUT (slots,) int32 of EMPTY
    """Assign a slot to every key by linear probing: owners[slot] is its position."""
    mask = owners.size - 1
    for position in range(keys.size):
        slot = np.int64((np.uint64(keys[position]) * MULTIPLIER) >> np.uint64(shift))
        while owners[slot] != EMPTY:
            slot = (slot + 1) & mask
        owners[slot] = position


@borrowing_kernel
def _add_dense_block(tables, a, x, first, last, cells, log_joint):  # OUT (n_block,) int64 cells: scratch
    """Add the terms of a dense table to a block of rows, with one loop per parent, which the compiler can vectorize."""
    n_values, n_classes = tables.n_values[a], tables.log_prior.size
    n_fours = n_classes - n_classes % 4
    values, dense, joint = (
        x[tables.attribute[a], first:last],
        tables.dense[tables.dense_starts[a] :],
        log_joint[first:last],
    )
    sums = joint.reshape(-1)
    for row in range(values.size):
        cells[row] = np.int64(values[row]) * n_classes
    for d in range(tables.parent_starts[a], tables.parent_starts[a + 1]):
        parent, stride = x[tables.parents[d], first:last], tables.strides[d] * n_values * n_classes
        for row in range(values.size):
            cells[row] += np.int64(parent[row]) * stride
    for row in range(values.size):
        if values[row] < n_values:
            cell = np.uint64(cells[row])
            if n_classes == 2:
                joint[row, 0] += dense[cell]
                joint[row, 1] += dense[cell + np.uint64(1)]
            else:
                for k in range(0, n_fours, 4):
                    add_four(sums, row * n_classes + k, dense, cells[row] + k)
                for k in range(n_fours, n_classes):
                    joint[row, k] += dense[cell + np.uint64(k)]


@borrowing_kernel
def _find_all(tables, a, keys):  # (n,) int64, in place
    """Put FOUND less its row of `vectors` in place of each key, or ABSENT for an unknown key.

    Most keys are in their own slots, or these are empty: all such are found first, without a branch.
    """
    begin, shift = tables.hash_starts[a], np.uint64(tables.hash_shifts[a])
    words, ranks, last = tables.hash_words[begin:], tables.hash_ranks[begin:], np.uint64(tables.key_low.size - 1)
    is_wide = tables.key_high.size > 0
    for i in range(keys.size if tables.key_low.size else 0):
        key = keys[i]
        slot = (np.uint64(key) * MULTIPLIER) >> shift
        place, bit = slot >> np.uint64(6), slot & np.uint64(63)
        before = words[place] & ((np.uint64(1) << bit) - np.uint64(1))
        entry = min(np.uint64(ranks[place]) + popcount(before), last)
        is_used = (words[place] >> bit) & np.uint64(1) != np.uint64(0)
        is_own = is_used & (tables.key_low[entry] == np.uint32(key)) & (key >= 0)
        if is_wide:
            is_own &= tables.key_high[entry] == np.uint32(key >> 32)
        keys[i] = FOUND - np.int64(entry) if is_own else (key if is_used else ABSENT)
    mask = np.uint64((tables.hash_starts[a + 1] - begin) * 64 - 1)
    for i in range(keys.size):
        if keys[i] < 0:
            continue
        key, slot = keys[i], (np.uint64(keys[i]) * MULTIPLIER) >> shift
        keys[i] = ABSENT
        while True:
            place, bit = slot >> np.uint64(6), slot & np.uint64(63)
            if not (words[place] >> bit) & np.uint64(1):
                break
            before = words[place] & ((np.uint64(1) << bit) - np.uint64(1))
            entry = np.uint64(ranks[place]) + popcount(before)
            if tables.key_low[entry] == np.uint32(key) and (
                not is_wide or tables.key_high[entry] == np.uint32(key >> 32)
            ):
                keys[i] = FOUND - np.int64(entry)
                break
            slot = (slot + np.uint64(1)) & mask


@borrowing_kernel
def _add_backed_off(tables, a, x, first, n, scratch, is_pending, log_joint):
    """Add the terms of n rows with an unseen context or value, or for which only the rest was stored.

    Their numbers from `first` are scratch[1][:n]; OUT scratch, four (n_block,) int64, is_pending (n_block, C) uint8, log_joint. A value
    unseen in the context takes the context's rest for the classes observed there, and continues with the last parent dropped
    for the others (m-estimates), or for all of them (HDP). All rows go a step together, so that memory accesses overlap.
    """
    keys, rows, bases, depths = scratch
    begin, end = tables.parent_starts[a], tables.parent_starts[a + 1]
    values, n_keys = x[tables.attribute[a]], tables.n_values[a] + 1
    is_hierarchical, n_classes = tables.is_hierarchical[0], tables.log_prior.size
    vectors = tables.vectors.reshape(-1)
    own_start = np.int64(0)  # of the entries of contexts that end at a missing parent
    if end > begin:
        own_start = tables.strides[begin] * (tables.parent_sizes[begin] + 1) * n_keys
    for i in range(n):
        row = first + rows[i]
        depth = np.int64(0)  # parents before the first that training never saw: the same context must not count twice
        context = np.int64(0)
        is_seen = True
        for d in range(begin, end):
            code, size = np.int64(x[tables.parents[d], row]), tables.parent_sizes[d]
            is_seen = is_seen and code < size
            depth += is_seen
            context += (code if is_seen else size) * tables.strides[d]
        bases[i], depths[i] = context * n_keys, depth
        keys[i] = ABSENT  # as the caller found with all parents
        if not is_seen:
            bases[i] += own_start
            keys[i] = bases[i] + np.int64(values[row])
        is_pending[rows[i]] = 1
    while n > 0:
        _find_all(tables, a, keys[:n])
        n_left = 0
        for i in range(n):
            prefetch(vectors, (FOUND - keys[min(i + AHEAD, n - 1)]) * n_classes, n_classes)
            if keys[i] > FOUND:
                rows[n_left], bases[n_left], depths[n_left] = rows[i], bases[i], depths[i]
                n_left += 1
            else:
                for k in range(n_classes):
                    if is_pending[rows[i], k]:
                        log_joint[first + rows[i], k] += tables.vectors[FOUND - keys[i], k]
        n = n_left
        for i in range(n):
            keys[i] = bases[i] + n_keys - 1
        _find_all(tables, a, keys[:n])
        n_left = 0
        for i in range(n):
            prefetch(vectors, (FOUND - keys[min(i + AHEAD, n - 1)]) * n_classes, n_classes)
            row, base, depth = rows[i], bases[i], depths[i]
            is_own = depth < end - begin and base >= own_start
            if keys[i] <= FOUND:
                for k in range(is_pending.shape[1]):
                    rest = tables.vectors[FOUND - keys[i], k]
                    if is_pending[row, k] and not np.isnan(rest):
                        log_joint[first + row, k] += rest
                        is_pending[row, k] = is_hierarchical
            if is_own:
                base -= own_start
            if (
                keys[i] <= FOUND or not is_own
            ):  # else it has no entries of its own: read as a context that training never saw
                depth -= 1
                if depth >= 0:
                    d = begin + depth
                    code = np.int64(x[tables.parents[d], first + row])
                    base += (tables.parent_sizes[d] - code) * tables.strides[d] * n_keys
            if depth >= 0:
                rows[n_left], bases[n_left], depths[n_left] = row, base, depth
                keys[n_left] = base + np.int64(values[first + row])
                n_left += 1
        n = n_left


@borrowing_kernel
def _add_sparse_block(tables, a, x, first, last, scratch, is_pending, log_joint):  # OUT scratch: four (n_block,) int64
    """Add the terms of a hash table to a block of rows: first all keys, then all rows of `vectors`, so that memory
    accesses overlap.
    """
    cells, rows, _, _ = scratch
    n_values = tables.n_values[a]
    values = x[tables.attribute[a], first:last]
    for row in range(values.size):
        cells[row] = np.int64(values[row]) if values[row] < n_values else ABSENT
    for d in range(tables.parent_starts[a], tables.parent_starts[a + 1]):
        parent, size = x[tables.parents[d], first:last], tables.parent_sizes[d]
        stride = tables.strides[d] * (n_values + 1)
        for row in range(values.size):
            is_seen = cells[row] >= 0 and parent[row] < size
            cells[row] = cells[row] + np.int64(parent[row]) * stride if is_seen else ABSENT
    _find_all(tables, a, cells[: values.size])
    n_classes, n_backed_off = tables.log_prior.size, 0
    n_fours = n_classes - n_classes % 4
    vectors, sums = tables.vectors.reshape(-1), log_joint.reshape(-1)
    for row in range(values.size):
        prefetch(vectors, (FOUND - cells[min(row + AHEAD, values.size - 1)]) * n_classes, n_classes)
        if cells[row] <= FOUND:
            entry, place = (FOUND - cells[row]) * n_classes, (first + row) * n_classes
            for k in range(0, n_fours, 4):
                add_four(sums, place + k, vectors, entry + k)
            for k in range(n_fours, n_classes):
                sums[np.uint64(place + k)] += vectors[np.uint64(entry + k)]
        elif values[row] < n_values:
            rows[n_backed_off] = row
            n_backed_off += 1
    if n_backed_off:
        _add_backed_off(tables, a, x, first, n_backed_off, scratch, is_pending, log_joint)


@borrowing_kernel
def normalize_log_joint_row(logs, log_prior):  # logs (C,) float64, in place; log_prior (C,) float64
    """Normalize unnormalized log probabilities in place to probabilities, and return the log of their sum
    (log-sum-exp).

    A row that no class can produce gets the prior: -inf minus -inf would be NaN.
    """
    largest = -np.inf
    for k in range(logs.size):
        largest = max(largest, logs[k])
    total = 0.0
    for k in range(logs.size):
        logs[k] = np.exp(logs[k] - largest if largest > -np.inf else log_prior[k])
        total += logs[k]
    for k in range(logs.size):
        logs[k] /= total
    return largest + np.log(total)


@kernel
def normalize_log_joint_rows(
    logs, log_prior, log_totals
):  # logs (n, C) float64, in place; log_prior (C,); OUT (n,) float64
    """Apply `normalize_log_joint_row` to each row; the total of a row that no class can produce is -inf."""
    for row in range(logs.shape[0]):
        log_totals[row] = normalize_log_joint_row(logs[row], log_prior)


@kernel
def look_up_class_probabilities(tables, x, first, last, is_normalized, out):
    """Compute log P(class, attributes) of rows, or P(class | attributes) if normalized; one kernel for both, to save
    compile time.

    x (n_attributes, n) codes; OUT (n, C) float64, rows first..last-1. An attribute with an unseen value is
    ignored.
    """
    n_classes, n_block = tables.log_prior.size, BLOCK_ROWS
    if tables.dense.size + tables.vectors.size > CACHED_CELLS:
        n_block = max(BLOCK_ROWS, BLOCK_SUMS // n_classes)
    n_block = max(1, min(n_block, last - first))
    cells, is_pending = np.empty(n_block, np.int64), np.empty((n_block, n_classes), np.uint8)
    scratch = (cells, np.empty(n_block, np.int64), np.empty(n_block, np.int64), np.empty(n_block, np.int64))
    if last - first <= FEW_ROWS and tables.vectors.size > CACHED_CELLS:
        # Where their entries are is read first, and for all families together: no read then waits for the memory of another.
        vectors, is_last = tables.vectors.reshape(-1), np.uint64(tables.key_low.size - 1)
        for row in range(first, last):
            for a in range(tables.attribute.size):
                key = np.int64(x[tables.attribute[a], row])
                is_seen = tables.dense_starts[a] < 0 and key < tables.n_values[a]
                for d in range(tables.parent_starts[a], tables.parent_starts[a + 1]):
                    code = np.int64(x[tables.parents[d], row])
                    is_seen = is_seen and code < tables.parent_sizes[d]
                    key += code * tables.strides[d] * (tables.n_values[a] + 1)
                if is_seen:
                    slot = (np.uint64(key) * MULTIPLIER) >> np.uint64(tables.hash_shifts[a])
                    place = np.uint64(tables.hash_starts[a]) + (slot >> np.uint64(6))
                    before = tables.hash_words[place] & ((np.uint64(1) << (slot & np.uint64(63))) - np.uint64(1))
                    entry = min(np.uint64(tables.hash_ranks[place]) + popcount(before), is_last)
                    prefetch(vectors, np.int64(entry) * n_classes, n_classes)
    for block in range(first, last, n_block):
        end = min(block + n_block, last)
        for row in range(block, end):
            for k in range(tables.log_prior.size):
                out[row, k] = tables.log_prior[k]
        for a in range(tables.attribute.size):
            if tables.dense_starts[a] < 0:
                _add_sparse_block(tables, a, x, block, end, scratch, is_pending, out)
            else:
                _add_dense_block(tables, a, x, block, end, cells, out)
        if is_normalized:
            for row in range(block, end):
                normalize_log_joint_row(out[row], tables.log_prior)


@kernel
def list_sums(tables, x, sizes, counts, n_families, families, n_missing, missing, codes, frozen, out):
    """Compute log P(class, known attributes) of rows, in which each sum over missing attributes lists all their combinations.

    x (m, n) codes, rows with the same sums side by side: counts (n_kinds, 2) int64 has their number and that of their sums; n_families
    and n_missing (n_sums,) int64 how many entries of families and of missing each sum has. A family is looked up once for each
    combination of its own missing attributes. codes (m, n_most) scratch, and the same memory as `frozen`, which is read-only as x, so
    that all is compiled once. OUT (n, C) float64.
    """
    n_classes, n_most = tables.log_prior.size, codes.shape[1]
    sums, logs = np.empty((n_most, n_classes)), np.empty((n_most, n_classes))
    is_pending, places = np.empty((n_most, n_classes), np.uint8), np.empty(n_most, np.int64)
    cells, strides = np.empty(n_most, np.int64), np.empty(x.shape[0], np.int64)
    scratch = (cells, np.empty(n_most, np.int64), np.empty(n_most, np.int64), np.empty(n_most, np.int64))
    largest, totals = np.empty(n_classes), np.empty(n_classes)
    first_sum, first_family, first_missing, row = 0, 0, 0, 0
    for kind in range(counts.shape[0]):
        family, place = first_family, first_missing
        for _ in range(counts[kind, 0]):
            family, place = first_family, first_missing
            for k in range(n_classes):
                out[row, k] = tables.log_prior[k]
            for own in range(first_sum, first_sum + counts[kind, 1]):
                n_lacking, n = n_missing[own], 1
                for i in range(n_lacking):
                    n *= sizes[missing[place + i]]
                sums[:n] = 0.0
                for i in range(n_families[own]):
                    a = families[family + i]
                    begin, end = tables.parent_starts[a], tables.parent_starts[a + 1]
                    n_own = np.int64(1)  # combinations of what this family lacks
                    for d in range(begin - 1, end):
                        member = tables.attribute[a] if d < begin else tables.parents[d]
                        strides[member] = 0
                    for j in range(n_lacking):
                        attribute = missing[place + j]
                        is_own = tables.attribute[a] == attribute
                        for d in range(begin, end):
                            is_own = is_own or tables.parents[d] == attribute
                        strides[attribute] = n_own if is_own else 0
                        n_own *= sizes[attribute] if is_own else 1
                    for d in range(begin - 1, end):
                        member = tables.attribute[a] if d < begin else tables.parents[d]
                        stride, size = strides[member], sizes[member]
                        if stride == 0:
                            codes[member, :n_own] = x[member, row]
                            continue
                        for c in range(0, n_own, stride * size):
                            for code in range(size):
                                codes[member, c + code * stride : c + (code + 1) * stride] = code
                    terms = sums if n_own == n else logs
                    if n_own < n:
                        logs[:n_own] = 0.0
                    if tables.dense_starts[a] < 0:
                        _add_sparse_block(tables, a, frozen, 0, n_own, scratch, is_pending, terms)
                    else:
                        _add_dense_block(tables, a, frozen, 0, n_own, cells, terms)
                    if n_own == n:
                        continue
                    places[:n] = 0  # of the combinations of the sum among the family's own
                    n_each = np.int64(1)
                    for j in range(n_lacking):
                        attribute = missing[place + j]
                        stride, size = strides[attribute], sizes[attribute]
                        for c in range(0, n if stride > 0 else 0, n_each * size):
                            for code in range(1, size):
                                for one in range(c + code * n_each, c + (code + 1) * n_each):
                                    places[one] += code * stride
                        n_each *= size
                    for c in range(n):
                        for k in range(n_classes):
                            sums[c, k] += logs[places[c], k]
                family, place = family + n_families[own], place + n_lacking
                if n == 1:
                    for k in range(n_classes):
                        out[row, k] += sums[0, k]
                    continue
                largest[:], totals[:] = -np.inf, 0.0
                for c in range(n):
                    for k in range(n_classes):
                        largest[k] = max(largest[k], sums[c, k])
                for c in range(n):
                    for k in range(n_classes):
                        if sums[c, k] > largest[k] + NEGLIGIBLE:
                            totals[k] += np.exp(sums[c, k] - largest[k])
                for k in range(n_classes):  # no class that none of the combinations can have
                    out[row, k] += largest[k] + np.log(totals[k]) if totals[k] > 0.0 else -np.inf
            row += 1
        first_sum, first_family, first_missing = first_sum + counts[kind, 1], family, place


class ManyClassTables(NamedTuple):
    """Estimates of m attributes with C classes, few of which occur in each context; all arrays read-only.

    A context is a path of parent values, for all classes together. Contexts of an attribute are numbered level by
    level, siblings in the order of their values; the first has no parents. A context lists the classes observed
    there with the value of their rest, and for each observed value its classes.
    """

    attribute: Integers  # (m,) int64
    n_values: Integers  # (m,) int64
    parent_starts: Integers  # (m + 1,) int64
    parents: Integers  # (sum of k,) int64
    parent_sizes: Integers  # (sum of k,) int64
    # (m,) int64: where the logarithms of the root's probabilities of an attribute begin in `root_log`.
    value_starts: Integers
    root_log: Float32s  # (sum of v,) float32
    roots: Integers  # (m,) int64: the first context of each attribute
    # child_starts, child_ends (n,) int64: contexts with one parent more.
    child_starts: Integers
    child_ends: Integers
    branch: Int32s  # (n,) int32: value of the last parent; -1 at roots
    rest_starts: Integers  # (n + 1,) int64: ranges of `rest_class` and `rest_log`
    rest_class: Codes  # (r,) uint16
    # (r,) float32: if hierarchical, the logarithm of what the level above is multiplied by for a value that the class
    # has not had here; else of the probability itself.
    rest_log: Float32s
    pair_starts: Integers  # (n + 1,) int64: ranges of values seen
    pair_value: Int32s  # (p,) int32, ascending within a context
    cell_starts: Integers  # (p + 1,) int64: ranges of `cell_class` and `cell_log`
    cell_class: Codes  # (q,) uint16
    cell_log: Float32s  # (q,) float32
    log_prior: Floats  # (C,) float64
    is_hierarchical: Uint8s  # (1,) uint8


@kernel
def look_up_many_class_probabilities(tables, x, first, last, is_normalized, out):
    """Compute the result of `look_up_class_probabilities`: from the root down, each context sets the terms of its
    classes.

    This is a single function because passing all arrays of the tables to a call per attribute would take longer
    than the lookup.
    """
    own = np.empty(tables.log_prior.size, np.float64)
    is_hierarchical = tables.is_hierarchical[0] == 1
    pair_starts, pair_value = tables.pair_starts, tables.pair_value
    cell_starts, cell_class, cell_log = tables.cell_starts, tables.cell_class, tables.cell_log
    for row in range(first, last):
        out[row] = tables.log_prior
        for a in range(tables.attribute.size):
            value = np.int64(x[tables.attribute[a], row])
            if value >= tables.n_values[a]:
                continue
            own[:] = tables.root_log[tables.value_starts[a] + value]
            context = tables.roots[a]
            parent, end = tables.parent_starts[a], tables.parent_starts[a + 1]
            while context >= 0:
                for entry in range(tables.rest_starts[context], tables.rest_starts[context + 1]):
                    k = tables.rest_class[entry]
                    own[k] = own[k] + tables.rest_log[entry] if is_hierarchical else np.float64(tables.rest_log[entry])
                pair = binary_search_index(pair_value, pair_starts[context], pair_starts[context + 1], value)
                if pair >= 0:
                    for entry in range(cell_starts[pair], cell_starts[pair + 1]):
                        own[cell_class[entry]] = cell_log[entry]
                if parent == end:
                    break
                code = np.int64(x[tables.parents[parent], row])
                context = binary_search_index(
                    tables.branch, tables.child_starts[context], tables.child_ends[context], code
                )
                parent += 1
            for k in range(own.size):
                out[row, k] += own[k]
        if is_normalized:
            normalize_log_joint_row(out[row], tables.log_prior)


@kernel
def mark_unknown_and_null_rows(x, limits, nullable, marks):  # (m, n) codes, (m,) uint16, (m,) bool; OUT (n,) uint8
    """Set bit 0 of rows with a code that is not below the limit of its attribute, bit 1 of rows with a null as a value."""
    for i in range(x.shape[0]):
        codes, limit = x[i], limits[i]
        if limit < 65535:
            for row in range(codes.size):
                marks[row] |= np.uint8(codes[row] >= limit)
        if nullable[i]:
            for row in range(codes.size):
                marks[row] |= np.uint8(2) * np.uint8(codes[row] == 0)


@kernel
def hide_nulls(x, sizes, used, nullable, log_factorial, hidden, log_hidden):
    """Turn the nulls of rows into missing values, and compute the probability of hiding exactly these.

    x (m, n) codes; sizes (m,) int64; used, nullable (m,) bool; log_factorial (m + 2,) float64; OUT hidden as x, or (m, 2 n) with
    the rows of x before those of hidden nulls, log_hidden (n,) float64. Hiding exactly s given ones of n known values has
    probability s! (n - s)! / (n + 1)!, under a uniform prior on the share of hidden values.
    """
    n_rows = x.shape[1]
    first = hidden.shape[1] - n_rows
    n_known, n_nulls = np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)
    for i in range(x.shape[0]):
        size, is_used, is_nullable = sizes[i], used[i], nullable[i]
        if first:
            hidden[i, :first] = x[i]
        for row in range(n_rows):
            code = np.int64(x[i, row])
            is_null = is_nullable and code == 0
            hidden[i, first + row] = size if is_null else code
            n_known[row] += is_used and code < size
            n_nulls[row] += is_null
    for row in range(n_rows):
        n, s = n_known[row], n_nulls[row]
        log_hidden[row] = log_factorial[s] + log_factorial[n - s] - log_factorial[n + 1]


@kernel
def mix_answers(of_value, of_hidden, log_hidden, sure, likely, hidden, p, weights):
    """Average the answers of rows with their nulls as values and as hidden where the weight of the first is at least `likely` and below `sure`.

    of_value, of_hidden (n,) float64: log probabilities of the row in both readings; log_hidden (n,) float64: that of hiding exactly
    its nulls; hidden (n, C) float64: the second answers, empty to average none. p (n, C) float64: the first answers, in place; OUT
    weights (n,) float64, 0 of rows that no class can produce with their nulls as values. Returns the number of weights below `sure`
    of rows that are not averaged.
    """
    n_left = 0
    for row in range(weights.size):
        weight = 0.0
        if of_value[row] > -np.inf:
            log_odds = of_value[row] - of_hidden[row] - log_hidden[row]
            weight = 1.0 / (1.0 + np.exp(-min(max(log_odds, -700.0), 700.0)))
        weights[row] = weight
        if weight >= sure:
            continue
        if weight < likely or not hidden.size:
            n_left += 1
            continue
        for k in range(p.shape[1]):
            p[row, k] = weight * p[row, k] + (1.0 - weight) * hidden[row, k]
    return n_left
