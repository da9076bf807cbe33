"""Statistics collected by passes, optional capabilities of them, and a pair of statistics collected in one pass."""

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
    """A commutative monoid over rows: any order and partition of the chunks gives the same result, bit for bit.

    `merge`, `subtract` and `update` change the statistic in place, so a pass allocates one per thread. Optional
    methods have defaults here for statistics that lack the capability.
    """

    schema: Schema | None = None  # by which rows are encoded; None for a statistic of raw columns
    is_announced: bool = True  # whether its pass is among those that its learner says it will make

    @property
    @abstractmethod
    def stage(self) -> str:
        """Name of the pass, for progress reports."""

    @property
    @abstractmethod
    def spec(self) -> Mapping[str, object]:
        """JSON-compatible specification; with the schema and the files it identifies the stored result."""

    @property
    def columns(self) -> Sequence[str] | None:
        """Columns to read; None for all."""
        return None if self.schema is None else self.schema.columns

    @property
    def can_subtract(self) -> bool:
        """True if `subtract` is supported."""
        return True

    @abstractmethod
    def empty(self) -> Self:
        """Return the neutral element."""

    @abstractmethod
    def update(self, rows: Any) -> None:
        """Add rows: a chunk, or without a schema a record batch."""

    def merge(self, other: Self) -> None:
        """Add the rows of another statistic; a `StatisticMismatch` leaves this one unchanged."""
        self._require_same(other)
        self._combine(other, 1)

    def subtract(self, other: Self) -> None:
        """Subtract rows that were added before; a `StatisticMismatch` leaves this one unchanged."""
        self._require_same(other)
        if not self.can_subtract:
            raise StatisticMismatch(f"{type(self).__name__} cannot be subtracted.")
        self._combine(other, -1)

    def _require_same(self, other: Self) -> None:
        if other.schema != self.schema or other.spec != self.spec:
            raise StatisticMismatch(f"{type(self).__name__} of different schemas or specifications cannot be combined.")

    @abstractmethod
    def _combine(self, other: Self, sign: int) -> None:
        """Add (sign 1) or subtract (-1) the rows of another statistic with the same specification."""

    @abstractmethod
    def to_arrow(self) -> pa.Table:
        """Return the statistic as a table."""

    @abstractmethod
    def from_arrow(self, table: pa.Table) -> Self:
        """Build the statistic from the output of `to_arrow`; called on an empty statistic of the same specification."""

    def can_read(self, spec: Mapping[str, object]) -> bool:
        """Return whether `from_stored` can read (families of) this statistic from one with that specification, which
        may contain more.
        """
        return spec == self.spec

    def from_stored(self, table: pa.Table, spec: Mapping[str, object]) -> Self:
        """Return the statistic from the `to_arrow` table of a statistic with that specification."""
        del spec
        return self.from_arrow(table)

    def check(self) -> None:  # noqa: B027 — most count nothing that could be wrong
        """Refuse negative counts, and tables that do not sum to the rows of each class. Raises InvalidCounts."""

    def order_columns(self, names: Sequence[str]) -> None:  # noqa: B027 — most know no columns by name
        """Order collected columns as in the data, whatever the order of the parts."""

    @property
    def is_sufficient(self) -> bool:
        """True if the statistic is complete; after subtraction it may lack information."""
        return True

    def remainder(self) -> Self:
        """Return an empty statistic of what must be counted again over all rows if `is_sufficient` is false; by default
        everything.
        """
        return self.empty()

    def completed(self, rest: Self) -> Self:
        """Return the statistic completed with its counted `remainder`."""
        return rest


class CodeStatistic(Statistic):
    """Base of statistics of codes; a refresh reuses one after the domains have grown, if it can be recoded."""

    schema: Schema

    @abstractmethod
    def under(self, schema: Schema) -> Self:
        """Return an empty statistic of the same specification with another schema."""

    def empty(self) -> Self:
        """Return a statistic of no rows."""
        return self.under(self.schema)

    def recoded(self, schema: Schema, maps: CodeMaps) -> Self | None:
        """Recode the rows to another schema; None if the statistic does not determine the result."""
        del schema, maps
        return None


@runtime_checkable
class Divisible(Protocol[Family]):
    """A statistic of several families, each of which can be stored, found and counted separately."""

    @property
    def families(self) -> Sequence[Family]:
        """Families of the statistic; hashable."""

    def only(self, families: Sequence[Family]) -> Self:
        """Return the counts of these families alone, for the same rows."""

    def joined(self, parts: Sequence[Self]) -> Self:
        """Join families from several parts, which have the same rows."""

    def can_derive(self, family: Family, spec: Mapping[str, object]) -> bool:
        """Return whether `from_stored` can derive a family from a statistic with that specification."""

    def can_recode(self, family: Family, unknown: Collection[int]) -> bool:
        """Return whether `recoded` can recode a family to a schema in which these attributes have other cut points."""


class Gathering(Protocol):
    """Collector of rows whose columns arrive in groups."""

    @property
    def columns(self) -> Sequence[Sequence[str]]:
        """Groups of columns to read together."""

    def add(self, number: int, batch: pa.RecordBatch, start: int, /) -> None:
        """Add one group of columns, for the rows from `start` on."""

    def finish(self) -> None:
        """Finish after all columns of all rows were added."""


@runtime_checkable
class ColumnWise(Protocol):
    """A statistic of raw columns that never needs two columns of a row at once, which saves memory for wide tables."""

    @property
    def can_gather(self) -> bool:
        """True if these columns can be collected in groups."""

    def gathering(self, n_rows: int) -> Gathering:
        """Return a collector for the columns of at most `n_rows` rows."""


S = TypeVar("S", bound=Statistic)
A = TypeVar("A", bound=Statistic)
B = TypeVar("B", bound=Statistic)


class Together(Statistic, Generic[A, B]):
    """A pair of statistics with the same schema as one statistic."""

    def __init__(self, first: A, second: B) -> None:
        self.first, self.second, self.schema = first, second, first.schema

    @property
    def stage(self) -> str:
        """Name of the pass."""
        return self.first.stage

    @property
    def can_subtract(self) -> bool:
        """True if both statistics support `subtract`."""
        return self.first.can_subtract and self.second.can_subtract

    @property
    def spec(self) -> Mapping[str, object]:
        """Specification of the pair."""
        return {"statistic": "together", "first": self.first.spec, "second": self.second.spec}

    @property
    def columns(self) -> Sequence[str] | None:
        """Columns to read."""
        return self.first.columns

    def empty(self) -> Together[A, B]:
        """Return a pair of no rows."""
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
        """Build the pair from the output of `to_arrow`."""
        first, second = (pa.ipc.open_stream(table[name][0].as_py()).read_all() for name in ("first", "second"))
        return Together(self.first.from_arrow(first), self.second.from_arrow(second))

    def __eq__(self, other: object) -> bool:
        """Return whether both parts are equal."""
        if not isinstance(other, Together):
            return NotImplemented
        return bool(self.first == other.first and self.second == other.second)


def statistic_leaves(statistic: Statistic) -> list[Statistic]:
    """Return the statistics of a pair, or of nested pairs, in order; each can be stored and found separately."""
    if not isinstance(statistic, Together):
        return [statistic]
    return [*statistic_leaves(statistic.first), *statistic_leaves(statistic.second)]


def replace_statistic_leaves(statistic: S, leaves: Iterable[Statistic]) -> S:
    """Return a statistic of the same form with these leaves in place of `statistic_leaves(statistic)`."""
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
