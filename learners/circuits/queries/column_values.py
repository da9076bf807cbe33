"""Codes and numbers of a circuit's variables as cells of the data: raw values, and Arrow columns of the data's own types."""

from __future__ import annotations

from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.circuits.columns import Columns
from learners.errors import SchemaError
from learners.kernels.arrays import Array, Floats, Mask
from learners.models.evidence import RawValue
from learners.schema import Chunk
from learners.schema.encoding.encode import class_codes, encode
from learners.schema.nominal_forms import clock_of, nanoseconds_of
from learners.schema.schema import OTHER, Attribute

DAY_S = 86_400


def rows_of_batch(columns: Columns, batch: pa.RecordBatch) -> Array:
    """(n_variables, n_rows) of raw rows, the class among them where they have it; a class that training never saw is missing.

    Raises SchemaError if the type of a column does not fit.
    """
    return columns.rows_of_chunk(chunk_of_batch(columns, batch))


def chunk_of_batch(columns: Columns, batch: pa.RecordBatch) -> Chunk:
    """The rows as a model reads them; a class that is null, or that training never saw, has a code outside its domain.

    Raises SchemaError.
    """
    chunk = encode(batch, columns.schema, with_class=False)
    target = columns.schema.target
    if columns.class_variable is None or target not in batch.schema.names:
        return chunk
    return Chunk(chunk.x, class_codes(batch, columns.schema), chunk.numbers)


def missing_cells(columns: Columns, batch: pa.RecordBatch) -> Mask:
    """(n_variables, n_rows) bool: where rows have null or NaN, or no such column."""
    found = np.ones((len(columns.names), batch.num_rows), np.bool_)
    places = {name: place for place, name in enumerate(batch.schema.names)}
    for v, name in enumerate(columns.names):
        if name in places:
            column = batch.column(places[name])
            has_nan = pa.types.is_floating(column.type)
            found[v] = column.is_null(nan_is_null=has_nan).to_numpy(zero_copy_only=False)
    return found


def nameable(columns: Columns) -> list[Mask]:
    """Of each variable which codes stand for one value: neither for missing nor for many rare values. Empty of numbers."""
    return [
        np.array([_has_name(columns, v, code) for code in range(size)], np.bool_)
        for v, size in enumerate(columns.n_values)
    ]


def _has_name(columns: Columns, v: int, code: int) -> bool:
    if v == columns.class_variable:
        return True
    attribute = columns.schema.attributes[v]
    own = code + int(columns.offsets[v])
    is_missing = attribute.has_missing and own == 0
    is_folded = attribute.n_folded > 0 and own == attribute.n_values - 1
    return not (is_missing or is_folded)


def is_in_intervals(columns: Columns, v: int) -> bool:
    """Whether a variable is a numeric column that was cut into intervals."""
    return v != columns.class_variable and columns.n_values[v] > 0 and columns.schema.attributes[v].kind == "numeric"


def raw_value(columns: Columns, v: int, code: float) -> RawValue:
    """The raw value of a code or number: of an interval its middle, of an interval without an end its other end."""
    if not is_in_intervals(columns, v):
        value = columns.value(v, code)
        return None if value == OTHER else value
    return columns.schema.attributes[v].number_in_words(float(_middles(columns, v)[int(code)]))


def _middles(columns: Columns, v: int) -> Floats:
    """(n_values,) of a variable in intervals: a number for each code; NaN of the one for missing."""
    attribute = columns.schema.attributes[v]
    cuts = np.array(attribute.cuts, np.float64)
    if not cuts.size:
        middles = np.array([np.nan])
    else:
        middles = np.concatenate([cuts[:1], (cuts[:-1] + cuts[1:]) / 2, cuts[-1:]])
    return cast("Floats", np.concatenate([[np.nan] * attribute.has_missing, middles])[int(columns.offsets[v]) :])


