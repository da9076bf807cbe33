"""Two statistics in one pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

from learners.errors import StatisticMismatch
from learners.schema import Chunk, Schema

A = TypeVar("A", bound=Any)
B = TypeVar("B", bound=Any)


class Together(Generic[A, B]):
    """A pair of statistics of the same schema as one statistic.

    Parameters
    ----------
    first, second : Statistic
    """

    def __init__(self, first: A, second: B) -> None:
        self.first, self.second = first, second
        self.schema: Schema = first.schema
        self.stage: str = first.stage

    @property
    def spec(self) -> dict[str, Any]:
        """What is collected."""
        return {"statistic": "together", "first": self.first.spec, "second": self.second.spec}

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        columns: list[str] = self.first.columns
        return columns

    def empty(self) -> Together[A, B]:
        """No rows."""
        return Together(self.first.empty(), self.second.empty())

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk to both."""
        self.first.update(rows)
        self.second.update(rows)

    def merge(self, other: Together[A, B]) -> None:
        """Add other rows to both; where one part is of another specification, nothing is added."""
        if other.schema != self.schema or other.spec != self.spec:
            raise StatisticMismatch("Statistics of different specifications or schemas cannot be combined.")
        self.first.merge(other.first)
        self.second.merge(other.second)

    def leaves(self) -> list[Any]:
        """The statistics themselves, of which each may be stored and found on its own."""
        return [
            leaf
            for part in (self.first, self.second)
            for leaf in (part.leaves() if isinstance(part, Together) else [part])
        ]

    def holding(self, leaves: Sequence[Any]) -> Together[A, B]:
        """The same pair with these in place of `leaves()`."""
        n = len(self.first.leaves()) if isinstance(self.first, Together) else 1
        first: Any
        second: Any
        first, second = (
            part.holding(own) if isinstance(part, Together) else own[0]
            for part, own in ((self.first, leaves[:n]), (self.second, leaves[n:]))
        )
        return Together(first, second)

    def to_arrow(self) -> pa.Table:
        """One row: each part as an Arrow stream."""
        return pa.table({"first": [_to_bytes(self.first.to_arrow())], "second": [_to_bytes(self.second.to_arrow())]})

    def from_arrow(self, table: pa.Table) -> Together[A, B]:
        """Read what `to_arrow` wrote."""
        first, second = (pa.ipc.open_stream(table[name][0].as_py()).read_all() for name in ("first", "second"))
        return Together(self.first.from_arrow(first), self.second.from_arrow(second))

    def __eq__(self, other: object) -> bool:
        """Whether both parts are equal."""
        if not isinstance(other, Together):
            return NotImplemented
        return bool(self.first == other.first and self.second == other.second)


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
