"""Columns of a JSON request to codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from learners.schema.chunk import Chunk
from learners.schema.encoding import json_kernels as kernels
from learners.schema.encoding.records import encode_columns
from learners.schema.encoding.string_tables import joined, word_table
from learners.schema.schema import Attribute, Schema

Read = Callable[[Buffer], Sequence[object]]
PADDING = b"\0" * 8  # the kernels read eight bytes at a time


class NotColumns(Exception):
    """The columns are not arrays of equal length, or there are too many rows: whoever asked must look at all of them."""


class JsonColumns:
    """Encodes the columns of request after request by one schema; threads may share one.

    Parameters
    ----------
    schema : Schema
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        tables, self.plan = [], {}
        for i, attribute in enumerate(schema.attributes):
            kind = kind_of(attribute)
            if kind in (kernels.TEXT, kernels.WHOLE):
                tables.append((i, word_table([str(value) for value in attribute.values], int(attribute.has_missing))))
            if kind is not None:
                codes = (attribute.missing_code, attribute.unseen_code, int(attribute.has_missing))
                self.plan[attribute.name] = (i, kind, *codes)
        self.words, first_slots, masks = joined([table for _, table in tables])
        self.cuts = np.concatenate([np.empty(0), *(np.array(a.cuts, np.float64) for a in schema.attributes)])
        ends = np.cumsum([len(attribute.cuts) for attribute in schema.attributes])
        self.places = {
            attribute.name: (int(end) - len(attribute.cuts), len(attribute.cuts))
            for attribute, end in zip(schema.attributes, ends, strict=True)
        }
        for (i, _), slot, mask in zip(tables, first_slots.tolist(), masks.tolist(), strict=False):
            self.places[schema.attributes[i].name] = (slot, mask)

    def encode(self, columns: Mapping[str, Buffer], read: Read, max_rows: int) -> Chunk:
        """Codes of the rows of some columns; absent ones get the unseen code.

        Parameters
        ----------
        columns : mapping from str to bytes-like
            The JSON text of each column, which is well-formed.
        read : callable
            Makes a list of Python values of such a text, for what the kernel leaves over; it may raise.
        max_rows : int

        Raises
        ------
        NotColumns
            If a column is no array of scalars, if lengths differ, or if there are too many rows.
        SchemaError
            If a value has the wrong type, naming row and column.
        """
        known = [name for name in columns if name in self.plan]
        if not known or self.schema.continuous:
            raise NotColumns
        parts = [columns[name] for name in known]
        text = b"".join([*parts, PADDING])
        begins = np.cumsum([0, *(memoryview(part).nbytes for part in parts)])[:-1]
        plan = np.array([(*self.plan[name], *self.places[name]) for name in known], np.int64).T
        arranged = kernels.Columns(begins, *np.ascontiguousarray(plan))
        address = np.uint64(pa.py_buffer(text).address)
        n_rows = kernels.n_values(address, 0)
        if not 0 < n_rows <= max_rows:
            raise NotColumns
        x = np.empty((self.schema.n_attributes, n_rows), self.schema.code_dtype)
        for i, attribute in enumerate(self.schema.attributes):
            if attribute.name not in columns:
                x[i] = attribute.n_values
        found = np.empty(len(known), np.uint8)
        kernels.json_codes(address, arranged, self.words, self.cuts, x, found)
        left = [known[j] for j in np.flatnonzero(found).tolist()]
        left += [name for name in columns if name not in self.plan]
        if left:
            values = {name: read(columns[name]) for name in left}
            if any(len(column) != n_rows for column in values.values()):
                raise NotColumns
            codes = encode_columns(values, self.schema).x
            for i, attribute in enumerate(self.schema.attributes):
                if attribute.name in values:
                    x[i] = codes[i]
        return Chunk(x, None)


def kind_of(attribute: Attribute) -> int | None:
    """What the values of an attribute are to the kernel; None if it cannot read them."""
    if attribute.kind == "numeric":
        return kernels.NUMBER
    kinds = set(map(type, attribute.values))
    return kernels.TEXT if kinds == {str} else kernels.WHOLE if kinds == {int} else None


def json_columns_of(schema: Schema) -> JsonColumns:
    """The encoder of a schema, kept with it."""
    kept: JsonColumns | None = vars(schema).get("_json_columns")
    if kept is None:
        kept = vars(schema)["_json_columns"] = JsonColumns(schema)
    return kept