def with_cells(columns: Columns, v: int, column: pa.Array, values: Floats) -> pa.Array:
    """An Arrow column with some of its cells replaced. Raises SchemaError if a value is none of the column's type.

    v: the column's variable.
    column: of any type that training read for it; of type null where the data has no such column. What comes back has
    this type, of a dictionary its values. Whole numbers are rounded, and end at the ends of their type.
    values (n_rows,) float64: codes or numbers; NaN leaves a cell as it is.
    """
    name, kind = columns.names[v], column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    is_filled = ~np.isnan(values)
    new = _raw_column(columns, v, values, is_filled)
    if pa.types.is_null(kind):
        kind = new.type
        column = column.cast(kind)
    try:
        attribute = None if v == columns.class_variable else columns.schema.attributes[v]
        fill = _as_type(new, kind, attribute)
    except (pa.ArrowException, OverflowError) as error:
        raise SchemaError(
            f"Column {name!r} of type {kind} cannot hold what it is filled with: {error}.", name
        ) from error
    return pc.if_else(pa.array(is_filled), fill, column)


def _raw_column(columns: Columns, v: int, values: Floats, is_filled: Mask) -> pa.Array:
    """Values of codes as strings, integers or booleans, numbers as float64; null where nothing is filled."""
    if not columns.n_values[v]:
        return pa.array(values, mask=~is_filled)
    codes = np.where(is_filled, values, 0).astype(np.int64)
    if is_in_intervals(columns, v):
        return pa.array(_middles(columns, v)[codes], mask=~is_filled)
    named = [columns.value(v, code) if _has_name(columns, v, code) else None for code in range(columns.n_values[v])]
    return pa.array(named).take(pa.array(codes, mask=~is_filled))


def _as_type(new: pa.Array, kind: pa.DataType, attribute: Attribute | None) -> pa.Array:
    if pa.types.is_string(new.type) and pa.types.is_temporal(kind):
        return _from_words(new, kind)
    if not pa.types.is_floating(new.type):
        return new.cast(kind, safe=False) if pa.types.is_integer(new.type) else new.cast(kind)
    if pa.types.is_boolean(kind):
        return pc.greater_equal(new, 0.5)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        micros = pc.cast(pc.round(pc.multiply(new, 1e6)), pa.int64(), safe=False)
        return micros.cast(pa.timestamp("us", tz=getattr(kind, "tz", None))).cast(kind, safe=False)
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return _as_clock(new, kind, attribute)
    if pa.types.is_integer(kind):
        limits = np.iinfo(kind.to_pandas_dtype())
        return _within(new, float(limits.min), float(limits.max)).cast(kind, safe=False)
    if pa.types.is_decimal(kind):
        return pc.round(new, kind.scale).cast(kind)
    return new.cast(kind)


def _from_words(new: pa.Array, kind: pa.DataType) -> pa.Array:
    """Times from the texts that stand for them as nominal values."""
    own = clock_of(str(kind))
    if own is None:
        if pa.types.is_date(kind):
            return new.cast(pa.timestamp("ms")).cast(kind)
        return new.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    counts = []
    for text in new.to_pylist():
        duration = text if text is None or own[0] == "duration" else f"PT{text[:2]}H{text[3:5]}M{text[6:]}S"
        nanoseconds = None if duration is None else nanoseconds_of(duration, own[1])
        counts.append(None if nanoseconds is None else nanoseconds * own[1] // 10**9)
    return pa.array(counts, pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)


def _as_clock(new: pa.Array, kind: pa.DataType, attribute: Attribute | None) -> pa.Array:
    """Times of day and durations, told in the unit of training."""
    own = clock_of(str(kind))
    training = None if attribute is None else clock_of(attribute.arrow_type)
    scale = own[1] / training[1] if own is not None and training is not None else 1.0
    counts = pc.multiply(new, scale)
    if pa.types.is_time(kind):
        assert own is not None
        counts = pc.min_element_wise(
            pc.max_element_wise(counts, 0.0, skip_nulls=False), own[1] * DAY_S - 1.0, skip_nulls=False
        )
    whole = pc.cast(pc.round(counts), pa.int64() if kind.bit_width == 64 else pa.int32(), safe=False)
    return whole.cast(kind)


def _within(new: pa.Array, low: float, high: float) -> pa.Array:
    rounded = pc.round(new)
    # The largest double that a 64-bit number can be.
    high = np.nextafter(high, 0.0) if high > 2.0**53 else high
    return pc.min_element_wise(pc.max_element_wise(rounded, low, skip_nulls=False), high, skip_nulls=False)
