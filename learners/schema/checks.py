"""Validate schemas and columns from untrusted sources before they are used to encode."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import get_args

from learners.errors import SchemaError
from learners.schema.schema import DISTRIBUTIONS, MAX_CLASSES, Attribute, Kind, Schema
from learners.schema.time_parts import CYCLES

CLASS_TYPES = ("string", "int64", "bool")
MAX_VALUES = 65_535  # codes are 16 bits wide, the one for unseen values included


def check_schema(schema: Schema) -> None:
    """Refuse a schema that training cannot produce: its codes could make kernels read out of bounds.

    `schema`: the output of `from_json`, which does not check types. Raises SchemaError naming the column.
    """
    try:
        json.dumps(asdict(schema), ensure_ascii=False).encode()
    except ValueError as error:
        raise SchemaError(f"The schema contains something that is not text: {error}.") from error
    for attribute in schema.attributes:
        fault = _fault_of(attribute)
        if fault is not None:
            raise SchemaError(f"Column {attribute.name!r} of the schema {fault}.", str(attribute.name))
    if not _are(str, [text for entry in schema.left_out for text in (entry.name, entry.reason)]):
        raise SchemaError("Columns left out of the schema lack names or reasons.")
    if not _are(bool, [entry.goes_on for entry in schema.left_out]):
        raise SchemaError("The flag of growing columns that the schema leaves out must be true or false.")
    if len(set(schema.columns)) < len(schema.columns):
        raise SchemaError("Two columns of the schema have the same name.")
    if not 1 <= len(schema.classes) <= MAX_CLASSES or not _are(str, schema.classes):
        raise SchemaError(f"The schema needs 1 to {MAX_CLASSES} classes, each of them text.")
    if schema.class_type not in CLASS_TYPES:
        raise SchemaError(f"The classes of the schema are {schema.class_type!r}, which is not one of {CLASS_TYPES}.")
    if (schema.target is None and len(schema.classes) > 1) or not isinstance(schema.target, str | None):
        raise SchemaError(f"The target of the schema, {schema.target!r}, does not fit its classes.")
    schema.class_values()  # a ValueError where whole numbers are none


def _fault_of(attribute: Attribute) -> str | None:
    """Return the fault of one column, or None."""
    if not _are(str, (attribute.name, attribute.arrow_type)) or attribute.kind not in get_args(Kind):
        return "lacks a name, kind or type"
    if type(attribute.has_missing) is not bool or type(attribute.n_folded) is not int or attribute.n_folded < 0:
        return "lacks the fields on missing and folded values"
    types = {type(value) for value in attribute.values}
    if types not in ({str}, {int}, {bool}, set()) or len(set(attribute.values)) < len(attribute.values):
        return "has values that are not different texts, or whole numbers, or booleans"
    if not all(type(cut) in (int, float) and math.isfinite(cut) for cut in attribute.cuts):
        return "has cuts that are not numbers"
    if any(low >= high for low, high in zip(attribute.cuts, attribute.cuts[1:], strict=False)):
        return "has cuts that do not ascend"
    if not all(type(number) in (int, float) and math.isfinite(number) for number in attribute.quantiles):
        return "has quantiles that are not numbers"
    if any(low > high for low, high in zip(attribute.quantiles, attribute.quantiles[1:], strict=False)):
        return "has quantiles that do not ascend"
    if not all(_ascends_within(positions, len(attribute.cuts)) for positions in attribute.groupings):
        return "has groupings that are not ascending positions of its cuts"
    if attribute.part is not None and not (
        attribute.part in CYCLES and attribute.is_time and attribute.cuts == CYCLES[attribute.part].cuts
    ):
        return f"has the part {attribute.part!r}, which it cannot have"
    if attribute.n_values > MAX_VALUES:
        return f"has {attribute.n_values} values, and at most {MAX_VALUES} can be coded"
    if attribute.distribution is not None and (
        attribute.distribution not in DISTRIBUTIONS or attribute.kind != "numeric"
    ):
        return f"has the distribution {attribute.distribution!r}, which it cannot have"
    return None


def _ascends_within(positions: Sequence[object], n_cuts: int) -> bool:
    """Return whether these are distinct valid positions in ascending order."""
    whole = [position for position in positions if type(position) is int and 0 <= position < n_cuts]
    return len(whole) == len(positions) and whole == sorted(set(whole))


def _are(kind: type, values: Collection[object]) -> bool:
    return all(isinstance(value, kind) for value in values)


def check_column_lengths(lengths: Mapping[str, int]) -> int:
    """Return the common length of the columns. Raises SchemaError naming a column whose length differs from the first."""
    first, n_rows = next(iter(lengths.items()), ("", 0))
    for name, length in lengths.items():
        if length != n_rows:
            raise SchemaError(f"Column {name!r} has {length} values, but {first!r} has {n_rows}.", name)
    return n_rows
