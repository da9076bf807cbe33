"""How many classes a target may have, and the classes of rows that a model was not trained on."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import SchemaError
from learners.kernels.arrays import Codes
from learners.schema.encoding.encode import class_codes, encoder_of
from learners.schema.schema import FEW_CLASSES, MAX_CLASSES, Schema

MANY_TAKEN_BY = "learners nb, tan and kdb"


def check_classes(target: str, n_classes: int, most: int) -> None:
    """Refuse a target of more classes than a learner takes.

    Parameters
    ----------
    target : str
    n_classes : int
        Seen so far.
    most : int
        `FEW_CLASSES` or `MAX_CLASSES`.

    Raises
    ------
    SchemaError
    """
    if n_classes > most:
        others = "" if most >= MAX_CLASSES else f" Up to {MAX_CLASSES:,} classes take {MANY_TAKEN_BY}."
        raise SchemaError(
            f"The target {target!r} has more than {most:,} different values. Name a class column, or group the values.{others}",
            target,
        )


def check_rows_of_classes(target: str | None, n_classes: int, most: int, n_rows: int) -> None:
    """As `check_classes`; and refuse what is most likely an identifier or a measurement: many classes, and few rows of each.

    Raises
    ------
    SchemaError
    """
    if target is None:
        return
    check_classes(target, n_classes, most)
    if n_classes > FEW_CLASSES and n_rows < 2 * n_classes:
        raise SchemaError(
            f"The target {target!r} has {n_classes:,} different values in {n_rows:,} rows, less than two rows for each. "
            "Name a class column, or group the values.",
            target,
        )


def known_or_not(batch: pa.RecordBatch, schema: Schema) -> Codes:
    """Codes (n_rows,) of the class, `n_classes` where it was never seen in training.

    Raises
    ------
    SchemaError
        If a row has no class, or its type does not fit.
    """
    column = batch.column(batch.schema.names.index(schema.target))
    if pc.any(pc.is_null(column, nan_is_null=True)).as_py():
        encoder_of(schema).classes(batch)  # says which
    return class_codes(batch, schema)
