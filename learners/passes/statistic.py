"""What a pass collects, what some of it can do besides, and two statistics in one pass."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar, cast, runtime_checkable

import pyarrow as pa

from learners.errors import StatisticMismatch
from learners.schema import Chunk, Schema
from learners.schema.schema_growth import CodeMaps

Family = TypeVar("Family")


class Statistic(ABC):
    """A commutative monoid over rows: chunks may come in any order and partition, the result is the same bit for bit.

    `merge`, `subtract` and `update` change the statistic in place, so a pass allocates one per thread. What only some can do
    has a default here: that of one that cannot.
    """

    schema: Schema | None = None  # by which rows are encoded; None for a statistic of raw columns
    is_announced: bool = True  # whether its pass is among those that its learner says it will make

    @property
    @abstractmethod
    def stage(self) -> str:
        """What the pass does, in words, for progress reports."""

    @property
    @abstractmethod
    def spec(self) -> Mapping[str, object]:
        """What is collected, as JSON can hold it: with the schema and the files, the identity of the stored result."""

    @property
    def columns(self) -> Sequence[str] | None:
        """Columns to read; None for all."""
        return None if self.schema is None else self.schema.columns

    @property
    def can_subtract(self) -> bool:
        """Whether `subtract` works."""
        return True

    @abstractmethod
    def empty(self) -> Self:
        """The neutral element."""

    @abstractmethod
    def update(self, rows: Any) -> None:
        """Add rows: a chunk, or without a schema a record batch."""

    def merge(self, other: Self) -> None:
        """Add the rows of another; a `StatisticMismatch` changes nothing."""
        self._require_same(other)
        self._combine(other, 1)

    def subtract(self, other: Self) -> None:
        """Take away rows that were added before; a `StatisticMismatch` changes nothing."""
        self._require_same(other)
        if not self.can_subtract:
            raise StatisticMismatch(f"{type(self).__name__} cannot be subtracted.")
        self._combine(other, -1)

    def _require_same(self, other: Self) -> None:
        if other.schema != self.schema or other.spec != self.spec:
            raise StatisticMismatch(f"{type(self).__name__} of different schemas or specifications cannot be combined.")

    @abstractmethod
    def _combine(self, other: Self, sign: int) -> None:
        """Add (1) or take away (-1) the rows of another of the same specification."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """As a table."""

    @abstractmethod
    def from_arrow(self, table: pa.Table) -> Self:
        """Read what `to_arrow` wrote; asked of an empty statistic of the same specification."""

    def can_read(self, spec: Mapping[str, object]) -> bool:
        """Whether `from_stored` reads (families of) this statistic from what has that specification, which may hold more."""
        return spec == self.spec

    def from_stored(self, table: pa.Table, spec: Mapping[str, object]) -> Self:
        """The statistic from what `to_arrow` of one with that specification wrote."""
        del spec
        return self.from_arrow(table)

    def check(self) -> None:  # noqa: B027 — most count nothing that could be wrong
        """Refuse negative counts, and tables that do not sum to the rows of each class. Raises InvalidCounts."""

    def order_columns(self, names: Sequence[str]) -> None:  # noqa: B027 — most know no columns by name
        """Bring what is collected of columns into this order, that of the data whatever the order of the parts."""

    @property
    def is_sufficient(self) -> bool:
        """Whether enough is known for what is asked: where rows are forgotten, subtracting may leave too little."""
        return True

    def remainder(self) -> Self:
        """What must be counted again, of all rows, where `is_sufficient` is false: without rows; by default everything."""
        return self.empty()

    def completed(self, rest: Self) -> Self:
        """The statistic with its `remainder` counted."""
        return rest


class CodeStatistic(Statistic):
    """Base of statistics of codes: a refresh keeps one when the domains have grown, if it can be brought under their schema."""

    schema: Schema

    @abstractmethod
    def under(self, schema: Schema) -> Self:
        """The same specification without rows, by another schema."""

    def empty(self) -> Self:
        """No rows."""
        return self.under(self.schema)

    def recoded(self, schema: Schema, maps: CodeMaps) -> Self | None:
        """The same rows by another schema; None if the statistic does not determine it."""
        del schema, maps
        return None


@runtime_checkable
class Divisible(Protocol[Family]):
    """A statistic of several families, each of which may be stored, found and counted on its own."""

    @property
    def families(self) -> Sequence[Family]:
        """What it consists of; hashable."""

    def only(self, families: Sequence[Family]) -> Self:
        """The counts of these families alone, of the same rows."""

    def joined(self, parts: Sequence[Self]) -> Self:
        """All families, each from the part that has it; the parts are of the same rows."""

    def can_derive(self, family: Family, spec: Mapping[str, object]) -> bool:
        """Whether `from_stored` finds a family in what has that specification."""

    def can_recode(self, family: Family, unknown: Collection[int]) -> bool:
        """Whether `recoded` brings a family under a schema in which these attributes have other cut points."""


class Gathering(Protocol):
    """Rows whose columns come some at a time."""

    @property
    def columns(self) -> Sequence[Sequence[str]]:
        """Which columns to read together."""

    def add(self, number: int, batch: pa.RecordBatch, start: int, /) -> None:
        """Add the columns of one group, of the rows from a number on."""

    def finish(self) -> None:
        """All columns of all rows are there."""


@runtime_checkable
class ColumnWise(Protocol):
    """A statistic of raw columns that needs no two columns of a row at once: much less of a wide table is in memory."""

    @property
    def can_gather(self) -> bool:
        """Whether it can of these columns."""

    def gathering(self, n_rows: int) -> Gathering:
        """Where the columns of at most so many rows are collected."""


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


def statistic_leaves(statistic: Statistic) -> list[Statistic]:
    """The statistics of a pair, or of pairs of pairs, in their order: each may be stored and found on its own."""
    if not isinstance(statistic, Together):
        return [statistic]
    return [*statistic_leaves(statistic.first), *statistic_leaves(statistic.second)]


def replace_statistic_leaves(statistic: S, leaves: Iterable[Statistic]) -> S:
    """A statistic of the same form that consists of these in place of `statistic_leaves(statistic)`."""
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
