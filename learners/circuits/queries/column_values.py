"""Convert codes and numbers of a circuit's variables to data cells, and fill missing cells from their conditional
distribution.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.circuits.circuit import Circuit
from learners.circuits.errors import ImpossibleEvidence
from learners.circuits.variables import Columns
from learners.errors import SchemaError
from learners.kernels.arrays import Array, Floats, Integers, Mask
from learners.models.evidence import RawValue
from learners.models.query import How
from learners.schema import Chunk
from learners.schema.encoding.encode import class_codes, encode
from learners.schema.schema import OTHER, Attribute
from learners.schema.times_and_durations import clock_kind_and_ticks, parse_duration_nanoseconds

DAY_S = 86_400
INTEGER = re.compile(r"u?int\d+")
DECIMAL = re.compile(r"decimal\d+\(\d+, (-?\d+)\)")
MICROS = 10**6
COARSE = {"timestamp[s": MICROS, "timestamp[m": 1000}  # microseconds that the coarse types of moments tell apart
DAY_LETTERS = len("2026-01-31")


def rows_of_batch(columns: Columns, batch: pa.RecordBatch) -> Array:
    """Convert raw rows to (n_variables, n_rows), including the class if present; an unseen class is missing.

    Raises SchemaError if the type of a column does not fit.
    """
    return columns.rows_of_chunk(chunk_of_batch(columns, batch))


def chunk_of_batch(columns: Columns, batch: pa.RecordBatch) -> Chunk:
    """Encode rows for a model; a null or unseen class has a code outside its domain.

    Raises SchemaError.
    """
    chunk = encode(batch, columns.schema, with_class=False)
    target = columns.schema.target
    if columns.class_variable is None or target not in batch.schema.names:
        return chunk
    return Chunk(chunk.x, class_codes(batch, columns.schema), chunk.numbers)


def missing_cells(columns: Columns, batch: pa.RecordBatch) -> Mask:
    """Return where rows have null or NaN, or lack the column, (n_variables, n_rows) bool."""
    is_missing = np.ones((len(columns.names), batch.num_rows), np.bool_)
    places = {name: place for place, name in enumerate(batch.schema.names)}
    for v, name in enumerate(columns.names):
        if name in places:
            column = batch.column(places[name])
            has_nan = pa.types.is_floating(column.type)
            is_missing[v] = column.is_null(nan_is_null=has_nan).to_numpy(zero_copy_only=False)
    return is_missing


def nameable(columns: Columns) -> list[Mask]:
    """Return for each variable which codes denote a single value, not missing or folded rare values; empty for numbers."""
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


def is_binned_variable(columns: Columns, v: int) -> bool:
    """Return whether a variable is a numeric column cut into intervals."""
    return v != columns.class_variable and columns.n_values[v] > 0 and columns.schema.attributes[v].kind == "numeric"


def raw_value(columns: Columns, v: int, code: float) -> RawValue:
    """Return the raw value of a code or number: for an interval its midpoint, or its finite end."""
    if not is_binned_variable(columns, v):
        value = columns.value(v, code)
        return None if value == OTHER else value
    return columns.schema.attributes[v].number_in_words(float(_middles(columns, v)[int(code)]))


def cell_value(columns: Columns, v: int, code: float) -> RawValue:
    """Return the raw value of a code or number as JSON holds a cell of its column, as `with_cells` does for Arrow: numbers in the
    steps of the column's type, a day in one of dates, times of a zone in UTC with a Z.
    """
    if v == columns.class_variable or columns.schema.attributes[v].kind == "nominal":
        return raw_value(columns, v, code)
    attribute = columns.schema.attributes[v]
    kind = attribute.arrow_type
    number = float(_middles(columns, v)[int(code)]) if is_binned_variable(columns, v) else code
    if not np.isfinite(number):
        return number
    if kind == "bool":
        return number >= 0.5
    if INTEGER.fullmatch(kind):
        limits = np.iinfo(kind)
        return min(max(round(number), int(limits.min)), int(limits.max))
    if (decimal := DECIMAL.fullmatch(kind)) is not None:
        return float(np.round(number, int(decimal[1])))
    if attribute.clock is not None:
        name, ticks = attribute.clock
        return attribute.number_in_words(
            min(max(round(number), 0), DAY_S * ticks - 1) if name == "time" else round(number)
        )
    if attribute.is_time:
        coarse = COARSE.get(kind[: len("timestamp[s")], 1)
        number = float(np.trunc(np.round(number * MICROS) / coarse) * coarse / MICROS)
    words = attribute.number_in_words(number)
    if not isinstance(words, str):
        return words
    if kind.startswith("date"):
        return words[:DAY_LETTERS]
    return f"{words if 'T' in words else f'{words}T00:00:00'}Z" if "tz=" in kind else words


def _middles(columns: Columns, v: int) -> Floats:
    """Return a number for each code of an interval variable, (n_values,); NaN for missing."""
    attribute = columns.schema.attributes[v]
    cuts = np.array(attribute.cuts, np.float64)
    if not cuts.size:
        middles = np.array([np.nan])
    else:
        middles = np.concatenate([cuts[:1], (cuts[:-1] + cuts[1:]) / 2, cuts[-1:]])
    return cast("Floats", np.concatenate([[np.nan] * attribute.first_code, middles])[int(columns.offsets[v]) :])


def with_cells(columns: Columns, v: int, column: pa.Array, values: Floats) -> pa.Array:
    """Replace some cells of an Arrow column. Raises SchemaError if a value does not fit the column's type.

    v: the column's variable.
    column: a column of any type that training accepted for it; of type null if the data has no such column. The
    result has this type, for a dictionary its value type. Integers are rounded and clipped to their type. values
    (n_rows,) float64: codes or numbers; NaN keeps a cell.
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
        raise SchemaError(f"Column {name!r} of type {kind} cannot hold the imputed value: {error}.", name) from error
    if pa.types.is_string_view(kind):  # of which Arrow cannot choose cells
        return pc.if_else(pa.array(is_filled), fill.cast(pa.string()), column.cast(pa.string())).cast(kind)
    return pc.if_else(pa.array(is_filled), fill, column)


