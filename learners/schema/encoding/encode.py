"""Encode raw values to codes, identically for training and serving."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import MOST_NAMED, InvalidParameter, SchemaError, UnknownColumn, columns_setting
from learners.kernels.arrays import Codes, Floats, freeze_arrays, read_only_array
from learners.schema.discretise_kernels import interval_codes
from learners.schema.encoding.batches import BatchEncoder, column_with_sound_indices
from learners.schema.encoding.json_records import json_number_reader, json_value_encoder
from learners.schema.nominal_forms import (
    dictionary_encoded_column,
    dictionary_row_indices,
    nominal_forms,
    scalar_message_text,
)
from learners.schema.schema import Attribute, Chunk, Schema
from learners.schema.times_and_durations import (
    TICKS,
    canonical_time_column,
    clock_kind_and_ticks,
    is_date_or_timestamp,
    seconds_since_1970,
    time_kind_and_ticks,
)

ValueTypes = {str: pa.string(), bool: pa.bool_(), int: pa.int64()}


def attribute_numbers(column: pa.Array, attribute: Attribute) -> Floats:
    """Convert a column of a numeric attribute to (n,) float64, as `numeric_column_as_floats` does by the type of the training.

    Text is read as in JSON.
    """
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not _is_text(kind):
        return numeric_column_as_floats(column, attribute.name, attribute.arrow_type)
    coded = column.dictionary_encode()
    texts = coded.dictionary.to_pylist()
    numbers = np.array([*map(json_number_reader(attribute, texts), texts), np.nan])
    places = pc.fill_null(coded.indices, len(texts)).to_numpy(zero_copy_only=False)
    return read_only_array(numbers[places])


def numeric_column_as_floats(column: pa.Array, name: str, arrow_type: str = "") -> Floats:
    """Convert a column to (n,) float64: null becomes NaN, times become seconds since 1970.

    `arrow_type`: type of the column in training, whose unit is used for times of day and durations; by default
    the column's own. Raises SchemaError if the column is not numeric.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    try:
        if arrow_type and pa.types.is_temporal(kind) and not _are_times(str(kind), arrow_type):
            raise SchemaError(
                f"Column {name!r} has type {kind}, but had {arrow_type} in training. Make the types agree.", name
            )
        if pa.types.is_date32(kind):
            return _read_only(pc.multiply(pc.cast(pc.cast(column, pa.int32()), pa.float64()), 86_400.0))
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return _read_only(_moments(column))
        if pa.types.is_time(kind) or pa.types.is_duration(kind):
            column = _counted(
                pc.cast(column, pa.int64() if kind.bit_width == 64 else pa.int32()), str(kind), arrow_type
            )
        elif not (
            pa.types.is_null(kind)
            or pa.types.is_boolean(kind)
            or pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
        ):
            raise SchemaError(f"Column {name!r} has type {kind}, but the model needs numbers.", name)
        numbers = _read_only(pc.cast(column, pa.float64(), safe=False))
    except pa.ArrowException as error:
        raise SchemaError(f"Column {name!r} cannot be read as numbers ({error}).", name) from error
    if is_date_or_timestamp(arrow_type):
        seconds_since_1970(name, float(np.abs(numbers[np.isfinite(numbers)]).max(initial=0.0)))
    return numbers


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def _moments(column: pa.Array) -> pa.Array:
    """Convert timestamps to seconds since 1970, to the microsecond."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        column, kind = pc.cast(column, pa.timestamp("us", tz=kind.tz), safe=False), pa.timestamp("us")
    counts = pc.cast(pc.cast(column, pa.int64()), pa.float64(), safe=False)
    # As numbers, since microseconds of far moments would be beyond 64 bits.
    ticks = TICKS["ms" if pa.types.is_date(kind) else kind.unit]
    return pc.divide(pc.multiply(counts, TICKS["us"] / ticks), 1e6)


def _are_times(own: str, other: str) -> bool:
    """Return whether times of two types are comparable: timestamps, times of day, durations."""
    of, to = clock_kind_and_ticks(own), clock_kind_and_ticks(other)
    if of is None or to is None:
        return of is to and is_date_or_timestamp(other)
    return of[0] == to[0]


def _counted(counts: pa.Array, own: str, other: str) -> pa.Array:
    """Convert counts of one time unit to another."""
    of, to = clock_kind_and_ticks(own), clock_kind_and_ticks(other)
    if of is None or to is None or of == to:
        return counts
    counts = pc.cast(counts, pa.float64(), safe=False)
    return pc.multiply(counts, to[1] / of[1]) if to[1] > of[1] else pc.divide(counts, of[1] / to[1])


def _read_only(column: pa.Array) -> Floats:
    """Return a read-only array, like Arrow's memory; numba treats a writable array as another type."""
    return read_only_array(column.to_numpy(zero_copy_only=False))


