"""Canonical form of nominal values: text, integer or boolean."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import SchemaError
from learners.kernels.arrays import Codes, Mask
from learners.schema.times_and_durations import (
    DAY,
    FIRST_SECOND,
    LAST_SECOND,
    TICKS,
    canonical_time_text,
    iso8601_duration,
    time_kind_and_ticks,
    time_ticks_since_1970,
)

Known = TypeVar("Known")
LEAST, MOST = -(2**63), 2**63 - 1


def canonical_nominal_values(values: Sequence[Known], arrow_type: str) -> tuple[Known | str, ...]:
    """Return the canonical values; times, which earlier releases stored in the column's unit, become canonical text."""
    if not values or time_kind_and_ticks(arrow_type) is None:
        return tuple(values)
    forms = tuple(canonical_time_text(value, arrow_type) or value for value in values)
    return forms if len(set(forms)) == len(values) else tuple(values)


def value_words(value: str | int | bool | None) -> tuple[str, ...]:
    """Return the words that name a nominal value in settings: of a boolean those of Python and of JSON."""
    return (str(value), json.dumps(value)) if isinstance(value, bool) else (str(value),)


def nominal_forms(column: pa.Array, name: str) -> tuple[pa.Array, Mask]:
    """Convert a column to strings, int64 or booleans, with NaN as null; also returns which values have no such form,
    (n,) bool.

    These are fractions, integers beyond signed 64 bits, and timestamps outside the years 1 to 9999. Each form
    stands for one value only: nothing is rounded.

    Raises SchemaError if the type has no such form.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind):
        return column, _none(column)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pc.cast(column, pa.string()), _none(column)
    if pa.types.is_integer(kind):
        if kind != pa.uint64():
            return pc.cast(column, pa.int64()), _none(column)
        return _whole(column, pc.less_equal(column, pa.scalar(MOST, kind)))
    if pa.types.is_floating(kind):
        values = pc.cast(column, pa.float64())
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, pa.float64()), values)
        is_within = pc.and_(pc.greater_equal(values, float(LEAST)), pc.less(values, float(MOST)))
        return _whole(values, pc.and_(is_within, pc.equal(pc.floor(values), values)))
    if pa.types.is_decimal(kind):
        values = widen_decimal_column(column)
        is_whole = pc.equal(pc.floor(values), values)
        if kind.precision - kind.scale >= len(str(MOST)):
            least, most = (pa.scalar(Decimal(end), values.type) for end in (LEAST, MOST))
            is_whole = pc.and_(is_whole, pc.and_(pc.greater_equal(values, least), pc.less_equal(values, most)))
        return _whole(values, is_whole)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _times(column)
    raise SchemaError(
        f"Column {name!r} holds {kind}, which cannot be read as nominal values. Convert it, or drop it (docs/limits.md#columns).",
        name,
    )


def plain_nominal_values(column: pa.Array, name: str) -> pa.Array:
    """Convert a nominal column to strings, int64 or booleans, with NaN as null.

    Raises SchemaError if the type, or a value, has no such form.
    """
    values, is_other = nominal_forms(column, name)
    if is_other.any():
        value = column[int(np.argmax(is_other))]
        raise SchemaError(f"Column {name!r} holds {column.type}, {_fault(value)}", name)
    return values


def distinct_values_with_inverse(column: pa.Array, name: str) -> tuple[pa.Array, Codes, Mask]:
    """Return the distinct values of a nominal column, the index of each row's value, and the null mask.

    Raises SchemaError as `plain_nominal_values` does.
    """
    column = dictionary_encoded_column(column, name)
    values = plain_nominal_values(column.dictionary, name)
    return values, *dictionary_row_indices(column, values)


def dictionary_encoded_column(column: pa.Array, name: str) -> pa.DictionaryArray:
    """Dictionary-encode a column. Raises SchemaError if the type has no nominal form."""
    if pa.types.is_dictionary(column.type):
        return column
    try:
        return (widen_decimal_column(column) if pa.types.is_decimal(column.type) else column).dictionary_encode()
    except pa.ArrowException:
        raise SchemaError(
            f"Column {name!r} holds {column.type}, which cannot be read as nominal values. Convert it, or drop it (docs/limits.md#columns).",
            name,
        ) from None


def dictionary_row_indices(column: pa.DictionaryArray, values: pa.Array) -> tuple[Codes, Mask]:
    """Return the index (n,) of each row's value, and the null mask; the dictionary itself may contain a null."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    index = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if values.null_count:
        is_null = is_null | values.is_null().to_numpy(zero_copy_only=False)[index]
    return index, is_null


