"""The types of columns that are only text: of CSV files, and of the folders of a partitioned table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from learners.passes.sources.file_sets import type_family
from learners.schema import Schema
from learners.schema.schema import ColumnOverride, Value

TRUE, FALSE = ["true", "True", "TRUE"], ["false", "False", "FALSE"]
# Of each chain a type reads all that those before it read.
CHAINS: tuple[tuple[pa.DataType, ...], ...] = (
    (pa.int64(), pa.float64()),
    (pa.bool_(),),
    (pa.date32(), pa.timestamp("us"), pa.timestamp("ns")),
    (pa.timestamp("us", "UTC"),),
    (pa.time32("s"),),
)
TIME = r"^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d)?$"


class TextType:
    """The narrowest type that reads all values of a column, found batch by batch.

    Whole numbers, numbers, true and false, dates, moments (with or without a zone), times of day; else text. A column without
    values is of type null.
    """

    def __init__(self) -> None:
        self._chain: tuple[pa.DataType, ...] | None = None
        self._place = 0

    @property
    def type(self) -> pa.DataType:
        """The type so far."""
        if self._chain is None:
            return pa.null()
        return self._chain[self._place] if self._place < len(self._chain) else pa.string()

    def see(self, values: pa.Array) -> None:
        """Look at more values, which are text or null."""
        if self._chain is not None and self._place >= len(self._chain):
            return
        values = pc.utf8_trim_whitespace(values.drop_null())
        if not len(values):
            return
        if self._chain is None:
            first = values[:1]
            readers = (chain for chain in CHAINS if any(reads(kind, first) for kind in chain))
            self._chain = next(readers, ())
        while self._place < len(self._chain) and not reads(self._chain[self._place], values):
            self._place += 1


def reads(kind: pa.DataType, values: pa.Array) -> bool:
    """Whether every one of some texts is a value of a type."""
    if pa.types.is_boolean(kind):
        return bool(pc.all(pc.is_in(values, pa.array(TRUE + FALSE))).as_py())
    if pa.types.is_time(kind):  # pyarrow reads them from CSV, and has no cast
        return bool(pc.all(pc.match_substring_regex(values, TIME)).as_py())
    try:
        values.cast(kind)
    except pa.ArrowException:
        return False
    return True


def type_of(values: Sequence[str | None]) -> pa.DataType:
    """The narrowest type that reads all of some texts."""
    found = TextType()
    found.see(pa.array(values, pa.string()))
    return found.type


def common_type(types: Sequence[pa.DataType]) -> pa.DataType | None:
    """The type that a column of several files of text must have; None if each may keep its own, as they are of one family."""
    families = {type_family(kind) for kind in types} - {"null"}
    return pa.string() if len(families) > 1 else None


def told_types(schema: Schema | None, overrides: Mapping[str, Any] | None = None) -> dict[str, pa.DataType]:
    """The columns that are text whatever they look like: as in training, or with an order of texts.

    So "01234" of a CSV file stays what it was in training, and does not become a number.

    Parameters
    ----------
    schema : Schema, optional
        Of a model, or given for training.
    overrides : mapping, optional
        Column name to what `ColumnOverride.of` reads.
    """
    text: list[str] = []
    if schema is not None:
        text += [
            attribute.name
            for attribute in schema.attributes
            if attribute.kind == "nominal" and _are_text(attribute.values)
        ]
        if schema.target is not None and schema.class_type == "string":
            text.append(schema.target)
    for name, entry in (overrides or {}).items():
        order = ColumnOverride.of(name, entry).order
        if order is not None and _are_text(order):
            text.append(name)
    return dict.fromkeys(text, pa.string())


def _are_text(values: Sequence[Value]) -> bool:
    return any(isinstance(value, str) for value in values)