class _NominalEncoder:
    """Encoder of one nominal column, batch by batch."""

    def __init__(self, attribute: Attribute, dtype: type[np.uint8] | type[np.uint16]) -> None:
        self.attribute, self.dtype = attribute, dtype
        self.value_type = ValueTypes[type(attribute.values[0])] if attribute.values else pa.string()
        self.domain = pa.array(attribute.values, self.value_type)

    def __call__(self, column: pa.Array, codes: Codes) -> None:
        attribute, kind = self.attribute, column.type
        if pa.types.is_null(kind):
            codes[:] = attribute.missing_code
            return
        column = dictionary_encoded_column(column, attribute.name)
        kind = column.dictionary.type
        values, is_other = nominal_forms(column.dictionary, attribute.name)
        if not len(values):
            codes[:] = attribute.missing_code
            return
        index, is_null = dictionary_row_indices(column, values)
        of_values = self._codes_of(values, kind)
        of_values[is_other] = attribute.unseen_code  # such as a fraction, which no nominal attribute has
        codes[:] = of_values[index]
        codes[is_null] = attribute.missing_code

    def byte_table(self, kind: pa.DataType) -> tuple[Codes, int]:
        """Return the code of each byte of an int8 or uint8 column, and the largest code if each value is its own code,
        else -1.

        For booleans, the codes of False and True come first.
        """
        if pa.types.is_boolean(kind):
            return np.resize(self._codes_of(pa.array([False, True]), kind), 256), -1
        every = pa.array(np.arange(256, dtype=np.uint8).view(np.uint8 if kind == pa.uint8() else np.int8))
        codes = self._codes_of(pc.cast(every, pa.int64()), kind)
        largest = self.attribute.n_values
        is_own = largest <= 255 and np.array_equal(codes, np.minimum(np.arange(256), largest))
        return codes, largest if is_own else -1

    def _codes_of(self, values: pa.Array, kind: pa.DataType) -> Codes:
        """Return the code of each distinct value of a column."""
        attribute, domain = self.attribute, self.domain
        if _is_text(kind) and (attribute.reading is not None or (attribute.values and self.value_type != pa.string())):
            texts = values.to_pylist()
            return np.fromiter(map(json_value_encoder(attribute, texts), texts), self.dtype, len(texts))
        if attribute.values and values.type != self.value_type:
            if {values.type, self.value_type} != {pa.bool_(), pa.int64()}:
                raise SchemaError(
                    f"Column {attribute.name!r} has type {kind} here, but had {self.value_type} in training. Make the types agree.",
                    attribute.name,
                )
            values, domain = (pc.cast(side, pa.int64()) for side in (values, domain))
        if pa.types.is_string(values.type) and pa.types.is_string(domain.type):
            if time_kind_and_ticks(attribute.arrow_type) and not pa.types.is_temporal(kind):
                values = canonical_time_column(values, attribute.arrow_type)
            elif pa.types.is_temporal(kind) and not time_kind_and_ticks(
                attribute.arrow_type
            ):  # such as the classes of a model of earlier
                domain = canonical_time_column(domain, str(kind))
        places = pc.index_in(values, value_set=domain).fill_null(-1).to_numpy(zero_copy_only=False)
        codes = np.where(places >= 0, places + attribute.first_code, attribute.unseen_code)
        return np.ascontiguousarray(codes.astype(self.dtype))


