"""How many classes a target may have, and the classes of rows that a model was not trained on."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import SchemaError
from learners.kernels.arrays import Codes
from learners.schema.encoding.encode import class_codes, encoder_of
from learners.schema.encoding.nominal_values import dictionary_of, nominal_forms, plain_values, rows_of
from learners.schema.schema import FEW_CLASSES, MAX_CLASSES, Schema

MANY_TAKEN_BY = "learners nb, tan and kdb"


def check_classes(target: str, n_classes: int, most: int, are_numbers: bool = False) -> None:
    """Refuse a target of more classes than a learner takes.

    `n_classes`: seen so far.
    `most`: `FEW_CLASSES` or `MAX_CLASSES`.
    `are_numbers`: whether the values are whole numbers, so that a user may want to predict a measurement.
    Raises SchemaError.
    """
    if n_classes > most:
        others = "" if most >= MAX_CLASSES else f" Up to {MAX_CLASSES:,} classes take {MANY_TAKEN_BY}."
        raise SchemaError(
            f"The target {target!r} has more than {most:,} different values. {_remedy(are_numbers)}{others}", target
        )


def _remedy(are_numbers: bool) -> str:
    if are_numbers:
        return (
            "To predict numbers is regression, and fewpass classifies: cut them into classes, or name a class column."
        )
    return "Name a class column, or group the values."


def check_rows_of_classes(
    target: str | None, n_classes: int, most: int, n_rows: int, are_numbers: bool = False
) -> None:
    """As `check_classes`; and refuse what is most likely an identifier or a measurement: many classes, and few rows of each.

    Raises SchemaError.
    """
    if target is None:
        return
    check_classes(target, n_classes, most, are_numbers)
    if n_classes > FEW_CLASSES and n_rows < 2 * n_classes:
        raise SchemaError(
            f"The target {target!r} has {n_classes:,} different values in {n_rows:,} rows, less than two rows for each. "
            + _remedy(are_numbers),
            target,
        )


def distinct_classes(column: pa.Array, target: str) -> tuple[pa.Array, Codes]:
    """Distinct values of a target, and the index of each row's value.

    Raises SchemaError if numbers have fractions, or if a row has no class.
    """
    column = dictionary_of(column, target)
    values, is_other = nominal_forms(column.dictionary, target)
    if is_other.any() and (pa.types.is_floating(column.dictionary.type) or pa.types.is_decimal(column.dictionary.type)):
        number = column.dictionary[int(np.argmax(is_other))].as_py()
        raise SchemaError(
            f"The target {target!r} holds numbers such as {number}. To predict numbers is regression, and fewpass classifies: cut them "
            "into classes (pandas.cut, SQL's CASE), or write the few that there are as text.",
            target,
        )
    index, is_null = rows_of(column, plain_values(column.dictionary, target) if is_other.any() else values)
    if is_null.any():
        raise SchemaError(
            f"The target {target!r} is null in {int(is_null.sum())} of {len(column)} rows read together. Remove "
            f'such rows, fill in their class, or say in columns what they are: {{"{target}": {{"null_class": "drop"}}}} leaves them '
            'out, {"null_class": "unknown"} makes them a class.',
            target,
        )
    return values, index


def known_or_not(batch: pa.RecordBatch, schema: Schema) -> Codes:
    """Codes (n_rows,) of the class, `n_classes` where it was never seen in training.

    Raises SchemaError if a row has no class, or its type does not fit.
    """
    column = batch.column(batch.schema.names.index(schema.target))
    if pc.any(pc.is_null(column, nan_is_null=True)).as_py():
        encoder_of(schema).classes(batch)  # says which
    return class_codes(batch, schema)
