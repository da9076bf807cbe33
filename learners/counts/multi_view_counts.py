"""Counts over the views of ensemble members, from rows encoded once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar

import pyarrow as pa

from learners.counts.family_counts import Family, FamilyCounts
from learners.passes.statistic import CodeStatistic
from learners.schema import Chunk, Schema
from learners.schema.encoding.column_views import Views
from learners.schema.schema_growth import CodeMaps, schema_code_maps

S = TypeVar("S", bound=Any)


class Viewed(CodeStatistic, Generic[S]):
    """A statistic over views: rows are encoded by the schema, and translated before counting.

    `make`: `make(views)` returns the empty statistic for (part of) the schema of the views; it is called again
    for another schema of the same columns.
    """

    def __init__(self, views: Views, make: Callable[[Views], S]) -> None:
        self.views, self.make = views, make
        self.schema = views.base
        self.counts: S = make(views)

    @property
    def stage(self) -> str:
        """Name of the pass."""
        return str(self.counts.stage)

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        grouping = {"grouping": self.views.only} if self.views.only else {}  # of the pair counts: 0
        return {**self.counts.spec, "by": "views", **grouping}

    def _holding(self, counts: S, views: Views | None = None) -> Self:
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        fresh.views = views or self.views
        fresh.schema, fresh.counts = fresh.views.base, counts
        return fresh

    def empty(self) -> Self:
        """Return a statistic of no rows."""
        return self._holding(self.counts.empty())

    def under(self, schema: Schema) -> Self:
        """Return a statistic of no rows with another schema."""
        views = Views(schema, self.views.only)
        return self._holding(self.make(views), views)

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        self.counts.update(self.views.chunk(rows))

    def check(self) -> None:
        """Check the counts. Raises InvalidCounts."""
        self.counts.check()

    def _combine(self, other: Self, sign: int) -> None:
        (self.counts.merge if sign > 0 else self.counts.subtract)(other.counts)

    def recoded(self, schema: Schema, maps: CodeMaps) -> Self | None:
        """Recode the counts to another schema; None if they do not determine the result."""
        del maps  # of the codes, not of the views
        read = self.under(schema)
        of_views = schema_code_maps(self.counts.schema, read.counts.schema)
        recoded = None if of_views is None else self.counts.recoded(read.counts.schema, of_views)
        return None if recoded is None else self._holding(recoded, read.views)

    def to_arrow(self) -> pa.Table:
        """Return the counts as a table."""
        return self.counts.to_arrow()

    def from_arrow(self, table: pa.Table) -> Self:
        """Build the statistic from the output of `to_arrow`."""
        return self._holding(self.counts.from_arrow(table))

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows were counted."""
        if not isinstance(other, Viewed):
            return NotImplemented
        return bool(self.schema == other.schema and self.counts == other.counts)


class ViewedFamilies(Viewed[FamilyCounts]):
    """Counts of families whose members are views.

    `families`: families of positions in `views.schema`.
    """

    def __init__(self, views: Views, families: Sequence[Family]) -> None:
        self._families = tuple(families)
        super().__init__(views, lambda own: FamilyCounts(own.schema, self._families))

    @property
    def families(self) -> tuple[Family, ...]:
        """Counted families."""
        return self.counts.families

    def under(self, schema: Schema) -> Self:
        """Return a statistic of no rows with another schema."""
        views = Views(schema, self.views.only)
        return self._holding(FamilyCounts(views.schema, self.counts.families), views)

    def only(self, families: Sequence[Family]) -> Self:
        """Return the counts of other families; see `FamilyCounts.only`."""
        return self._holding(self.counts.only(families))

    def joined(self, parts: Sequence[Self]) -> Self:
        """Join families, each from the part that has it; see `FamilyCounts.joined`."""
        return self._holding(self.counts.joined([part.counts for part in parts]))

    def can_read(self, spec: Mapping[str, object]) -> bool:
        """Return whether `from_stored` accepts this specification: counts by views, of any families."""
        return spec.get("by") == "views" and self.counts.can_read(spec)

    def can_derive(self, family: Family, spec: Mapping[str, object]) -> bool:
        """Return whether `from_stored` can derive a family from a statistic with this specification."""
        return self.counts.can_derive(family, spec)

    def can_recode(self, family: Family, unknown: Collection[int]) -> bool:
        """Return whether `recoded` supports another schema: only if no cut points moved, because views are numbered by
        them.
        """
        del family
        return not unknown

    def from_stored(self, table: pa.Table, spec: Mapping[str, object]) -> Self:
        """Return these families from the `to_arrow` table of families that contain their members."""
        return self._holding(self.counts.from_stored(table, spec))
