"""Encode records and columns of raw Python values, as in requests."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from operator import itemgetter

import numpy as np
import pyarrow as pa

from learners.errors import InvalidArgument, SchemaError
from learners.kernels.arrays import Codes, Floats, freeze_arrays
from learners.schema.checks import check_column_lengths
from learners.schema.discretise import EXACT
from learners.schema.discretise_kernels import interval_codes
from learners.schema.reading import Reading
from learners.schema.schema import EPOCH, Attribute, Chunk, Schema
from learners.schema.times_and_durations import (
    LAST_SECOND,
    TICKS,
    canonical_time_text,
    clock_kind_and_ticks,
    parse_duration_seconds,
    seconds_since_1970,
    time_kind_and_ticks,
)

MARKS = frozenset(["NAType", "NaTType"])  # the types of what pandas has for missing values beside NaN and None
MOST_SHOWN = 80
TRUTHS = {"true": True, "false": False}
MOST_TEXTS = 4096  # converted texts that are remembered
WHOLE = re.compile(r"[+-]?\d{1,400}", re.ASCII)
DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
UNITS = dict(zip(TICKS.values(), ("seconds", "milliseconds", "microseconds", "nanoseconds"), strict=True))


def short_value_text(value: object) -> str:
    """Format a value for a message, shortened."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python writes
        assert isinstance(value, int)
        return f"a whole number of {value.bit_length():,} bits"
    return text if len(text) <= MOST_SHOWN else text[:MOST_SHOWN] + "…"


def is_missing_mark(value: object) -> bool:
    """Return True if a raw value is missing: None, NaN, or what pandas has for it."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or type(value).__name__ in MARKS


def _wrong(attribute: Attribute, value: object) -> SchemaError:
    clock = clock_kind_and_ticks(attribute.arrow_type)
    if attribute.is_time:
        expected = "a time such as '2026-01-31T12:00', or seconds since 1970"
    elif attribute.kind == "numeric" and clock is not None:
        expected = (
            "a time of day such as '12:00', or "
            if clock[0] == "time"
            else "a duration such as 'PT5M' or '0:05:00', or "
        ) + f"a number of {UNITS[clock[1]]}"
    elif attribute.kind == "numeric":
        expected = "a number"
    else:
        some = [str(known).lower() if isinstance(known, bool) else repr(known) for known in attribute.values[:4]]
        expected = f"one of {', '.join(some)}" + (", …" if len(attribute.values) > 4 else "")
    return SchemaError(
        f"Column {attribute.name!r} holds {short_value_text(value)} ({type(value).__name__}), but the model expects {expected}.",
        attribute.name,
    )


def _known_codes(attribute: Attribute) -> dict[object, int]:
    """Map None and each value of a nominal attribute's domain to its code."""
    codes: dict[object, int] = {None: attribute.missing_code}
    codes.update({value: j + attribute.first_code for j, value in enumerate(attribute.values)})
    return codes


def plain_text_reader(attribute: Attribute, values: Iterable[object] = ()) -> Callable[[str], str | None]:
    """Return a function that converts a text to Arrow's format by how files of text write the column (`Reading.plain`); None
    means missing.

    `values`: the texts among them are converted at once, in a hundredth of the time.
    """
    reading = attribute.reading
    if reading is None:
        return str.strip
    texts = list({value for value in values if value.__class__ is str})
    try:
        plain: Mapping[str, str | None] = dict(zip(texts, _plain_texts(reading, texts), strict=True))
    except UnicodeEncodeError:  # a text that Arrow does not hold: only the others can be converted
        plain = {}

    def read(text: str) -> str | None:
        return plain[text] if text in plain else _plain_text(reading, text)

    return read


def _plain_texts(reading: Reading, texts: Sequence[str]) -> list[str | None]:
    plain = reading.plain(pa.array(texts, pa.string())).to_pylist()
    return [None if text is None else text.strip() for text in plain]


@lru_cache(MOST_TEXTS)
def _plain_text(reading: Reading, text: str) -> str | None:
    try:
        return _plain_texts(reading, [text])[0]
    except UnicodeEncodeError:
        return text


def _nominal_value_code(attribute: Attribute, values: Iterable[object] = ()) -> Callable[[object], int]:
    missing, unseen = attribute.missing_code, attribute.unseen_code
    known, plain = _known_codes(attribute), plain_text_reader(attribute, values)
    is_text = not attribute.values or isinstance(attribute.values[0], str)
    are_truths = not is_text and isinstance(attribute.values[0], bool)
    is_time = is_text and time_kind_and_ticks(attribute.arrow_type) is not None

    def code_of_text(value: str) -> int:
        text = plain(value)
        if text is None:
            return missing
        if is_time:
            return known.get(canonical_time_text(text, attribute.arrow_type) or text, unseen)
        if is_text:
            return unseen
        number = TRUTHS.get(text.lower()) if are_truths else int(text) if WHOLE.fullmatch(text) else None
        if number is None:
            raise _wrong(attribute, value)
        return known.get(number, unseen)

    def code(value: object) -> int:
        try:
            return known[value]
        except KeyError:
            if is_missing_mark(value):
                return missing
            if isinstance(value, str):
                return code_of_text(value)
            if is_time and isinstance(value, date | time | timedelta):
                words = canonical_time_text(value, attribute.arrow_type)
                if words is not None:
                    return known.get(words, unseen)
            if not is_text and isinstance(value, int | float | Decimal | np.number):
                return unseen
            raise _wrong(attribute, value) from None
        except TypeError:  # a list or an object cannot be looked up
            raise _wrong(attribute, value) from None

    return code


