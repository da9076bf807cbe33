"""Encode all columns of an Arrow batch in one call, reading memory through Arrow's C data interface.

Addresses of fields are those of `struct ArrowArray`. Buffers were checked to be as long as their columns
require (`RecordBatch.validate()`); their content is checked here before it is used as an index.

References
----------
The Arrow C data interface, https://arrow.apache.org/docs/format/CDataInterface.html
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Integers
from learners.kernels.intrinsics import bytes_at_address, load_number, popcount
from learners.kernels.jit import inner_kernel, kernel
from learners.schema.discretise_kernels import (
    BLOCK_ROWS,
    MOST_COMPARED,
    block_interval_codes,
    cut_counts_below_steps,
    lookup_interval_codes,
)
from learners.schema.hash_kernels import SLOT_BYTES, is_ascii_text, lookup_text_code

# Fields of struct ArrowArray.
NULL_COUNT, OFFSET, BUFFERS, CHILDREN, DICTIONARY = (np.uint64(place) for place in (8, 16, 40, 48, 56))
POINTER = np.uint64(8)
SECOND, THIRD = np.uint64(8), np.uint64(16)

INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT32, FLOAT64, DAYS, MICROSECONDS = range(12)
DAY = 86_400.0  # seconds
TEXT32, TEXT64, BYTES, BITS, NOTHING = range(12, 17)

WORD = 64  # rows

FINE, FOREIGN, STRANGE = range(3)  # FOREIGN: unseen text that is not ASCII, and perhaps not UTF-8 at all


class Plan(NamedTuple):
    """Position and treatment of each of m columns, all (m,) int64."""

    # `children`, `rows`: its place in the batch, and in the codes.
    children: Integers
    rows: Integers
    kinds: Integers  # of its values: one of the kinds above
    indices: Integers  # of a dictionary: the kind of the indices into it; else NOTHING
    # `missing`, `unseen`, `first`: codes: of null, of a text outside the domain, and of the first interval.
    missing: Integers
    unseen: Integers
    first: Integers
    # `starts`, `sizes`: text: the first slot and the mask of its table; bytes: the number of its table; numbers: its
    # cut points.
    starts: Integers
    sizes: Integers


@inner_kernel
def is_null_in_bitmap(validity, row):
    """Return whether a row's bit is 0; without a bitmap no row is null."""
    return (
        validity != 0
        and (load_number(validity + np.uint64(row >> 3), np.uint8) >> np.uint8(row & 7)) & np.uint8(1) == 0
    )


@inner_kernel
def is_null_count_consistent(array, n_nulls):
    """Return whether a column has as many nulls as it declares, if it does."""
    told = load_number(array + NULL_COUNT, np.int64)
    return told < 0 or told == n_nulls


@inner_kernel
def load_arrow_integer(values, row, kind):
    """Return an integer of a buffer as int64."""
    if kind == INT8:
        return np.int64(load_number(values + np.uint64(row), np.int8))
    if kind == UINT8:
        return np.int64(load_number(values + np.uint64(row), np.uint8))
    if kind == INT16:
        return np.int64(load_number(values + np.uint64(2 * row), np.int16))
    if kind == UINT16:
        return np.int64(load_number(values + np.uint64(2 * row), np.uint16))
    if kind == INT32:
        return np.int64(load_number(values + np.uint64(4 * row), np.int32))
    if kind == UINT32:
        return np.int64(load_number(values + np.uint64(4 * row), np.uint32))
    return load_number(values + np.uint64(8 * row), np.int64)


@inner_kernel
def load_arrow_text_offset(ends, row, is_large):
    """Return the offset at which a row's text begins."""
    return (
        load_number(ends + np.uint64(8 * row), np.int64)
        if is_large
        else np.int64(load_number(ends + np.uint64(4 * row), np.int32))
    )