def widen_decimal_column(column: pa.Array) -> pa.Array:
    """Cast 32- and 64-bit decimals to 128 bits, for which Arrow has more functions."""
    kind = column.type
    return column.cast(pa.decimal128(kind.precision, kind.scale)) if kind.bit_width < 128 else column


def scalar_message_text(value: pa.Scalar) -> str:
    """Format a value for a message; a time outside Python's range is shown as its type and number."""
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        return f"{value.type} {value.value}"


def _none(column: pa.Array) -> Mask:
    return np.zeros(len(column), bool)


def _whole(values: pa.Array, is_whole: pa.Array) -> tuple[pa.Array, Mask]:
    """Convert to int64, with 0 for values that are not integers, and return the mask of those."""
    is_other = ~is_whole.fill_null(True).to_numpy(zero_copy_only=False)
    if not is_other.any():
        return pc.cast(values, pa.int64()), is_other
    others = pa.array(is_other)
    whole = pc.cast(pc.if_else(others, pa.scalar(None, values.type), values), pa.int64())
    return pc.if_else(others, 0, whole), is_other


def _times(column: pa.Array) -> tuple[pa.Array, Mask]:
    """Convert times to `canonical_time_text`, with empty text for timestamps out of range, and return the mask of
    those.
    """
    kind = column.type
    if pa.types.is_duration(kind):
        scale = 10**9 // TICKS[kind.unit]
        counts = pc.cast(column, pa.int64()).to_pylist()
        return pa.array([n if n is None else iso8601_duration(n * scale) for n in counts], pa.string()), _none(column)
    if pa.types.is_time(kind):
        return _without_zeros(pc.cast(column, pa.string())), _none(column)
    counts, ticks = time_ticks_since_1970(column)
    seconds = counts // ticks if ticks else counts * DAY
    is_within = (seconds >= FIRST_SECOND) & (seconds <= LAST_SECOND)
    moments = column
    if not pa.types.is_date32(kind):  # of UTC, whatever the zone
        moments = pc.cast(column, pa.int64()).cast(pa.timestamp("ms" if pa.types.is_date64(kind) else kind.unit))
    if not is_within.all():
        moments = pc.if_else(pa.array(is_within), moments, pa.scalar(None, moments.type))
    text = _without_zeros(pc.cast(moments, pa.string()))
    for pattern, replacement in ((" 00:00:00$", ""), (" ", "T")):
        text = pc.replace_substring_regex(text, pattern, replacement)
    return text if is_within.all() else pc.if_else(pa.array(is_within), text, ""), ~is_within


def _without_zeros(text: pa.Array) -> pa.Array:
    """Strip trailing zeros from the fraction of seconds."""
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"(\.\d*?)0+$", r"\1"), r"\.$", "")


def _fault(value: pa.Scalar) -> str:
    """Explain why a value has no nominal form, and suggest a remedy."""
    if pa.types.is_temporal(value.type):
        return (
            "and has values outside the years 1 to 9999, which cannot be nominal. Make such values null, or read the column as "
            "numeric."
        )
    number = value.as_py()
    if abs(number) < MOST:
        return "which cannot be read as nominal values where there are fractions. Group the numbers, or convert them to text."
    return f"and {number} is beyond the whole numbers of 64 bits with a sign. Convert the column to text."