class _Columns:
    """Encoder of single columns of any type, by pyarrow calls."""

    def __init__(self, attributes: tuple[Attribute, ...], dtype: type[np.uint8] | type[np.uint16]) -> None:
        self.attributes, self.dtype = attributes, dtype
        self.nominal = {i: _NominalEncoder(a, dtype) for i, a in enumerate(attributes) if a.kind == "nominal"}
        self._byte_tables: dict[tuple[object, ...], tuple[Codes, int]] = {}

    def __call__(self, i: int, column: pa.Array, codes: Codes) -> None:
        attribute = self.attributes[i]
        if attribute.kind == "nominal":
            self.nominal[i](column, codes)
            return
        values, cuts = (
            attribute_numbers(column, attribute),
            np.array(attribute.cuts, np.float64),
        )
        if attribute.cycle is not None:
            values = attribute.cycle.phases(values)
        freeze_arrays(values)  # as most are: converted ones would be another type
        interval_codes(values, cuts, attribute.first_code, attribute.missing_code, codes)

    def byte_table(self, i: int, kind: pa.DataType) -> tuple[Codes, int]:
        """Return the table of `_NominalEncoder.byte_table`, cached because thousands of attributes may share their
        values.
        """
        own, encoder = self.attributes[i], self.nominal[i]
        key = (encoder.value_type, own.values, own.has_missing, own.n_folded > 0, kind)
        return self._byte_tables.get(key) or self._byte_tables.setdefault(key, encoder.byte_table(kind))


def batch_encoder(attributes: tuple[Attribute, ...], dtype: type[np.uint8] | type[np.uint16]) -> BatchEncoder:
    """Create an encoder of attributes; threads may share it."""
    columns = _Columns(attributes, dtype)
    return BatchEncoder(attributes, dtype, columns, columns.byte_table)


