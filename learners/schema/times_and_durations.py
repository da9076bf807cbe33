"""Conversion of times and durations between numbers and ISO 8601 text, independent of unit and zone."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import SchemaError
from learners.kernels.arrays import Integers

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
DAY = 86_400
FIRST_SECOND = -62_135_596_800  # of the year 1


def clock_kind_and_ticks(arrow_type: str) -> tuple[str, int] | None:
    """Return the kind, "time" or "duration", and the ticks per second of times of day and durations; else None."""
    match = CLOCK_TYPE.match(arrow_type.removeprefix(DICTIONARY))
    return (match[1], TICKS[match[2]]) if match else None


def is_date_or_timestamp(arrow_type: str) -> bool:
    """Return whether a type is a date or timestamp."""
    return arrow_type.removeprefix(DICTIONARY).startswith(("timestamp", "date"))


def moment_text(moment: datetime) -> str:
    """Format a timestamp as ISO 8601 for messages, omitting midnight and the UTC zone."""
    return moment.isoformat().removesuffix("+00:00").removesuffix("T00:00:00")


def seconds_since_1970(name: str, number: float) -> float:
    """Return a number of a date or timestamp column, in seconds since 1970.

    Raises SchemaError if the time would be after the year 9999: then the number is in a smaller, unspecified
    unit.
    """
    if LAST_SECOND < abs(number) < math.inf:
        raise SchemaError(
            f"Column {name!r} contains {number:.0f} instead of a time. Numbers are seconds since 1970, and these would be after the "
            "year 9999. Divide milliseconds by 1,000, or send '2026-01-31T12:00'.",
            name,
        )
    return number


def time_or_duration_text(what: str, ticks: int, number: float) -> str | None:
    """Format a time of day as "12:30:00", or a duration as "PT5M"; None if the text would not represent the number
    exactly.
    """
    if what == "duration":
        text = _duration(number / ticks)
        return text if parse_duration_seconds(text) * ticks == number else None
    micros = number * 1_000_000 / ticks
    if not 0 <= micros < 86_400_000_000 or micros != int(micros):
        return None
    return (datetime.min + timedelta(microseconds=int(micros))).time().isoformat()


def _duration(seconds: float) -> str:
    """Format seconds as an ISO 8601 duration with days, hours, minutes and seconds."""
    whole = int(abs(seconds))
    rest = f"{abs(seconds) - whole:.9f}".rstrip("0").removeprefix("0").rstrip(".")
    if rest.startswith("1"):
        whole, rest = whole + 1, ""
    return _in_parts(seconds < 0, whole, rest)


def iso8601_duration(nanoseconds: int) -> str:
    """Format a duration as ISO 8601, to the nanosecond."""
    whole, rest = divmod(abs(nanoseconds), 10**9)
    return _in_parts(nanoseconds < 0, whole, f".{rest:09}".rstrip("0").rstrip("."))


def _in_parts(is_negative: bool, whole: int, rest: str) -> str:
    """Format whole seconds and their fraction, with its point, as days, hours, minutes and seconds."""
    days, whole = divmod(whole, 86_400)
    hours, whole = divmod(whole, 3600)
    minutes, own = divmod(whole, 60)
    clock = f"{hours}H" * (hours > 0) + f"{minutes}M" * (minutes > 0)
    clock += f"{own}{rest}S" if own or rest or not (clock or days) else ""
    return "-" * is_negative + "P" + f"{days}D" * (days > 0) + (f"T{clock}" if clock else "")


def parse_duration_nanoseconds(text: str, ticks: int) -> int | None:
    """Parse a duration as ISO 8601, as "1 day 2:03:04.5", or as a number with `ticks` per second, to nanoseconds; None
    if invalid or inexact.
    """
    text = text.strip()
    total = Decimal(text) / ticks if COUNT.fullmatch(text) else _seconds(text, Decimal)
    if total is None:
        return None
    exact = total * 10**9
    return int(exact) if exact == int(exact) else None


def time_kind_and_ticks(arrow_type: str) -> tuple[str, int] | None:
    """Return the kind ("moment", "time" or "duration") and the ticks per second of dates, timestamps, times of day and
    durations; else None.
    """
    return ("moment", 1) if is_date_or_timestamp(arrow_type) else clock_kind_and_ticks(arrow_type)


def canonical_time_text(value: object, arrow_type: str) -> str | None:
    """Return the canonical text of a time for a column's type; None if the value is not such a time.

    Timestamps are in UTC, which is also assumed without a zone; midnight and trailing zeros of the seconds are
    omitted.
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
    """Parse a duration to seconds: "P1DT2H3M4.5S", "1 day 2:03:04.5" or "2:03:04.5". Raises ValueError."""
    seconds = _seconds(text.strip(), float)
    if seconds is None:
        raise ValueError(text)
    return seconds


def _seconds(text: str, number: type[Number]) -> Number | None:
    """Parse a duration to seconds with a number type (float or exact); None if the text is invalid."""
    match = ISO_DURATION.fullmatch(text) or CLOCK_DURATION.fullmatch(text)
    if match is None or not any(match.group("d", "h", "m", "s")):
        return None
    days, hours, minutes, seconds = (number(part or 0) for part in match.group("d", "h", "m", "s"))
    total = days * 86_400 + hours * 3600 + minutes * 60 + seconds
    return -total if match["sign"] else total


def time_ticks_since_1970(column: pa.Array) -> tuple[Integers, int]:
    """Return the ticks (n,) int64 since 1970 of dates and timestamps, 0 where null, and the ticks per second (0 for
    days).
    """
    kind = column.type
    if pa.types.is_date32(kind):
        column, ticks = pc.cast(column, pa.int32()), 0
    else:
        ticks = TICKS["ms" if pa.types.is_date64(kind) else kind.unit]
    return pc.cast(column, pa.int64()).fill_null(0).to_numpy(zero_copy_only=False), ticks


def canonical_time_column(texts: pa.Array, arrow_type: str) -> pa.Array:
    """Canonicalize texts of a time column, see `canonical_time_text`; other texts are unchanged."""
    words = [text if text is None else canonical_time_text(text, arrow_type) or text for text in texts.to_pylist()]
    return pa.array(words, pa.string())
