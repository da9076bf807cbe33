"""Detect tables whose rows are all later than the training rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pyarrow as pa

from learners.errors import SchemaError
from learners.schema.encoding.encode import attribute_numbers
from learners.schema.encoding.json_records import json_number_reader
from learners.schema.schema import Attribute, Schema
from learners.schema.times_and_durations import DAY, TICKS


class LaterTimes:
    """Tracks the time columns in which every row so far is later than training.

    A column is dropped once a row has an earlier value, so if rows are not later, only one batch is inspected.
    """

    def __init__(self, schema: Schema) -> None:
        self.attributes = {own.name: own for own in schema.attributes if own.is_time and own.quantiles}
        self.firsts: dict[str, float] = {}

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches, inspecting each."""
        for batch in batches:
            if self.attributes:
                self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Inspect more rows; rows without a time are ignored."""
        for name, attribute in list(self.attributes.items()):
            if name not in batch.schema.names:
                continue
            column = batch.column(batch.schema.names.index(name))
            if (
                _first(column) <= attribute.quantiles[-1]
            ):  # mostly, and in a tenth of the time of all rows of a small table
                self._dismiss(name)
                continue
            try:
                numbers = attribute_numbers(column, attribute)
            except SchemaError:  # encoding the rows says so
                self._dismiss(name)
                continue
            least = float(np.fmin.reduce(numbers, initial=np.inf))
            if least <= attribute.quantiles[-1]:
                self._dismiss(name)
            elif least < np.inf:
                self.firsts[name] = min(least, self.firsts.get(name, np.inf))

    def add_values(self, values_of: Callable[[str], Iterable[object]]) -> None:
        """Inspect more rows, given as raw Python values by the name of a column; absent columns have none."""
        for name, attribute in list(self.attributes.items()):
            read, least = json_number_reader(attribute), math.inf
            try:
                for value in values_of(name):
                    number = read(value)
                    if number <= attribute.quantiles[-1]:
                        least = -math.inf
                        break
                    least = min(least, number)  # which keeps `least` if the number is NaN
            except SchemaError:  # encoding the rows says so, if the model reads the column
                least = -math.inf
            if least < 0 and math.isinf(least):
                self._dismiss(name)
            elif least < math.inf:
                self.firsts[name] = min(least, self.firsts.get(name, math.inf))

    def _dismiss(self, name: str) -> None:
        del self.attributes[name]
        self.firsts.pop(name, None)

    def warnings(self) -> list[str]:
        """Return one sentence if all inspected rows are later in some column, else an empty list."""
        spans = [_span(self.attributes[name], first) for name, first in self.firsts.items()]
        if not spans:
            return []
        return [
            f"All rows are later than those the model learned from: {'; '.join(spans)}. Evaluate the model on rows of that time, or train it with newer rows."
        ]


def _first(column: pa.Array) -> float:
    """Return the first row's time in seconds since 1970; infinite if it is null or of another type."""
    kind = column.type
    ticks = TICKS[kind.unit] if pa.types.is_timestamp(kind) else 1 / DAY if pa.types.is_date32(kind) else None
    value = column[0].value if ticks is not None and len(column) else None
    return math.inf if ticks is None or value is None else float(value / ticks)


def _span(attribute: Attribute, first: float) -> str:
    end, start = attribute.quantiles[-1], first
    if math.floor(end) < math.floor(start):  # whole seconds, as a coarse histogram knows the last time no better
        end, start = math.floor(end), math.floor(start)
    words = map(attribute.number_in_words, (end, start))
    return "{!r} ended at {} in training and begins at {} here".format(attribute.name, *words)