class Encoder:
    """Encoder of batches by one schema; threads may share one."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.inputs = batch_encoder(schema.attributes, schema.code_dtype)
        values = tuple(schema.class_values()) if schema.target is not None else ()
        # The code after the last stands for classes that training never saw. One type for all needs one form of the kernels.
        self.target = batch_encoder((Attribute(schema.target or "", "nominal", values),), schema.code_dtype)

    def numbers(self, batch: pa.RecordBatch) -> Floats | None:
        """Return the continuous numbers of a batch, or None if the schema has none.

        Raises SchemaError if the type of a column does not fit.
        """
        if not self.schema.continuous:
            return None
        own = np.full((len(self.schema.continuous), batch.num_rows), np.nan)
        position = {name: j for j, name in enumerate(batch.schema.names)}
        for row, i in enumerate(self.schema.continuous):
            attribute = self.schema.attributes[i]
            if attribute.name in position:
                column = column_with_sound_indices(batch, position[attribute.name])
                own[row] = attribute_numbers(column, attribute)
        return own

    def classes(self, batch: pa.RecordBatch) -> Codes:
        """Return the class codes (n_rows,), of the same type as the attribute codes.

        Raises SchemaError if a row has no class, or an unknown one.
        """
        if self.schema.target is None:
            return np.zeros(batch.num_rows, self.schema.code_dtype)
        y = self.target.codes(batch)[0]
        if y.max(initial=0) >= self.schema.n_classes:
            row = int(np.argmax(y >= self.schema.n_classes))
            value = batch.column(batch.schema.names.index(self.schema.target))[row]
            known = ", ".join(map(repr, self.schema.class_values()[:MOST_NAMED]))
            known += ", …" if self.schema.n_classes > MOST_NAMED else ""
            what = (
                f"{scalar_message_text(value)}, which the model does not know ({known})" if value.is_valid else "null"
            )
            option = columns_setting({self.schema.target: {"null_class": "drop"}})
            remedy = "train with them" if value.is_valid else f"leave them out: {option}"
            raise SchemaError(
                f"The class {self.schema.target!r} of a row is {what}. Remove such rows, or {remedy}.",
                self.schema.target,
            )
        return y

    def training_chunk(self, batch: pa.RecordBatch, where: str) -> Chunk:
        """Encode a batch whose values are all in their domains, as counting requires.

        Raises SchemaError if a value is not in its domain, naming column and file; UnknownColumn if a column is absent.
        """
        if self.inputs.plan_of(batch.schema).absent or self.target.plan_of(batch.schema).absent:
            known = set(batch.schema.names)
            for name in self.schema.columns:
                if name not in known:
                    raise UnknownColumn(name, batch.schema.names)
        try:
            y = self.classes(batch)
            x, most = self.inputs.codes_and_most(batch)
        except SchemaError as error:
            raise SchemaError(f"{where}: {error}", error.column, error.columns) from error
        too_large = most >= self.schema.domain_sizes
        if too_large.any():
            i = int(np.argmax(too_large))
            name = self.schema.attributes[i].name
            row = int(np.argmax(x[i] >= self.schema.domain_sizes[i]))
            value = scalar_message_text(batch.column(batch.schema.names.index(name))[row])
            raise SchemaError(
                f"{where}: column {name!r} holds {value}, which the given schema does not have. Infer the schema again.",
                name,
            )
        return Chunk(x, y, self.numbers(batch))


def cached_schema_encoder(schema: Schema) -> Encoder:
    """Return the encoder of a schema, cached in it, because building its tables takes longer than encoding a request."""
    encoder: Encoder | None = vars(schema).get("_encoder")
    if encoder is None:
        encoder = vars(schema)["_encoder"] = Encoder(schema)
    return encoder


def encode(
    batch: pa.RecordBatch | pa.Table, schema: Schema, is_trusted: bool = True, *, with_class: bool = True
) -> Chunk:
    """Encode rows for a model; unseen values and absent columns get the unseen code.

    Parameters
    ----------
    batch : RecordBatch or Table
        Other columns are ignored; without the target the chunk has no classes.
    is_trusted : bool
        False if the buffers come from outside: they are then checked as `batch.validate(full=True)` does, at a
        fraction of its price.
    with_class : bool
        False to overlook the target.

    Raises
    ------
    SchemaError
        If the type of a column does not fit, or a class is unknown.
    InvalidBuffers
        If untrusted buffers are invalid.
    InvalidParameter
        If rows or schema are nothing of the kind.
    """
    if not isinstance(batch, pa.RecordBatch | pa.Table) or not isinstance(schema, Schema):
        kinds = f"{type(batch).__name__}, {type(schema).__name__}"
        raise InvalidParameter("batch, schema", kinds, "a RecordBatch or a Table, and a Schema")
    encoder = cached_schema_encoder(schema)
    with_class = with_class and schema.target is not None and schema.target in batch.schema.names
    batches = batch.to_batches() if isinstance(batch, pa.Table) else [batch]
    if len(batches) != 1:
        # Text of more than 2 GB has no single batch.
        parts = [encode(part, schema, is_trusted, with_class=with_class) for part in batches]
        x = [part.x for part in parts] or [np.empty((schema.n_attributes, 0), schema.code_dtype)]
        y = [part.y for part in parts if part.y is not None] or [np.empty(0, schema.code_dtype)]
        own = [part.numbers for part in parts if part.numbers is not None]
        return Chunk(
            np.concatenate(x, axis=1),
            np.concatenate(y) if with_class else None,
            np.concatenate(own, axis=1) if own else None,
        )
    codes = encoder.inputs.codes(batches[0], is_trusted)  # first, as it checks every column
    return Chunk(codes, encoder.classes(batches[0]) if with_class else None, encoder.numbers(batches[0]))


def class_codes(batch: pa.RecordBatch, schema: Schema) -> Codes:
    """Return the class codes (n_rows,); null and unseen classes get `n_classes` or more.

    Raises SchemaError if the type of the class column does not fit.
    """
    return np.asarray(cached_schema_encoder(schema).target.codes(batch)[0])


def nonnull_class_codes(batch: pa.RecordBatch, schema: Schema) -> Codes:
    """Return the class codes (n_rows,); unseen classes get `n_classes`.

    Raises SchemaError if a row has no class, or its type does not fit.
    """
    column = batch.column(batch.schema.names.index(schema.target))
    if pc.any(pc.is_null(column, nan_is_null=True)).as_py():
        cached_schema_encoder(schema).classes(batch)  # says which
    return class_codes(batch, schema)
