"""Codes of the columns that stand as JSON arrays in a request, without a Python object for each value.

What is not plain (escapes, text that may not be UTF-8, a number too near a cut point to tell without rounding it exactly,
anything of another type) makes its column STRANGE: then msgspec reads it, and says what is wrong with it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Integers
from learners.kernels.jit import inner_kernel, kernel, load, popcount
from learners.schema.encoding.string_kernels import SLOT_BYTES, code_of_word, is_ascii
from learners.schema.kernels import n_below

TEXT, WHOLE, NUMBER = range(3)
FINE, STRANGE = range(2)

ONE = np.uint64(1)
ONES, HIGH_BITS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
QUOTES, BACKSLASHES = np.uint64(0x2222222222222222), np.uint64(0x5C5C5C5C5C5C5C5C)
QUOTE, BACKSLASH, COMMA, MINUS, PLUS, POINT, ZERO, NINE, OPENING, CLOSING, SMALL_N = (
    np.uint8(ord(sign)) for sign in '"\\,-+.09[]n'
)
MAX_DIGITS = 18  # of a whole number that an int64 holds
EXACT_DIGITS, EXACT_POWER = 15, 22  # where a quotient or product of two exact numbers is rounded once
DOUBT = 1e-15  # above the relative error of the others: four roundings
POWERS = 10.0 ** np.arange(EXACT_POWER + 1)


class Columns(NamedTuple):
    """Where each of m columns is and what becomes of it, all (m,) int64.

    Attributes
    ----------
    begins
        Its first byte, from the address on.
    rows
        Its place in the codes.
    kinds
        TEXT, WHOLE or NUMBER: what its values should be.
    missing, unseen, first
        Codes: of null, of a value outside the domain, and of the first interval.
    starts, sizes
        TEXT, WHOLE: the first slot and the mask of its table; NUMBER: its cut points.
    """

    begins: Integers
    rows: Integers
    kinds: Integers
    missing: Integers
    unseen: Integers
    first: Integers
    starts: Integers
    sizes: Integers


@inner_kernel
def byte_at(text, i):
    """A byte of the text at an address."""
    return load(text + np.uint64(i), np.uint8)


@inner_kernel
def after_space(text, i):
    """The first place from i on without white space."""
    while byte_at(text, i) <= 32:
        i += 1
    return i


@inner_kernel
def end_of_string(text, i):
    """The next quotation mark or backslash from i on, eight bytes at a time; at least seven bytes follow the text."""
    while True:
        word = load(text + np.uint64(i), np.uint64)
        quotes, backslashes = word ^ QUOTES, word ^ BACKSLASHES
        zeros = ((quotes - ONES) & ~quotes | (backslashes - ONES) & ~backslashes) & HIGH_BITS
        if zeros != 0:
            return i + np.int64(popcount((zeros & (~zeros + ONE)) - ONE) >> np.uint64(3))
        i += 8


@kernel
def n_values(text, i):
    """How many values the array of scalars at place i has; -1 if it is none."""
    if byte_at(text, i) != OPENING:
        return -1
    i = after_space(text, i + 1)
    if byte_at(text, i) == CLOSING:
        return 0
    found = 1
    while True:
        sign = byte_at(text, i)
        if sign == QUOTE:
            i = end_of_string(text, i + 1)
            while byte_at(text, i) == BACKSLASH:
                i = end_of_string(text, i + 2)
        elif sign == COMMA:
            found += 1
        elif sign == CLOSING:
            return found
        i += 1


@inner_kernel
def digits_from(text, i, mantissa, n_digits):
    """Read digits: the place behind them, the mantissa with them, and how many there were without leading zeros."""
    while ZERO <= byte_at(text, i) <= NINE:
        mantissa = mantissa * 10 + np.int64(byte_at(text, i) - ZERO)
        n_digits += 1 if mantissa != 0 else 0
        if n_digits > MAX_DIGITS:
            break
        i += 1
    return i, mantissa, n_digits


@inner_kernel
def number_from(text, i):
    """Read a number: the place behind it, its value, and a bound of its error relative to it (negative: not read)."""
    is_negative = byte_at(text, i) == MINUS
    i, mantissa, n_digits = digits_from(text, i + 1 if is_negative else i, np.int64(0), 0)
    power = 0
    if byte_at(text, i) == POINT:
        point = i + 1
        i, mantissa, n_digits = digits_from(text, point, mantissa, n_digits)
        power = point - i
    if byte_at(text, i) | np.uint8(32) == np.uint8(101):  # e or E
        sign = byte_at(text, i + 1)
        begin = i + 2 if sign == MINUS or sign == PLUS else i + 1
        i, exponent, _ = digits_from(text, begin, np.int64(0), 0)
        power += -exponent if sign == MINUS else exponent
    value = np.float64(mantissa)
    if n_digits > MAX_DIGITS or abs(power) > EXACT_POWER:
        return i, value, -1.0
    value = value / POWERS[-power] if power < 0 else value * POWERS[power]
    return i, -value if is_negative else value, 0.0 if n_digits <= EXACT_DIGITS else DOUBT


@inner_kernel
def interval_of(value, doubt, cuts):
    """How many cut points are below a number; -1 if one is so near that the number's error may decide."""
    low = n_below(cuts, value)
    margin = doubt * abs(value)
    if margin > 0 and (
        (low > 0 and value - cuts[low - 1] <= margin) or (low < cuts.size and cuts[low] - value <= margin)
    ):
        return -1
    return low


