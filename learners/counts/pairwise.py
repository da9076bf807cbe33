"""Counts of every pair of attributes by class: complete tables, or only occurring cells if these would not fit in
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from learners.counts.cell_kernels import add_pair_cell_counts, first_invalid_count_table
from learners.counts.family_counts import MOST_SHORT, Family, FamilyCounts
from learners.counts.kernels import (
    PADDING,
    WORD,
    add_binary_pair_counts,
    add_bit_plane_pairs,
    complete_pair_tables,
    group_rows_by_class,
    set_bit_planes,
)
from learners.errors import InvalidCounts, StatisticMismatch
from learners.kernels.arrays import AnyIntegers, Integers
from learners.passes.memory import memory_limit
from learners.passes.statistic import CodeStatistic
from learners.schema import Chunk, Schema
from learners.schema.schema import FEW_CLASSES
from learners.schema.schema_growth import CodeMaps

# Measured: bit-planes win while the product of the domains less one stays below this.
MAX_PLANE_CELLS = 225
MAX_PLANE_VALUES = 64
MAX_NUMBERED_CELLS = 1 << 32
PLANE_ROWS = 1 << 16  # whose bit-planes are made at a time
GROUPED_ATTRIBUTES = 256  # whose rows are brought together by class at a time
# Rows times pairs up to which all pairs are counted row by row, where some are anyhow: to load the kernels of bit-planes takes
# longer, and to compile them, a second.
FEW_INCREMENTS = 1 << 24
MEMORY_SHARE = 8  # of the limit, as for families
FEW_CELLS = 4096  # a pair, on the average: sparse tables would be no smaller


@dataclass(frozen=True, eq=False)
class _Plan:
    """Counting plan: the method and the table position of each pair."""

    pairs: Integers  # (n_pairs, 2), i < j
    table_starts: Integers  # (n_pairs + 1,)
    plane_attributes: Integers  # (m,)
    plane_counts: Integers  # (m,) planes of each, v - 1
    plane_starts: Integers  # (m + 1,)
    plane_pairs: Integers  # (n_plane_pairs, 2) positions in plane_attributes
    plane_tables: Integers  # (n_plane_pairs,) where the table of each begins
    inner_starts: Integers  # (n_plane_pairs + 1,)
    scatter_pairs: Integers  # indices of the other pairs, whose cells are numbered by 32 bits
    huge_pairs: Integers  # indices of those with more cells
    is_binary: bool  # whether all attributes have two values, and all pairs are counted by bit-planes

    @classmethod
    def of(cls, sizes: Integers, n_classes: int) -> _Plan:
        n = sizes.size
        n_pairs = n * (n - 1) // 2
        pairs = np.empty((n_pairs, 2), np.int64)
        table_starts, inner_starts = np.zeros(n_pairs + 1, np.int64), np.zeros(n_pairs + 1, np.int64)
        by_planes, is_huge = np.empty(n_pairs, np.bool_), np.empty(n_pairs, np.bool_)
        last = 0
        for i in range(n):  # a row of pairs at a time: of thousands of attributes each array takes 36 MB
            first, last, later = last, last + n - 1 - i, sizes[i + 1 :]
            pairs[first:last, 0], pairs[first:last, 1] = i, np.arange(i + 1, n)
            n_cells, n_inner = sizes[i] * later * n_classes, (sizes[i] - 1) * (later - 1)
            by_planes[first:last] = (n_inner <= MAX_PLANE_CELLS) & (np.maximum(sizes[i], later) <= MAX_PLANE_VALUES)
            is_huge[first:last] = n_cells > MAX_NUMBERED_CELLS
            table_starts[first + 1 : last + 1], inner_starts[first + 1 : last + 1] = n_cells, n_inner * n_classes
        np.cumsum(table_starts, out=table_starts)
        by_planes &= n_classes <= FEW_CLASSES  # as each class begins a word of its own
        if by_planes.all():
            plane_pairs, plane_tables, attributes = pairs, table_starts[:-1], np.arange(n if n_pairs else 0)
        else:
            plane_pairs, plane_tables = pairs[by_planes], table_starts[:-1][by_planes]
            inner_starts = np.append(0, inner_starts[1:][by_planes])
            attributes, place = np.unique(plane_pairs, return_inverse=True)
            plane_pairs = place.reshape(plane_pairs.shape)
        return cls(
            pairs,
            table_starts,
            attributes,
            sizes[attributes] - 1,
            _starts(sizes[attributes] - 1),
            plane_pairs,
            plane_tables,
            np.cumsum(inner_starts, out=inner_starts),
            np.flatnonzero(~by_planes & ~is_huge),
            np.flatnonzero(~by_planes & is_huge),
            bool(np.all(sizes == 2) and by_planes.all()),
        )

    @cached_property
    def row_by_row(self) -> _Plan:
        """Plan for few rows, without bit planes."""
        nothing, start = np.empty(0, np.int64), np.zeros(1, np.int64)
        return replace(
            self,
            plane_attributes=nothing,
            plane_counts=nothing,
            plane_starts=start,
            plane_pairs=nothing.reshape(0, 2),
            plane_tables=nothing,
            inner_starts=start,
            scatter_pairs=np.setdiff1d(np.arange(self.pairs.shape[0]), self.huge_pairs),
        )


def _starts(sizes: Integers) -> Integers:
    starts = np.zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


def _move(old: AnyIntegers, new: AnyIntegers, codes: tuple[Integers, ...]) -> bool:
    """Add the counts to a table with other domains; returns whether each count has a place there."""
    for axis, along in enumerate(codes):
        if (along < 0).any():
            if np.take(old, np.flatnonzero(along < 0), axis=axis).any():
                return False
            old = np.take(old, np.flatnonzero(along >= 0), axis=axis)
    places = [along[along >= 0] for along in codes]
    if all(np.unique(place).size == place.size for place in places):
        new[np.ix_(*places)] = old
    else:  # values that were apart share a code now
        np.add.at(new, np.ix_(*places), old)
    return True


class PairwiseCounts(CodeStatistic):
    """Number of rows for each (value of X_i, value of X_j, class), i < j.

    `schema`: n attributes of v_i values each, and c classes.
    """

    stage = "counting pairs"

    def __init__(self, schema: Schema) -> None:
        self._begin(schema, _Plan.of(schema.domain_sizes, schema.n_classes))

    def _begin(self, schema: Schema, plan: _Plan) -> None:
        self.schema, self._plan = schema, plan
        self.sizes = schema.domain_sizes
        self.n_rows = 0
        self.class_counts = np.zeros(schema.n_classes, np.int64)
        self.margins = [np.zeros((int(v), schema.n_classes), np.int64) for v in self.sizes]
        self.counts: AnyIntegers = np.zeros(int(self._plan.table_starts[-1]), np.int32)

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return {"statistic": "pairwise counts"}

    def empty(self) -> PairwiseCounts:
        """Return a statistic of no rows."""
        fresh = object.__new__(PairwiseCounts)
        fresh._begin(self.schema, self._plan)  # which is large where there are thousands of columns
        return fresh

    def under(self, schema: Schema) -> PairwiseCounts:
        """Return a statistic of no rows with another schema."""
        return PairwiseCounts(schema)

    def recoded(self, schema: Schema, maps: CodeMaps) -> PairwiseCounts | None:
        """Recode the counts to another schema; None if a counted value has no code there."""
        read = self.under(schema)
        read.n_rows = self.n_rows
        if not _move(self.class_counts, read.class_counts, (maps.classes,)):
            return None
        for ours, theirs, codes in zip(self.margins, read.margins, maps.attributes, strict=True):
            if not _move(ours, theirs, (codes, maps.classes)):
                return None
        for pair, (i, j) in enumerate(self._plan.pairs):
            codes_of_pair = (maps.attributes[i], maps.attributes[j], maps.classes)
            if not _move(self._table(pair), read._table(pair), codes_of_pair):
                return None
        return read

    @property
    def table_starts(self) -> Integers:
        """Offset of each pair's table in `counts`, (n_pairs + 1,) int64, pairs in ascending order."""
        return self._plan.table_starts

    def table(self, i: int, j: int) -> Integers:
        """Return the rows with each pair of values by class, (v_i, v_j, n_classes) int64; i and j differ."""
        if i > j:
            return self.table(j, i).transpose(1, 0, 2)
        pair = i * self.sizes.size - i * (i + 1) // 2 + j - i - 1
        return self._table(pair).astype(np.int64, copy=False)

    def _table(self, pair: int) -> AnyIntegers:
        i, j = self._plan.pairs[pair]
        first, last = self._plan.table_starts[pair : pair + 2]
        return self.counts[first:last].reshape(self.sizes[i], self.sizes[j], self.schema.n_classes)

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        self._make_room()
        plan, sizes = self._plan, np.append(self.sizes, self.schema.n_classes)
        if plan.scatter_pairs.size and 0 < self.n_rows * plan.plane_tables.size <= FEW_INCREMENTS:
            plan = plan.row_by_row
        for first in range(0, rows.n_rows, PLANE_ROWS):
            block = first, min(first + PLANE_ROWS, rows.n_rows)
            class_counts = np.bincount(rows.y[slice(*block)], minlength=self.schema.n_classes)
            self.class_counts += class_counts
            if plan.plane_attributes.size:
                self._update_by_planes(rows, block, class_counts, plan)
        scattered = plan.scatter_pairs
        add_pair_cell_counts(rows.x, rows.y, plan.pairs[scattered], sizes, plan.table_starts[scattered], self.counts)
        for pair in plan.huge_pairs:
            i, j = plan.pairs[pair]
            np.add.at(self._table(pair), (rows.x[i], rows.x[j], rows.y), 1)
        for i in set(range(self.sizes.size)) - set(plan.plane_attributes.tolist()):
            cells = rows.x[i] * np.int64(self.schema.n_classes) + rows.y
            self.margins[i] += np.bincount(cells, minlength=self.margins[i].size).reshape(self.margins[i].shape)

    def _make_room(self) -> None:
        """Widen the tables, if necessary, for the number of rows."""
        if self.n_rows > MOST_SHORT:
            self.counts = self.counts.astype(np.int64, copy=False)

    def _update_by_planes(self, chunk: Chunk, rows: tuple[int, int], class_counts: Integers, plan: _Plan) -> None:
        n_classes = self.schema.n_classes
        word_starts = _starts(-(-class_counts // WORD))
        n_words = int(word_starts[-1])
        planes = np.empty((int(plan.plane_starts[-1]), n_words), np.uint64)
        room = np.empty((min(plan.plane_attributes.size, GROUPED_ATTRIBUTES), n_words * WORD), np.uint8)
        for first, n, last in zip(word_starts[:-1] * WORD, class_counts, word_starts[1:] * WORD, strict=True):
            room[:, first + n : last] = PADDING
        for first in range(0, plan.plane_attributes.size, GROUPED_ATTRIBUTES):
            block = slice(first, first + GROUPED_ATTRIBUTES)
            attributes = plan.plane_attributes[block]
            grouped = room[: attributes.size]
            group_rows_by_class(chunk.x, chunk.y, rows, attributes, word_starts[:-1] * WORD, grouped)
            set_bit_planes(grouped, plan.plane_counts[block] + 1, plan.plane_starts[first:], planes)
        margins, n_bits = np.empty((planes.shape[0], n_classes), np.int64), np.bitwise_count(planes)
        for k in range(n_classes):
            margins[:, k] = n_bits[:, word_starts[k] : word_starts[k + 1]].sum(axis=1)
        by_attribute = np.split(margins, plan.plane_starts[1:-1])
        for attribute, margin in zip(plan.plane_attributes, by_attribute, strict=True):
            self.margins[attribute][:-1] += margin
            self.margins[attribute][-1] += class_counts - margin.sum(axis=0)
        inner = np.zeros(int(plan.inner_starts[-1]), np.int64)
        places = plan.plane_counts, plan.plane_starts, plan.plane_pairs
        if plan.is_binary:
            add_binary_pair_counts(planes, word_starts, inner.reshape(-1, n_classes))
        else:
            add_bit_plane_pairs(planes, word_starts, *places, plan.inner_starts[:-1], inner)
        complete_pair_tables(inner, plan.inner_starts, margins, *places, class_counts, self.counts, plan.plane_tables)

    def check(self) -> None:
        """Refuse negative counts, and tables that do not sum to the rows of each class.

        Raises InvalidCounts naming the first pair or attribute with a wrong table.
        """
        names = [attribute.name for attribute in self.schema.attributes]
        if self.class_counts.sum() != self.n_rows:
            raise InvalidCounts(self.stage, f"{self.n_rows:,} rows have {self.class_counts.sum():,} classes")
        pair = first_invalid_count_table(self.counts, self._plan.table_starts, self.class_counts)
        if pair >= 0:
            i, j = self._plan.pairs[pair]
            raise InvalidCounts(self.stage, f"the table of {names[i]!r} and {names[j]!r} does not sum to the rows")
        margins = np.concatenate([self.class_counts, *[margin.ravel() for margin in self.margins]])
        starts = _starts(np.append(1, self.sizes) * self.schema.n_classes)
        attribute = first_invalid_count_table(margins, starts, self.class_counts) - 1
        if attribute >= 0:
            raise InvalidCounts(self.stage, f"the table of {names[attribute]!r} does not sum to the rows")

    def _combine(self, other: PairwiseCounts, sign: int) -> None:
        self.n_rows += sign * other.n_rows
        self.class_counts += sign * other.class_counts
        self._make_room()
        combined = np.add if sign > 0 else np.subtract
        combined(self.counts, other.counts, out=self.counts, casting="same_kind")
        for ours, theirs in zip(self.margins, other.margins, strict=True):
            combined(ours, theirs, out=ours)

    def to_arrow(self) -> pa.Table:
        """Return the counts as one column: classes, margins, then the tables in order."""
        return pa.table({"count": np.concatenate([self.class_counts, *[m.ravel() for m in self.margins], self.counts])})

    def from_arrow(self, table: pa.Table) -> PairwiseCounts:
        """Build the statistic from the output of `to_arrow`."""
        counts = table["count"].to_numpy()
        read = self.empty()
        sizes = [self.class_counts.size, *(margin.size for margin in self.margins), self.counts.size]
        if counts.size != sum(sizes):
            raise StatisticMismatch("The stored pairwise counts belong to another schema.")
        parts = np.split(counts, np.cumsum(sizes)[:-1])
        read.class_counts = parts[0].copy()
        read.n_rows = int(read.class_counts.sum())
        read.margins = [part.reshape(-1, self.schema.n_classes).copy() for part in parts[1:-1]]
        read._make_room()
        read.counts = parts[-1].astype(read.counts.dtype)
        read.check()
        return read

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows were counted."""
        if not isinstance(other, PairwiseCounts):
            return NotImplemented
        return (
            self.schema == other.schema
            and np.array_equal(self.class_counts, other.class_counts)
            and np.array_equal(self.counts, other.counts)
            and all(np.array_equal(a, b) for a, b in zip(self.margins, other.margins, strict=True))
        )


class SparsePairs(CodeStatistic):
    """Number of rows for each (value of X_i, value of X_j, class), i < j, and for each (value of X_i, class).

    Equivalent to `PairwiseCounts`, in sorted runs that move to files beyond the memory limit.
    """

    stage = "counting pairs"

    def __init__(self, schema: Schema) -> None:
        self.schema, n = schema, schema.n_attributes
        pairs = [Family(j, (i,)) for i in range(n) for j in range(i + 1, n)]
        self._counted = FamilyCounts(schema, [*(Family(i) for i in range(n)), *pairs])

    @property
    def n_rows(self) -> int:
        """Number of counted rows."""
        return self._counted.n_rows

    @property
    def class_counts(self) -> Integers:
        """Rows of each class, (n_classes,) int64."""
        return self._counted.class_counts

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return {"statistic": "sparse pairwise counts"}

    def under(self, schema: Schema) -> SparsePairs:
        """Return a statistic of no rows with another schema."""
        return SparsePairs(schema)

    def recoded(self, schema: Schema, maps: CodeMaps) -> SparsePairs | None:
        """Recode the counts to another schema; None if a counted value has no code there."""
        recoded = self._counted.recoded(schema, maps)
        return None if recoded is None else self._of(recoded)

    def _of(self, counted: FamilyCounts) -> SparsePairs:
        read = SparsePairs(counted.schema)
        read._counted = counted
        return read

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        self._counted.update(rows)

    def _combine(self, other: SparsePairs, sign: int) -> None:
        self._counted._combine(other._counted, sign)

    def margin(self, i: int) -> tuple[Integers, Integers, Integers]:
        """Return the values and classes of an attribute that occur together, and their rows; each (m,) int64."""
        y, _, x, counts = self._counted.cells(i)
        return x, y, counts

    def counts_of_pairs(self) -> Iterator[Iterator[Integers]]:
        """Yield the rows of each occurring cell, pair by pair in ascending order, in blocks that fit in memory."""
        for index in range(self.schema.n_attributes, len(self._counted.families)):
            yield (counts for _, counts in self._counted.blocks(index))

    def to_arrow(self) -> pa.Table:
        """Return a table with one row per occurring cell."""
        return self._counted.to_arrow()

    def from_arrow(self, table: pa.Table) -> SparsePairs:
        """Build the statistic from the output of `to_arrow`."""
        return self._of(self._counted.from_arrow(table))

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows were counted."""
        return isinstance(other, SparsePairs) and self._counted == other._counted


PairCounts = PairwiseCounts | SparsePairs


def empty_pair_counts(schema: Schema) -> PairCounts:
    """Return empty pair counts: complete tables, or only occurring cells if these would take too much memory."""
    sizes = schema.domain_sizes.astype(np.float64)
    n_pairs = sizes.size * (sizes.size - 1) // 2
    n_cells = schema.n_classes * (sizes.sum() ** 2 - (sizes**2).sum()) / 2
    is_sparse = 8 * n_cells > memory_limit().n_bytes // MEMORY_SHARE and n_cells > FEW_CELLS * n_pairs
    return SparsePairs(schema) if is_sparse else PairwiseCounts(schema)
