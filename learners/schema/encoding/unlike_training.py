"""Detect tables unlike the training table: all rows are later, or all values of a column are new."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from learners.errors import known_values_text
from learners.schema.encoding.encode import encode
from learners.schema.encoding.json_records import is_missing_mark, json_value_encoder, short_value_text
from learners.schema.encoding.later_times import LaterTimes
from learners.schema.schema import Attribute, Schema

FIRST_ROWS = 64  # which dismiss most columns at little cost


class NominalValues(NamedTuple):
    """The raw values of a nominal column: those with a code, None among them, and the function that encodes any other."""

    attribute: Attribute
    known: frozenset[object]
    code: Callable[[object], int]


ValueCodes = Mapping[str, NominalValues]


def nominal_value_codes(schema: Schema) -> ValueCodes:
    """Return the values of each column that `UnseenValues` tracks."""
    return {
        own.name: NominalValues(own, frozenset([None, *own.values]), json_value_encoder(own))
        for own in schema.attributes
        if _is_tracked(own)
    }


def has_unseen_value(record: Mapping[str, object], codes: ValueCodes) -> bool:
    """Return whether a row, whose types were checked, has a value that training never had; a set look-up for each column."""
    return any(
        (value := record.get(name)) not in known and code(value) == own.unseen_code
        for name, (own, known, code) in codes.items()
    )


def _is_tracked(attribute: Attribute) -> bool:
    """Return True if unseen values have their own code; after folding they share the code of rare values."""
    return attribute.kind == "nominal" and bool(attribute.values) and not attribute.n_folded


class UnseenValues:
    """Tracks the nominal columns in which no row so far has a value that training had.

    A column is dropped once a row has a known value, so mostly the first rows alone are inspected. Columns whose rare values
    were folded are not tracked.
    """

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.places = {own.name: i for i, own in enumerate(schema.attributes) if _is_tracked(own)}
        self.examples: dict[str, object] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Inspect more rows; nulls are ignored."""
        for part in (batch.slice(0, FIRST_ROWS), batch.slice(FIRST_ROWS)):
            names = [name for name in part.schema.names if name in self.places]
            if not names or not part.num_rows:
                return
            x = encode(part.select(names), self.schema, with_class=False).x
            for name in names:
                own, codes = self.schema.attributes[self.places[name]], x[self.places[name]]
                if ((codes >= own.first_code) & (codes < own.n_values)).any():
                    self._dismiss(name)
                elif name not in self.examples and len(values := part.column(name).drop_null()):
                    self.examples[name] = values[0].as_py()

    def add_values(self, values_of: Callable[[str], Iterable[object]], codes: ValueCodes) -> None:
        """Inspect more rows, given as raw Python values by the name of a column; absent columns have none.

        `codes` are `nominal_value_codes`.
        """
        for name in list(self.places):
            own, _, code = codes[name]
            for value in values_of(name):
                found = code(value)
                if own.first_code <= found < own.n_values:
                    self._dismiss(name)
                    break
                if found == own.unseen_code and not is_missing_mark(value):
                    self.examples.setdefault(name, value)

    def _dismiss(self, name: str) -> None:
        del self.places[name]
        self.examples.pop(name, None)

    def warnings_by_column(self) -> dict[str, str]:
        """Return a sentence for each column without a known value, by its name."""
        of = self.schema.attributes
        return {name: _unseen_words(of[self.places[name]], value) for name, value in self.examples.items()}


def _unseen_words(attribute: Attribute, value: object) -> str:
    known = known_values_text(str(value), [str(each) for each in attribute.values])
    return (
        f"Column {attribute.name!r} has only values that training never had, such as {short_value_text(value)} (known: {known}): they "
        "count as absent."
    )


class UnlikeTraining:
    """Inspects rows as `LaterTimes` and `UnseenValues` do."""

    def __init__(self, schema: Schema) -> None:
        self.later, self.unseen = LaterTimes(schema), UnseenValues(schema)

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, inspecting each."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Inspect more rows."""
        self.later.add(batch)
        self.unseen.add(batch)

    def add_values(self, values_of: Callable[[str], Iterable[object]], codes: ValueCodes) -> None:
        """Inspect more rows, given as `UnseenValues.add_values` has them."""
        self.later.add_values(values_of)
        self.unseen.add_values(values_of, codes)

    def warnings(self) -> list[str]:
        """Return one sentence for each way in which all inspected rows differ from the training rows."""
        return [*self.later.warnings(), *self.unseen.warnings_by_column().values()]