@inner_kernel
def text_column_codes(
    array, kind, missing, unseen, table, mask, more, codes
):  # OUT codes of as many rows as the array has
    """Encode a text column; returns its status."""
    n, offset = load_number(array, np.int64), load_number(array + OFFSET, np.int64)
    if n == 0:
        return FINE
    buffers = load_number(array + BUFFERS, np.uint64)
    validity, ends, text = (
        load_number(buffers, np.uint64),
        load_number(buffers + SECOND, np.uint64),
        load_number(buffers + THIRD, np.uint64),
    )
    is_large = kind == TEXT64
    begin, last = load_arrow_text_offset(ends, offset, is_large), load_arrow_text_offset(ends, offset + n, is_large)
    if begin < 0 or last < begin:
        return STRANGE
    found, n_nulls, stop = FINE, 0, text + np.uint64(last)
    for row in range(n):
        end = load_arrow_text_offset(ends, offset + row + 1, is_large)
        if end < begin or end > last:
            return STRANGE
        if is_null_in_bitmap(validity, offset + row):
            codes[row] = missing
            n_nulls += 1
        else:
            code = lookup_text_code(text + np.uint64(begin), end - begin, stop, table, mask, more)
            if code < 0:
                code = unseen
                if found == FINE and not is_ascii_text(text + np.uint64(begin), end - begin, stop):
                    found = FOREIGN
            codes[row] = code
        begin = end
    return found if is_null_count_consistent(array, n_nulls) else STRANGE


@inner_kernel
def dictionary_column_codes(array, indices, lut, missing, codes):  # (n_values,) codes of the values; OUT (n,) codes
    """Encode a column of dictionary indices; returns whether all are within the dictionary."""
    offset, buffers = load_number(array + OFFSET, np.int64), load_number(array + BUFFERS, np.uint64)
    validity, values, n_nulls = load_number(buffers, np.uint64), load_number(buffers + SECOND, np.uint64), 0
    if validity == 0 and indices == INT32:  # as Parquet's text is read: loops without branches
        for first in range(0, codes.size, BLOCK_ROWS):
            block = codes[first : first + BLOCK_ROWS]
            begin, most = values + np.uint64(4 * (offset + first)), np.uint32(0)  # a negative index is large, too
            for row in range(block.size):
                most = max(most, np.uint32(load_number(begin + np.uint64(4) * np.uint64(row), np.int32)))
            if most >= lut.size:
                return STRANGE
            for row in range(block.size):
                block[row] = lut[np.uint32(load_number(begin + np.uint64(4) * np.uint64(row), np.int32))]
        return FINE if is_null_count_consistent(array, n_nulls) else STRANGE
    for row in range(codes.size):
        if is_null_in_bitmap(validity, offset + row):
            codes[row] = missing
            n_nulls += 1
        else:
            index = load_arrow_integer(values, offset + row, indices)
            if index < 0 or index >= lut.size:
                return STRANGE
            codes[row] = lut[index]
    return FINE if is_null_count_consistent(array, n_nulls) else STRANGE


@kernel
def first_invalid_dictionary_column(batch, columns, kinds):
    """Return the first of some dictionary columns, (m,) int64, with an index out of range; else -1.

    batch: address of a struct ArrowArray; kinds: of the indices, (m,) int64. Arrow itself does not check the
    indices of damaged pages.
    """
    children = load_number(batch + CHILDREN, np.uint64)
    for j in range(columns.size):
        array = load_number(children + POINTER * np.uint64(columns[j]), np.uint64)
        n, offset = load_number(array, np.int64), load_number(array + OFFSET, np.int64)
        buffers = load_number(array + BUFFERS, np.uint64)
        validity, indices = load_number(buffers, np.uint64), load_number(buffers + SECOND, np.uint64)
        n_values = load_number(load_number(array + DICTIONARY, np.uint64), np.int64)
        is_suspect = n > 0
        if kinds[j] == INT32:  # as Parquet's text is read: a loop without branches
            begin, most = indices + np.uint64(4 * offset), np.uint32(0)  # a negative index is large, too
            for row in range(n):
                most = max(most, np.uint32(load_number(begin + np.uint64(4) * np.uint64(row), np.int32)))
            is_suspect = is_suspect and most >= n_values
        if is_suspect:
            for row in range(offset, offset + n):  # what stands where a value is null means nothing
                index = load_arrow_integer(indices, row, kinds[j])
                if (index < 0 or index >= n_values) and not is_null_in_bitmap(validity, row):
                    return columns[j]
    return -1


