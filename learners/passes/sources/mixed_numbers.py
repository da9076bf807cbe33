"""Numeric columns whose types differ between the files of a table."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from learners.passes.sources.source_files import arrow_type_family

NUMERIC = ("bool", "small integer", "number")  # families of numbers: where all files agree, the first two are nominal


def mixed_number_columns(schemas: Collection[pa.Schema], common: pa.Schema) -> frozenset[str]:
    """Return columns that are numbers in the common schema, but small integers or booleans in some files."""
    numbers = {field.name for field in common if arrow_type_family(field.type) == "number"}
    return frozenset(
        field.name
        for schema in schemas
        for field in schema
        if field.name in numbers and arrow_type_family(field.type) in NUMERIC[:-1]
    )


def with_common_numbers(batch: pa.RecordBatch, names: Collection[str], common: pa.Schema) -> pa.RecordBatch:
    """Cast a batch's small integers and booleans to the numeric types of the common schema."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if name in names and arrow_type_family(column.type) in NUMERIC[:-1]:
            plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            columns.append(plain.cast(pa.int64()).cast(common.field(name).type))
        else:
            columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