@inner_kernel
def whole_from(text, i):
    """The place behind a whole number as Python writes it; i itself if there is none such."""
    begin = i + 1 if byte_at(text, i) == MINUS else i
    if byte_at(text, begin) == ZERO and begin > i:
        return i  # -0
    end = begin
    while ZERO <= byte_at(text, end) <= NINE:
        end += 1
    following = byte_at(text, end)
    is_plain = following == COMMA or following == CLOSING or following <= 32
    return end if is_plain and 0 < end - begin <= MAX_DIGITS else i


@inner_kernel
def word_code(text, i, end, table, mask, more, unseen):
    """Code of the word between two places; -1 if it is unseen and not ASCII, as it may not be UTF-8 then."""
    address, stop = text + np.uint64(i), text + np.uint64(end)
    code = code_of_word(address, end - i, stop, table, mask, more)
    if code >= 0:
        return code
    return unseen if is_ascii(address, end - i, stop) else -1


@inner_kernel
def column_codes(text, columns, j, slots, more, cuts, codes):  # OUT (n,) codes
    """Codes of one column, and whether all of it could be read here."""
    kind, unseen, size = columns.kinds[j], columns.unseen[j], columns.sizes[j]
    table = slots + np.uint64(SLOT_BYTES * columns.starts[j])
    if byte_at(text, columns.begins[j]) != OPENING:
        return STRANGE
    i = columns.begins[j] + 1
    for row in range(codes.size):
        i = after_space(text, i)
        sign = byte_at(text, i)
        if sign == SMALL_N:
            code, i = columns.missing[j], i + 4
        elif kind == TEXT:
            if sign != QUOTE:
                return STRANGE
            end = end_of_string(text, i + 1)
            if byte_at(text, end) == BACKSLASH:
                return STRANGE
            code, i = word_code(text, i + 1, end, table, size, more, unseen), end + 1
        elif kind == WHOLE:
            end = whole_from(text, i)
            if end == i:
                return STRANGE
            code, i = word_code(text, i, end, table, size, more, unseen), end
        else:
            if sign != MINUS and not ZERO <= sign <= NINE:
                return STRANGE
            i, value, doubt = number_from(text, i)
            if doubt < 0:
                return STRANGE
            code = interval_of(value, doubt, cuts[columns.starts[j] : columns.starts[j] + size])
            if code >= 0:
                code += columns.first[j]
        if code < 0:
            return STRANGE
        codes[row] = code
        i = after_space(text, i)
        if byte_at(text, i) != (CLOSING if row == codes.size - 1 else COMMA):
            return STRANGE
        i += 1
    return FINE


@kernel
def json_codes(text, columns, words, cuts, x, found):  # uint64; OUT (n_attributes, n_rows) x, (m,) uint8 found
    """Codes of the columns whose JSON arrays are in the text at an address; what is STRANGE has no codes."""
    slots, more = np.uint64(words.slots.ctypes.data), np.uint64(words.more.ctypes.data)
    for j in range(columns.begins.size):
        found[j] = column_codes(text, columns, j, slots, more, cuts, x[columns.rows[j]])