@inner_kernel
def load_arrow_number_block(validity, values, start, kind, numbers):  # OUT (b,) float64
    """Read a block of numbers from a buffer, with nulls as NaN and times in seconds; returns the number of nulls."""
    rows = np.uint64(start)
    if kind == FLOAT64:  # a loop for each of the usual kinds, which then takes many numbers at a time
        for row in range(numbers.size):
            numbers[row] = load_number(values + np.uint64(8) * (rows + np.uint64(row)), np.float64)
    elif kind == FLOAT32:
        for row in range(numbers.size):
            numbers[row] = load_number(values + np.uint64(4) * (rows + np.uint64(row)), np.float32)
    elif kind == INT64:
        for row in range(numbers.size):
            numbers[row] = load_number(values + np.uint64(8) * (rows + np.uint64(row)), np.int64)
    elif kind == INT32:
        for row in range(numbers.size):
            numbers[row] = load_number(values + np.uint64(4) * (rows + np.uint64(row)), np.int32)
    elif kind == INT16:
        for row in range(numbers.size):
            numbers[row] = load_number(values + np.uint64(2) * (rows + np.uint64(row)), np.int16)
    else:
        for row in range(numbers.size):
            if kind == UINT64:
                numbers[row] = np.float64(load_number(values + np.uint64(8 * (start + row)), np.uint64))
            elif kind == DAYS:
                numbers[row] = DAY * load_number(values + np.uint64(4 * (start + row)), np.int32)
            elif kind == MICROSECONDS:
                numbers[row] = load_number(values + np.uint64(8 * (start + row)), np.int64) / 1e6
            else:
                numbers[row] = np.float64(load_arrow_integer(values, start + row, kind))
    if validity == 0:
        return 0
    n_valid, whole = np.uint64(0), numbers.size - numbers.size % WORD
    for first in range(0, whole, WORD):
        place, shift = validity + np.uint64((start + first) >> 3), np.uint64((start + first) & 7)
        bits = load_number(place, np.uint64)
        if shift != 0:  # the bitmap has a ninth byte of these rows
            bits = bits >> shift | np.uint64(load_number(place + np.uint64(8), np.uint8)) << (np.uint64(WORD) - shift)
        n_valid += popcount(bits)
        for row in range(WORD):
            if (bits >> np.uint64(row)) & np.uint64(1) == 0:
                numbers[first + row] = np.nan
    for row in range(whole, numbers.size):
        if is_null_in_bitmap(validity, start + row):
            numbers[row] = np.nan
        else:
            n_valid += np.uint64(1)
    return numbers.size - np.int64(n_valid)


@inner_kernel
def numeric_column_codes(array, kind, cuts, first, missing, codes):  # (c,) float64; OUT (n,) codes
    """Encode a numeric column by intervals; NaN and null are missing."""
    offset, buffers = load_number(array + OFFSET, np.int64), load_number(array + BUFFERS, np.uint64)
    validity, values, n_nulls = load_number(buffers, np.uint64), load_number(buffers + SECOND, np.uint64), 0
    numbers = np.empty(min(codes.size, BLOCK_ROWS))
    below = np.empty(numbers.size, np.int64)
    step = DAY if kind == DAYS else 1.0
    is_whole = kind < FLOAT32 or kind == DAYS
    table = cut_counts_below_steps(
        cuts, step, codes.size // BLOCK_ROWS * 64 if is_whole and cuts.size > MOST_COMPARED else 0
    )
    for start in range(0, codes.size, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, codes.size)
        block = numbers[: stop - start]
        n_nulls += load_arrow_number_block(validity, values, offset + start, kind, block)
        if table.size:
            lookup_interval_codes(block, cuts, step, table, first, missing, codes[start:stop])
        else:
            block_interval_codes(block, cuts, first, missing, below, codes[start:stop])
    return FINE if is_null_count_consistent(array, n_nulls) else STRANGE


@kernel
def numeric_tail_counts(batch, plan, edges, found):  # (n_attributes, 4) float64; OUT (n_attributes, 4) int64
    """Count for each numeric column the values below the first edge, above the last, up to the second, and above the
    third.
    """
    children = load_number(batch + CHILDREN, np.uint64)
    numbers = np.empty(BLOCK_ROWS)
    for j in range(plan.children.size):
        kind, i = plan.kinds[j], plan.rows[j]
        if kind >= TEXT32:
            continue
        array = load_number(children + POINTER * np.uint64(plan.children[j]), np.uint64)
        n, offset = load_number(array, np.int64), load_number(array + OFFSET, np.int64)
        buffers = load_number(array + BUFFERS, np.uint64)
        validity, values = load_number(buffers, np.uint64), load_number(buffers + SECOND, np.uint64)
        least, low, high, greatest = edges[i, 0], edges[i, 1], edges[i, 2], edges[i, 3]
        for start in range(0, n, BLOCK_ROWS):
            block = numbers[: min(BLOCK_ROWS, n - start)]
            load_arrow_number_block(validity, values, offset + start, kind, block)
            n_below, n_above, n_low, n_high = 0, 0, 0, 0
            for row in range(block.size):
                n_below += np.int64(block[row] < least)
                n_above += np.int64(block[row] > greatest)
                n_low += np.int64(block[row] <= low)
                n_high += np.int64(block[row] > high)
            found[i, 0] += n_below
            found[i, 1] += n_above
            found[i, 2] += n_low
            found[i, 3] += n_high


