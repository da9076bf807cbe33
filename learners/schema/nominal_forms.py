"""The one form of a nominal value: text, a whole number or a boolean; times in the words of ISO 8601, whatever unit or zone they are written in."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import SchemaError
from learners.kernels.arrays import Codes, Integers, Mask

Known = TypeVar("Known")
Number = TypeVar("Number", float, Decimal)
CLOCK_TYPE = re.compile(r"(time|duration)(?:32|64)?\[(\w+)\]")
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DICTIONARY = "dictionary<values="
LAST_SECOND = 253_402_300_799  # of the year 9999, since 1970
ISO_DURATION = re.compile(
    r"(?P<sign>-)?P(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+(?:\.\d+)?)S)?)?", re.ASCII
)
MOMENT = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))? ?(Z|[+-]\d\d(?::?\d\d(?::?\d\d)?)?)?)?", re.ASCII
)
TIME_OF_DAY = re.compile(r"(\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))?", re.ASCII)
COUNT = re.compile(r"[+-]?\d+(\.\d*)?", re.ASCII)
CLOCK_DURATION = re.compile(
    r"(?P<sign>-)?(?:(?P<d>\d+) days?,? )?(?P<h>\d+):(?P<m>\d\d):(?P<s>\d\d(?:\.\d+)?)", re.ASCII
)
LEAST, MOST = -(2**63), 2**63 - 1
DAY = 86_400
FIRST_SECOND = -62_135_596_800  # of the year 1


def clock_kind_and_ticks(arrow_type: str) -> tuple[str, int] | None:
    """Of times of day and durations: "time" or "duration", and how many of their numbers make a second."""
    match = CLOCK_TYPE.match(arrow_type.removeprefix(DICTIONARY))
    return (match[1], TICKS[match[2]]) if match else None


def is_date_or_timestamp(arrow_type: str) -> bool:
    """Whether a type is of dates or timestamps."""
    return arrow_type.removeprefix(DICTIONARY).startswith(("timestamp", "date"))


def seconds_since_1970(name: str, number: float) -> float:
    """A number of a column of dates or timestamps: seconds since 1970.

    Raises SchemaError if they would be after the year 9999: then the number is of a smaller unit, and nobody said of
    which.
    """
    if LAST_SECOND < abs(number) < math.inf:
        raise SchemaError(
            f"Column {name!r} holds {number:.0f} where times are wanted. Numbers are seconds since 1970, and these would be after the "
            "year 9999. Divide milliseconds by 1,000, or send '2026-01-31T12:00'.",
            name,
        )
    return number


def time_or_duration_text(what: str, ticks: int, number: float) -> str | None:
    """A time of day as "12:30:00", or a duration as "PT5M"; None where these words would be another number."""
    if what == "duration":
        text = _duration(number / ticks)
        return text if parse_duration_seconds(text) * ticks == number else None
    micros = number * 1_000_000 / ticks
    if not 0 <= micros < 86_400_000_000 or micros != int(micros):
        return None
    return (datetime.min + timedelta(microseconds=int(micros))).time().isoformat()


def _duration(seconds: float) -> str:
    """ISO 8601: days, hours, minutes and seconds."""
    whole = int(abs(seconds))
    rest = f"{abs(seconds) - whole:.9f}".rstrip("0").removeprefix("0").rstrip(".")
    if rest.startswith("1"):
        whole, rest = whole + 1, ""
    return _in_parts(seconds < 0, whole, rest)


def iso8601_duration(nanoseconds: int) -> str:
    """A duration in ISO 8601, to the nanosecond."""
    whole, rest = divmod(abs(nanoseconds), 10**9)
    return _in_parts(nanoseconds < 0, whole, f".{rest:09}".rstrip("0").rstrip("."))


def _in_parts(is_negative: bool, whole: int, rest: str) -> str:
    """Seconds, and their fraction with its point, in days, hours, minutes and seconds."""
    days, whole = divmod(whole, 86_400)
    hours, whole = divmod(whole, 3600)
    minutes, own = divmod(whole, 60)
    clock = f"{hours}H" * (hours > 0) + f"{minutes}M" * (minutes > 0)
    clock += f"{own}{rest}S" if own or rest or not (clock or days) else ""
    return "-" * is_negative + "P" + f"{days}D" * (days > 0) + (f"T{clock}" if clock else "")


def parse_duration_nanoseconds(text: str, ticks: int) -> int | None:
    """A duration in ISO 8601, as "1 day 2:03:04.5", or a number of a unit of which `ticks` make a second; None if it is none."""
    text = text.strip()
    total = Decimal(text) / ticks if COUNT.fullmatch(text) else _seconds(text, Decimal)
    if total is None:
        return None
    exact = total * 10**9
    return int(exact) if exact == int(exact) else None


def time_kind_and_ticks(arrow_type: str) -> tuple[str, int] | None:
    """Of dates, timestamps, times of day and durations: "moment", "time" or "duration", and how many of their numbers make a second."""
    return ("moment", 1) if is_date_or_timestamp(arrow_type) else clock_kind_and_ticks(arrow_type)


def canonical_time_text(value: object, arrow_type: str) -> str | None:
    """The one text that stands for a time of a column's type; None if the value is none, or is none of that kind.

    A moment is told in UTC, one without a zone is of UTC; without its clock where that is midnight, and without zeros behind the
    seconds.
    """
    what, ticks = time_kind_and_ticks(arrow_type) or ("", 1)
    if what == "moment" and isinstance(value, str | date):
        return _moment(value if isinstance(value, str) else value.isoformat())
    if what == "time" and isinstance(value, str | time):
        return _time_of_day(value if isinstance(value, str) else value.isoformat())
    if what == "duration" and isinstance(value, timedelta):
        whole = (value.days * 86_400 + value.seconds) * 10**6 + value.microseconds
        return iso8601_duration(whole * 1000 + getattr(value, "nanoseconds", 0))
    nanoseconds = parse_duration_nanoseconds(value, ticks) if what == "duration" and isinstance(value, str) else None
    return None if nanoseconds is None else iso8601_duration(nanoseconds)


def canonical_nominal_values(values: Sequence[Known], arrow_type: str) -> tuple[Known | str, ...]:
    """Values as they are read; those of times, which earlier releases wrote in the unit of their column, in their one form."""
    if not values or time_kind_and_ticks(arrow_type) is None:
        return tuple(values)
    forms = tuple(canonical_time_text(value, arrow_type) or value for value in values)
    return forms if len(set(forms)) == len(values) else tuple(values)


def _moment(text: str) -> str | None:
    match = MOMENT.fullmatch(text.strip())
    day, clock, fraction, zone = match.groups() if match else ("", None, None, None)
    try:
        moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}{zone or ''}" if match else text.strip())
        moment = moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None
    rest = (fraction or "").rstrip("0")
    return f"{moment.isoformat()}.{rest}" if rest else moment.isoformat().removesuffix("T00:00:00")


def _time_of_day(text: str) -> str | None:
    match = TIME_OF_DAY.fullmatch(text.strip())
    try:
        clock = time.fromisoformat(match[1]).isoformat() if match else None
    except ValueError:
        return None
    rest = (match[2] or "").rstrip("0") if match else ""
    return f"{clock}.{rest}" if rest else clock


def parse_duration_seconds(text: str) -> float:
    """Seconds of a duration: "P1DT2H3M4.5S", "1 day 2:03:04.5" or "2:03:04.5". Raises ValueError."""
    seconds = _seconds(text.strip(), float)
    if seconds is None:
        raise ValueError(text)
    return seconds


def _seconds(text: str, number: type[Number]) -> Number | None:
    """Seconds of a duration in numbers of a type, which rounds or does not; None if the text is none."""
    match = ISO_DURATION.fullmatch(text) or CLOCK_DURATION.fullmatch(text)
    if match is None or not any(match.group("d", "h", "m", "s")):
        return None
    days, hours, minutes, seconds = (number(part or 0) for part in match.group("d", "h", "m", "s"))
    total = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    return -total if match["sign"] else total


def nominal_forms(column: pa.Array, name: str) -> tuple[pa.Array, Mask]:
    """A column as strings, int64 or booleans, NaN as null; and which values have no such form, (n,) bool.

    These are fractions, whole numbers that need more than 64 bits with a sign, and moments outside the years 1 to 9999. A form
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
        f"Column {name!r} holds {kind}, which cannot be read as nominal values. Convert it, or drop it.", name
    )