def json_number_reader(attribute: Attribute, values: Iterable[object] = ()) -> Callable[[object], float]:
    """Return a function that converts a raw value of a numeric attribute to a float: NaN for None, seconds since 1970
    for times.

    Text is read as in files of text: numbers, times, times of day and durations, as the options of the training write them.
    The function raises SchemaError naming the column for an invalid value.

    `values`: see `plain_text_reader`.
    """
    read, plain = _text_reader(attribute), plain_text_reader(attribute, values)
    what, ticks = clock_kind_and_ticks(attribute.arrow_type) or ("", 0)
    is_time = attribute.is_time

    def number(value: object) -> float:
        if value is None or type(value).__name__ in MARKS:
            return math.nan
        if isinstance(value, str):
            text = plain(value)
            if text is None:
                return math.nan
            try:
                value = read(text)
            except ValueError:
                raise _wrong(attribute, value) from None
        if is_time and isinstance(value, date):
            return _seconds(value)
        if what == "time" and isinstance(value, time) and value.tzinfo is None:
            seconds = (value.hour * 60 + value.minute) * 60 + value.second
            return (seconds * TICKS["us"] + value.microsecond) * ticks / TICKS["us"]
        if what == "duration" and isinstance(value, timedelta):
            return value // timedelta(microseconds=1) * ticks / TICKS["us"]
        if isinstance(value, int | float | np.number) or (isinstance(value, Decimal) and not value.is_snan()):
            return seconds_since_1970(attribute.name, _float64(value)) if is_time else _float64(value)
        raise _wrong(attribute, value)

    return number


def _text_reader(attribute: Attribute) -> Callable[[str], time | date | float]:
    """Return a function that parses the text of a time, time of day, duration or number. It raises ValueError."""
    if attribute.is_time:
        return datetime.fromisoformat
    clock = clock_kind_and_ticks(attribute.arrow_type)
    if clock is not None and clock[0] == "time":
        return _time_of_day
    if clock is not None:
        return partial(_duration, clock[1])
    return _decimal


def _time_of_day(text: str) -> time:
    moment = time.fromisoformat(text)
    if moment.tzinfo is not None or ":" not in text:  # "12" may be meant as a number
        raise ValueError(text)
    return moment


def _duration(ticks: int, text: str) -> float:
    """Parse a duration in the column's unit; plain numbers have this unit as well."""
    return float(text) if DECIMAL.fullmatch(text) else parse_duration_seconds(text) * ticks


def _decimal(text: str) -> float:
    if not DECIMAL.fullmatch(text) or math.isinf(float(text)):
        raise ValueError(text)
    return float(text)


def numeric_value_code(attribute: Attribute, values: Iterable[object] = ()) -> Callable[[object], int]:
    """Return a function that gives the code of a number, as text, number or time, by the intervals of a column.

    `values`: see `plain_text_reader`.
    """
    offset, missing, cuts = attribute.first_code, attribute.missing_code, list(attribute.cuts)
    number_of, most = json_number_reader(attribute, values), LAST_SECOND if attribute.is_time else EXACT

    cycle = attribute.cycle
    if cycle is not None:

        def code_of_part(value: object) -> int:
            phase = cycle.phase(number_of(value))
            return missing if math.isnan(phase) else bisect_left(cuts, phase) + offset

        return code_of_part

    def code(value: object) -> int:
        if value.__class__ is float and not attribute.is_time:
            return missing if value != value else bisect_left(cuts, value) + offset  # noqa: PLR0124 (NaN)
        if value.__class__ is int and -most <= value <= most:
            return bisect_left(cuts, value) + offset
        number = number_of(value)
        return missing if math.isnan(number) else bisect_left(cuts, number) + offset

    return code