def _raw_column(columns: Columns, v: int, values: Floats, is_filled: Mask) -> pa.Array:
    """Convert values of codes to strings, integers or booleans, and numbers to float64; null where nothing is filled."""
    if not columns.n_values[v]:
        return pa.array(values, mask=~is_filled)
    codes = np.where(is_filled, values, 0).astype(np.int64)
    if is_binned_variable(columns, v):
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
    """Convert canonical text of nominal times to time values."""
    own = clock_kind_and_ticks(str(kind))
    if own is None:
        if pa.types.is_date(kind):
            return new.cast(pa.timestamp("ms")).cast(kind)
        return new.cast(pa.timestamp(kind.unit)).cast(pa.int64()).cast(kind)
    counts = []
    for text in new.to_pylist():
        duration = text if text is None or own[0] == "duration" else f"PT{text[:2]}H{text[3:5]}M{text[6:]}S"
        nanoseconds = None if duration is None else parse_duration_nanoseconds(duration, own[1])
        counts.append(None if nanoseconds is None else nanoseconds * own[1] // 10**9)
    return pa.array(counts, pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)


def _as_clock(new: pa.Array, kind: pa.DataType, attribute: Attribute | None) -> pa.Array:
    """Convert times of day and durations from the unit of training."""
    own = clock_kind_and_ticks(str(kind))
    training = None if attribute is None else clock_kind_and_ticks(attribute.arrow_type)
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


# Marginal distributions of so many values are made at a time.
MOST_AT_A_TIME = 1 << 21


class Answering(Protocol):
    """A model that answers for rows: a circuit, or the draws of a posterior over circuits."""

    @property
    def circuit(self) -> Circuit:
        """Structure of the model."""

    def row_logs(self, x: Array) -> Floats:
        """Return the log probability (density) of each row, (n_rows,)."""

    def row_marginals(self, x: Array, variables: Sequence[int]) -> list[Floats]:
        """Return the marginal distribution of each discrete variable, (n_rows, n_values)."""

    def row_means(self, x: Array, variables: Sequence[int]) -> Floats:
        """Return the expectation of each numeric variable, (n_rows, len(variables))."""

    def row_peaks(self, x: Array, v: int) -> Floats:
        """Return the modes of a numeric variable's densities given each row, (n_peaks, n_rows)."""

    def row_draws(self, x: Array, n: int, seed: int, numbers: Integers) -> Floats:
        """Draw samples given each row, (n_rows, n, n_variables)."""


def fill_cells(
    model: Answering,
    x: Array,
    is_missing: Mask,
    how: How,
    *,
    nameable: Sequence[Mask],
    seed: int = 0,
    first_row: int = 0,
    n_draws: int = 1,
) -> Floats:
    """Compute values for the missing cells of rows, (n_draws, n_variables, n_rows) float64.

    NaN for cells that were not missing, for drawn values without a name, and in rows of probability zero.

    x (n_variables, n_rows) float64 or integers: missing values are not observed here, either: NaN, or -1 of a discrete
    variable.
    is_missing (n_variables, n_rows) bool: the cells to fill.
    how: "mode", the most probable value of the cell by itself given the row; of a number the peak of one of its
    densities, the one at which the row is most probable. "mean", the expectation of a number; of a discrete variable
    the mode. "draw", all missing cells of a row together from their joint distribution.
    nameable: for each variable (n_values,) bool, the codes that may fill a cell: a code that many rare values share
    has no value. Not read of numbers. seed: seed of the draws. A draw depends on the seed, the row's number, from
    first_row on, and its own. n_draws: number of draws of each cell; 1 unless `how` is "draw". References: Darwiche
    (2003), section 4.2 (all marginals by one pass up and one down).
    """
    out = np.full((n_draws, *is_missing.shape), np.nan)
    variables = np.flatnonzero(is_missing.any(axis=1))
    rows = np.flatnonzero(is_missing.any(axis=0))
    sizes = np.maximum(model.circuit.n_values[variables], 2)
    step = max(1, MOST_AT_A_TIME // max(1, int(sizes.sum()) * n_draws))
    for first in range(0, rows.size, step):
        some = rows[first : first + step]
        part = np.ascontiguousarray(x[:, some])
        if how == "draw":
            values = _drawn(model, part, variables, nameable, (n_draws, seed, some + first_row))
        else:
            values = _expected(model, part, variables, how, nameable)[np.newaxis]
        mask = is_missing[np.ix_(variables, some)]
        out[np.ix_(np.arange(n_draws), variables, some)] = np.where(mask, values, np.nan)
    return out


def _expected(model: Answering, x: Array, variables: Integers, how: How, nameable: Sequence[Mask]) -> Floats:
    """Return the mode or mean of each queried variable, (n_asked, n_rows); NaN in rows of probability zero."""
    try:
        return _of_possible(model, x, variables, how, nameable)
    except ImpossibleEvidence:  # rare, so that nobody looks for it beforehand
        values = np.full((variables.size, x.shape[1]), np.nan)
        possible = model.row_logs(x) > -np.inf
        if possible.any():
            values[:, possible] = _of_possible(model, np.ascontiguousarray(x[:, possible]), variables, how, nameable)
        return values


def _of_possible(model: Answering, x: Array, variables: Integers, how: How, nameable: Sequence[Mask]) -> Floats:
    values = np.full((variables.size, x.shape[1]), np.nan)
    is_discrete = model.circuit.n_values[variables] > 0
    discrete, numeric = variables[is_discrete].tolist(), variables[~is_discrete].tolist()
    if discrete:
        shares = model.row_marginals(x, discrete)
        for place, v, p in zip(np.flatnonzero(is_discrete).tolist(), discrete, shares, strict=True):
            if nameable[v].any():
                values[place] = np.where(nameable[v], p, -1.0).argmax(axis=1)
    if numeric and how == "mean":
        values[~is_discrete] = model.row_means(x, numeric).T
    elif numeric:
        for place, v in zip(np.flatnonzero(~is_discrete).tolist(), numeric, strict=True):
            values[place] = _highest_peak(model, x, v)
    return values


def _highest_peak(model: Answering, x: Array, v: int) -> Floats:
    """Return the peak of a variable's densities at which each row is most probable, (n_rows,)."""
    tried = np.array(x, np.float64)
    best, highest = np.full(x.shape[1], np.nan), np.full(x.shape[1], -np.inf)
    for peak in model.row_peaks(x, v):
        tried[v] = peak
        logs = model.row_logs(tried)
        better = logs > highest
        best[better], highest[better] = peak[better], logs[better]
    return best


def _drawn(
    model: Answering, x: Array, variables: Integers, nameable: Sequence[Mask], draws: tuple[int, int, Integers]
) -> Floats:
    """Return joint draws, (n_draws, n_asked, n_rows); NaN where a value has no name, and in rows of probability zero."""
    n, seed, numbers = draws
    try:
        rows = model.row_draws(x, n, seed, numbers)
    except ImpossibleEvidence:
        rows = np.full((x.shape[1], n, x.shape[0]), np.nan)
        possible = model.row_logs(x) > -np.inf
        if possible.any():
            rows[possible] = model.row_draws(np.ascontiguousarray(x[:, possible]), n, seed, numbers[possible])
    values = np.ascontiguousarray(rows[:, :, variables].transpose(1, 2, 0))
    for place, v in enumerate(variables.tolist()):
        if model.circuit.n_values[v]:
            codes = values[:, place]
            known = ~np.isnan(codes)
            codes[known] = np.where(nameable[v][codes[known].astype(np.int64)], codes[known], np.nan)
    return values