def plain_nominal_values(column: pa.Array, name: str) -> pa.Array:
    """A nominal column as strings, int64 or booleans, NaN as null.

    Raises SchemaError if the type, or one of the values, has no such form.
    """
    values, is_other = nominal_forms(column, name)
    if is_other.any():
        value = column[int(np.argmax(is_other))]
        raise SchemaError(f"Column {name!r} holds {column.type}, {_fault(value)}", name)
    return values


def distinct_values_with_inverse(column: pa.Array, name: str) -> tuple[pa.Array, Codes, Mask]:
    """Distinct values of a nominal column, the index of each row's value, and where it is null.

    Raises SchemaError as `plain_nominal_values` does.
    """
    column = dictionary_encoded_column(column, name)
    values = plain_nominal_values(column.dictionary, name)
    return values, *dictionary_row_indices(column, values)


def dictionary_encoded_column(column: pa.Array, name: str) -> pa.DictionaryArray:
    """A column with its distinct values apart. Raises SchemaError if the type has no nominal form."""
    if pa.types.is_dictionary(column.type):
        return column
    try:
        return (widen_decimal_column(column) if pa.types.is_decimal(column.type) else column).dictionary_encode()
    except pa.ArrowException:
        raise SchemaError(
            f"Column {name!r} holds {column.type}, which cannot be read as nominal values. Convert it, or drop it.",
            name,
        ) from None