def _float64(value: float | Decimal | np.number) -> float:
    """Convert to float64, in which columns are compared; integers above 2^53 may be rounded."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _seconds(moment: date) -> float:
    """Convert to seconds since 1970 as `encode.numeric_column_as_floats` does; a time without a zone is UTC."""
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return ((moment - EPOCH) // timedelta(microseconds=1)) / 1e6


def json_value_encoders(schema: Schema) -> list[tuple[str, Callable[[object], int], int]]:
    """Return for each attribute its name, a function that encodes a value, and the code of an absent value."""
    return [(attribute.name, json_value_encoder(attribute), attribute.n_values) for attribute in schema.attributes]


def json_value_encoder(attribute: Attribute, values: Iterable[object] = ()) -> Callable[[object], int]:
    """Return the function that encodes a raw value of an attribute; it raises SchemaError for a value of a wrong type.

    `values`: see `plain_text_reader`.
    """
    return (_nominal_value_code if attribute.kind == "nominal" else numeric_value_code)(attribute, values)


def encode_json_records(records: Sequence[Mapping[str, object]], schema: Schema) -> Chunk:
    """Encode rows given as mappings from column to raw value; absent columns get the unseen code.

    Raises SchemaError naming the row and the column of a value of the wrong type.
    """
    x = np.empty((schema.n_attributes, len(records)), schema.code_dtype)
    for i, attribute in enumerate(schema.attributes):
        name, absent, row = attribute.name, attribute.n_values, 0
        code = json_value_encoder(attribute, (record.get(name) for record in records))
        try:
            for row, record in enumerate(records):
                x[i, row] = code(record[name]) if name in record else absent
        except SchemaError as error:
            raise SchemaError(f"Row {row}: {error}", error.column, error.columns) from error
    return Chunk(x, None, _numbers(schema, len(records), lambda name: [record.get(name) for record in records]))


def _numbers(schema: Schema, n_rows: int, values_of: Callable[[str], Sequence[object]]) -> Floats | None:
    """Return the continuous numbers of a chunk, (len(schema.continuous), n_rows) float64, or None."""
    if not schema.continuous:
        return None
    own = np.empty((len(schema.continuous), n_rows))
    for row, i in enumerate(schema.continuous):
        attribute = schema.attributes[i]
        values = values_of(attribute.name)
        own[row] = np.fromiter(map(json_number_reader(attribute, values), values), np.float64, n_rows)
    return own


def _all_at_once(attribute: Attribute, values: Sequence[object], codes: Codes) -> bool:
    """Encode a column of known values or plain numbers at once, several times faster; returns False if it has other
    values.
    """
    if attribute.kind == "nominal":
        try:
            codes[:] = np.fromiter(map(_known_codes(attribute).__getitem__, values), codes.dtype, len(values))
        except (KeyError, TypeError):  # a value that needs a closer look
            return False
        return True
    if attribute.part is not None or not set(map(type, values)) <= {float, int}:
        return False
    try:
        numbers = np.array(values, np.float64)
    except OverflowError:  # a whole number above all doubles
        return False
    freeze_arrays(numbers)
    interval_codes(numbers, np.array(attribute.cuts, np.float64), attribute.first_code, attribute.missing_code, codes)
    return True


def encode_json_columns(columns: Mapping[str, Sequence[object]], schema: Schema) -> Chunk:
    """Encode rows given as a mapping from column to its list of raw values.

    Raises SchemaError if lengths differ, or naming the row and column of a value of the wrong type.
    """
    n_rows = check_column_lengths({name: len(values) for name, values in columns.items()})
    x = np.empty((schema.n_attributes, n_rows), schema.code_dtype)
    for i, attribute in enumerate(schema.attributes):
        if attribute.name not in columns:
            x[i] = attribute.n_values
            continue
        if _all_at_once(attribute, columns[attribute.name], x[i]):
            continue
        code, row = json_value_encoder(attribute, columns[attribute.name]), 0
        try:
            for row, value in enumerate(columns[attribute.name]):
                x[i, row] = code(value)
        except SchemaError as error:
            raise SchemaError(f"Row {row}: {error}", error.column, error.columns) from error
    nothing = [None] * n_rows
    return Chunk(x, None, _numbers(schema, n_rows, lambda name: columns.get(name, nothing)))


def check_is_record(record: object) -> None:
    """Refuse a record that is not a mapping (InvalidParameter)."""
    if record.__class__ is not dict and not isinstance(record, Mapping):
        raise InvalidArgument("record", record, "a mapping, such as {'name': value}")


def json_record_encoder(schema: Schema) -> Callable[[Mapping[str, object]], list[int]]:
    """Return a function that encodes one record; absent columns get the unseen code.

    If all attributes are nominal and the record has known values in every column, this takes one dictionary
    lookup per attribute.
    """
    encoders = json_value_encoders(schema)

    def one_by_one(record: Mapping[str, object]) -> list[int]:
        check_is_record(record)
        return [code(record[name]) if name in record else absent for name, code, absent in encoders]

    if schema.n_attributes < 2 or any(attribute.kind != "nominal" for attribute in schema.attributes):
        return one_by_one
    known = [_known_codes(attribute) for attribute in schema.attributes]
    values_of = itemgetter(*(attribute.name for attribute in schema.attributes))

    def all_at_once(record: Mapping[str, object]) -> list[int]:
        try:
            return [codes[value] for codes, value in zip(known, values_of(record), strict=True)]
        except (KeyError, TypeError):  # something is absent, unknown, or of the wrong type
            return one_by_one(record)

    return all_at_once