@inner_kernel
def byte_column_codes(array, lut, largest, missing, codes):  # (256,) codes; OUT (n,) codes
    """Encode a column of bytes; if `largest` is not negative, lut is min(byte, largest) and is not read."""
    if codes.size == 0:
        return FINE
    offset, buffers = load_number(array + OFFSET, np.int64), load_number(array + BUFFERS, np.uint64)
    validity, n_nulls = load_number(buffers, np.uint64), 0
    raw = bytes_at_address(load_number(buffers + SECOND, np.uint64) + np.uint64(offset), codes.size)
    if largest >= 0:
        limit = np.uint8(largest)
        for row in range(codes.size):
            codes[row] = min(raw[row], limit)
    else:
        for row in range(codes.size):
            codes[row] = lut[raw[row]]
    if validity != 0:
        for row in range(codes.size):
            if is_null_in_bitmap(validity, offset + row):
                codes[row] = missing
                n_nulls += 1
    return FINE if is_null_count_consistent(array, n_nulls) else STRANGE


@inner_kernel
def boolean_column_codes(array, lut, missing, codes):  # codes of False and True first; OUT (n,) codes
    """Encode a boolean column."""
    offset, buffers = load_number(array + OFFSET, np.int64), load_number(array + BUFFERS, np.uint64)
    validity, values, n_nulls = load_number(buffers, np.uint64), load_number(buffers + SECOND, np.uint64), 0
    for row in range(codes.size):
        if is_null_in_bitmap(validity, offset + row):
            codes[row] = missing
            n_nulls += 1
        else:
            place = offset + row
            codes[row] = lut[
                (load_number(values + np.uint64(place >> 3), np.uint8) >> np.uint8(place & 7)) & np.uint8(1)
            ]
    return FINE if is_null_count_consistent(array, n_nulls) else STRANGE


@kernel
def batch_codes(batch, plan, words, of_bytes, cuts, x, found, most):  # OUT x, (m,) uint8 found, (m,) int64 most
    """Encode the columns of a plan; writes each column's status and largest code. STRANGE columns get no codes.

    batch: address of a struct ArrowArray; of_bytes: tables (., 256) codes and the largest code of each; cuts: of all
    columns; OUT x (n_attributes, n) codes.
    """
    byte_tables, largest = of_bytes
    children = load_number(batch + CHILDREN, np.uint64)
    slots, more = np.uint64(words.slots.ctypes.data), np.uint64(words.more.ctypes.data)
    for j in range(plan.children.size):
        array = load_number(children + POINTER * np.uint64(plan.children[j]), np.uint64)
        codes, kind, start, size, missing = (
            x[plan.rows[j]],
            plan.kinds[j],
            plan.starts[j],
            plan.sizes[j],
            plan.missing[j],
        )
        if kind == BYTES:
            found[j] = byte_column_codes(array, byte_tables[start], largest[start], missing, codes)
        elif kind == BITS:
            found[j] = boolean_column_codes(array, byte_tables[start], missing, codes)
        elif kind < TEXT32:
            found[j] = numeric_column_codes(array, kind, cuts[start : start + size], plan.first[j], missing, codes)
        elif plan.indices[j] == NOTHING:
            table = slots + np.uint64(SLOT_BYTES * start)
            found[j] = text_column_codes(array, kind, missing, plan.unseen[j], table, size, more, codes)
        else:
            values = load_number(array + DICTIONARY, np.uint64)
            lut = np.empty(load_number(values, np.int64), codes.dtype)
            table = slots + np.uint64(SLOT_BYTES * start)
            found[j] = text_column_codes(values, kind, missing, plan.unseen[j], table, size, more, lut)
            if found[j] != STRANGE:
                found[j] = max(found[j], dictionary_column_codes(array, plan.indices[j], lut, missing, codes))
        largest_code = codes.dtype.type(0)
        for row in range(codes.size):
            largest_code = max(largest_code, codes[row])
        most[j] = largest_code