def dictionary_row_indices(column: pa.DictionaryArray, values: pa.Array) -> tuple[Codes, Mask]:
    """The index (n,) of each row's value, and where it is null; a dictionary may hold a null itself."""
    is_null = column.is_null().to_numpy(zero_copy_only=False)
    index = column.indices.fill_null(0).to_numpy(zero_copy_only=False)
    if values.null_count:
        is_null = is_null | values.is_null().to_numpy(zero_copy_only=False)[index]
    return index, is_null


def widen_decimal_column(column: pa.Array) -> pa.Array:
    """Decimals of 32 and 64 bits as of 128, for which Arrow has more functions."""
    kind = column.type
    return column.cast(pa.decimal128(kind.precision, kind.scale)) if kind.bit_width < 128 else column


def time_ticks_since_1970(column: pa.Array) -> tuple[Integers, int]:
    """Counts (n,) int64 since 1970 of dates and timestamps, 0 where null, and how many of them make a second (a day: 0)."""
    kind = column.type
    if pa.types.is_date32(kind):
        column, ticks = pc.cast(column, pa.int32()), 0
    else:
        ticks = TICKS["ms" if pa.types.is_date64(kind) else kind.unit]
    return pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), ticks


def scalar_message_text(value: pa.Scalar) -> str:
    """A value as a message shows it; of a time that Python does not have, its type and its number."""
    try:
        return repr(value.as_py())
    except (OverflowError, ValueError):
        return f"{value.type} {value.value}"


def _none(column: pa.Array) -> Mask:
    return np.zeros(len(column), bool)


def _whole(values: pa.Array, is_whole: pa.Array) -> tuple[pa.Array, Mask]:
    """Whole numbers as int64, 0 in place of others; and which are others."""
    is_other = ~is_whole.fill_null(True).to_numpy(zero_copy_only=False)
    if not is_other.any():
        return pc.cast(values, pa.int64()), is_other
    others = pa.array(is_other)
    whole = pc.cast(pc.if_else(others, pa.scalar(None, values.type), values), pa.int64())
    return pc.if_else(others, 0, whole), is_other


def canonical_time_column(texts: pa.Array, arrow_type: str) -> pa.Array:
    """Texts as those of a column of times, see `canonical_time_text`; what is no time stays as it is."""
    words = [text if text is None else canonical_time_text(text, arrow_type) or text for text in texts.to_pylist()]
    return pa.array(words, pa.string())


def _times(column: pa.Array) -> tuple[pa.Array, Mask]:
    """Times as `canonical_time_text` has them, empty text in place of moments that have none; and which are such moments."""
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
    """Without zeros at the end of the fraction of seconds."""
    return pc.replace_substring_regex(pc.replace_substring_regex(text, r"(\.\d*?)0+$", r"\1"), r"\.$", "")


def _fault(value: pa.Scalar) -> str:
    """Why a value has no nominal form, and what to do."""
    if pa.types.is_temporal(value.type):
        return (
            "and has values outside the years 1 to 9999, which cannot be nominal. Make such values null, or read the column as "
            "numeric."
        )
    number = value.as_py()
    if abs(number) < MOST:
        return "which cannot be read as nominal values where there are fractions. Group the numbers, or convert them to text."
    return f"and {number} is beyond the whole numbers of 64 bits with a sign. Convert the column to text."
