"""Two statistics in one pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, TypeVar, cast

import pyarrow as pa

from learners.passes.statistic import Statistic
from learners.schema import Chunk

S = TypeVar("S", bound=Statistic)
A = TypeVar("A", bound=Statistic)
B = TypeVar("B", bound=Statistic)


class Together(Statistic, Generic[A, B]):
    """A pair of statistics of the same schema as one statistic."""

    def __init__(self, first: A, second: B) -> None:
        self.first, self.second, self.schema = first, second, first.schema

    @property
    def stage(self) -> str:
        """What the pass does, in words."""
        return self.first.stage

    @property
    def can_subtract(self) -> bool:
        """Whether both can."""
        return self.first.can_subtract and self.second.can_subtract

    @property
    def spec(self) -> Mapping[str, object]:
        """What is collected."""
        return {"statistic": "together", "first": self.first.spec, "second": self.second.spec}

    @property
    def columns(self) -> Sequence[str] | None:
        """Columns to read."""
        return self.first.columns

    def empty(self) -> Together[A, B]:
        """No rows."""
        return Together(self.first.empty(), self.second.empty())

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk to both."""
        self.first.update(rows)
        self.second.update(rows)

    def check(self) -> None:
        """Check the counts of both. Raises InvalidCounts."""
        self.first.check()
        self.second.check()

    def _combine(self, other: Together[A, B], sign: int) -> None:
        if sign > 0:
            self.first.merge(other.first)
            self.second.merge(other.second)
        else:
            self.first.subtract(other.first)
            self.second.subtract(other.second)

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


def leaves_of(statistic: Statistic) -> list[Statistic]:
    """The statistics of a pair, or of pairs of pairs, in their order: each may be stored and found on its own."""
    if not isinstance(statistic, Together):
        return [statistic]
    return [*leaves_of(statistic.first), *leaves_of(statistic.second)]


def with_leaves(statistic: S, leaves: Iterable[Statistic]) -> S:
    """A statistic of the same form that consists of these in place of `leaves_of(statistic)`."""
    left = iter(leaves)

    def built(part: Statistic) -> Statistic:
        if not isinstance(part, Together):
            return next(left)
        first, second = built(part.first), built(part.second)
        return Together[Statistic, Statistic](first, second)

    return cast(S, built(statistic))


def _to_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())
