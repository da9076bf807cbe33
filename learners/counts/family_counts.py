"""Counts of each attribute given its parents and the class: dense tables, or sorted runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from learners.counts.cell_kernels import add_family_cell_counts, family_cell_indices
from learners.counts.kernels import add_value_counts_by_class
from learners.counts.sparse_counts import Run, SparseCells
from learners.errors import FamilyTooLarge, InvalidCounts, StatisticMismatch
from learners.kernels.arrays import AnyIntegers, Codes, Integers
from learners.passes.memory import MemoryLimit, memory_limit
from learners.passes.statistic import CodeStatistic
from learners.schema import Chunk, Schema
from learners.schema.schema_growth import CodeMaps

# Comparing 64 rows at a time with every value beats scattered increments up to this many values times classes.
MAX_MATCHED_CELLS = 64
SUMMED_CELLS = 1 << 19
DENSE_CELLS = 1 << 16
MOST_CELL_BYTES = 8
MOST_SHORT = (1 << 31) - 1  # rows that 32 bits count


@dataclass(frozen=True)
class Family:
    """An attribute and its parents."""

    attribute: int
    parents: tuple[int, ...] = ()  # in the order of the levels of the context tree


class FamilyCounts(CodeStatistic):
    """Number of rows for each (class, parent values, value) of each family.

    Cells are numbered in mixed radix, the class slowest and the attribute's own value fastest, so ascending cells
    are the leaves of the context tree in level order.

    Raises FamilyTooLarge if the cells of a family cannot be numbered by 63 bits.
    """

    stage = "counting families"

    def __init__(self, schema: Schema, families: Sequence[Family]) -> None:
        self.schema, self.families = schema, tuple(families)
        self.n_rows = 0
        self.class_counts = np.zeros(schema.n_classes, np.int64)
        self.members = [np.array([*f.parents, f.attribute], dtype=np.int64) for f in self.families]
        sizes = []
        for family, members in zip(self.families, self.members, strict=True):
            n_cells = schema.n_classes
            for size in schema.domain_sizes[members].tolist():
                n_cells *= size
            if n_cells >= 1 << 63:
                names = [attribute.name for attribute in schema.attributes]
                raise FamilyTooLarge(names[family.attribute], [names[parent] for parent in family.parents])
            sizes.append(n_cells)
        self._cells = empty_family_tables(sizes, memory_limit())
        is_marginal = [
            not family.parents and cells.n_cells <= MAX_MATCHED_CELLS
            for family, cells in zip(self.families, self._cells, strict=True)
        ]
        self._marginal: Sequence[int] = [index for index, is_one in enumerate(is_marginal) if is_one]
        self._conditional: Sequence[int] = [index for index, is_one in enumerate(is_marginal) if not is_one]

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return {
            "statistic": "family counts",
            "families": [[family.attribute, list(family.parents)] for family in self.families],
        }

    def under(self, schema: Schema) -> FamilyCounts:
        """Return a statistic of no rows with another schema."""
        return FamilyCounts(schema, self.families)

    def only(self, families: Sequence[Family]) -> FamilyCounts:
        """Return the counts of other families, each of whose members are contained in a family here.

        The rows with each combination of values do not depend on which member is the child, or on the order of the
        parents. Tables of families that exist here are shared, not copied.

        Raises KeyError if a family is not contained in one here.
        """
        place = {family: index for index, family in enumerate(self.families)}
        fewer = FamilyCounts(self.schema, families)
        fewer.n_rows, fewer.class_counts = self.n_rows, self.class_counts
        for index, family in enumerate(fewer.families):
            if family in place:
                fewer._cells[index] = self._cells[place[family]]
            else:
                self._sum_out(smallest_covering_family(family, self.families), family, fewer._cells[index])
        return fewer

    def _sum_out(self, holder: Family, family: Family, table: Cells) -> None:
        """Fill the cells of a family by marginalizing one that has all its members."""
        index = self.families.index(holder)
        for run in self.blocks(index):
            # Some at a time: each takes a hundred bytes while it is moved.
            for first in range(0, run.cells.size, SUMMED_CELLS):
                numbers, counts = (part[first : first + SUMMED_CELLS] for part in run)
                y, parents, x = self._codes(index, numbers)
                codes = dict(zip(holder.parents, parents.T, strict=True)) | {holder.attribute: x}
                cells = y
                for member in (*family.parents, family.attribute):
                    cells = cells * self.schema.domain_sizes[member] + codes[member]
                table.add(*sum_counts_by_cell(cells, counts))

    def joined(self, parts: Sequence[FamilyCounts]) -> FamilyCounts:
        """Join families, each from the part that has it; all parts must have counted the same rows.

        Raises StatisticMismatch if they counted different rows.
        """
        whole = self.empty()
        whole.n_rows, whole.class_counts = parts[0].n_rows, parts[0].class_counts.copy()
        if any(not np.array_equal(part.class_counts, whole.class_counts) for part in parts):
            raise StatisticMismatch("Cannot join families counted on different rows.")
        cells = {family: part._cells[i] for part in parts for i, family in enumerate(part.families)}
        whole._cells = [cells[family] for family in whole.families]
        return whole

    def recoded(self, schema: Schema, maps: CodeMaps) -> FamilyCounts | None:
        """Recode the counts to another schema; None if a counted value has no code there."""
        read = self.under(schema)
        read.n_rows = self.n_rows
        if np.any(self.class_counts[maps.classes < 0]):
            return None
        np.add.at(read.class_counts, maps.classes[maps.classes >= 0], self.class_counts[maps.classes >= 0])
        for index, family in enumerate(self.families):
            y, parents, x, counts = self.cells(index)
            codes = [maps.classes[y]]
            codes += [maps.attributes[parent][parents[:, m]] for m, parent in enumerate(family.parents)]
            codes.append(maps.attributes[family.attribute][x])
            if any((code < 0).any() for code in codes):
                return None
            cells = codes[0]
            for member, code in zip(read.members[index], codes[1:], strict=True):
                cells = cells * schema.domain_sizes[member] + code
            read._cells[index].add(*sum_counts_by_cell(cells, counts))
        return read

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        self.class_counts += np.bincount(rows.y, minlength=self.class_counts.size)
        for cells in self._cells:
            cells.make_room(self.n_rows)
        by_matching = rows.x.dtype == np.uint8 and bool(self._marginal)
        if by_matching:
            self._add_marginal(rows)
        others = self._conditional if by_matching else range(len(self.families))
        for index in others:
            members, counts = self.members[index], self._cells[index]
            counts.count(rows, members, self.schema.domain_sizes[members])

    def _add_marginal(self, rows: Chunk) -> None:
        """Count all families without parents and with few values at once."""
        attributes = np.array([self.families[index].attribute for index in self._marginal])
        sizes = self.schema.domain_sizes[attributes]
        starts = np.concatenate([[0], np.cumsum(sizes * self.schema.n_classes)])
        counts = np.zeros(int(starts[-1]), np.int64)
        add_value_counts_by_class(rows.x, rows.y, attributes, sizes, starts, counts)
        for index, first, last in zip(self._marginal, starts[:-1], starts[1:], strict=True):
            dense = self._cells[index].dense
            assert dense is not None
            dense += counts[first:last]

    def _combine(self, other: FamilyCounts, sign: int) -> None:
        self.n_rows += sign * other.n_rows
        self.class_counts += sign * other.class_counts
        for ours, theirs in zip(self._cells, other._cells, strict=True):
            ours.make_room(self.n_rows)
            ours.combine(theirs, sign)

    def blocks(self, index: int) -> Iterator[Run]:
        """Yield a family's distinct cells in mixed radix, ascending, with their counts, in blocks that fit in memory.

        Raises InvalidCounts after the last block if a count is negative, or they do not sum to the rows of each
        class.
        """
        yield from self._checked(index, self._cells[index].blocks())

    def _checked(self, index: int, runs: Iterable[Run]) -> Iterator[Run]:
        """Yield all cells of a family, checking the counts. Raises InvalidCounts."""
        n_classes = self.schema.n_classes
        sums, ends = np.zeros(n_classes, np.int64), np.arange(n_classes + 1) * (self._cells[index].n_cells // n_classes)
        for run in runs:
            sums += np.diff(np.append(0, np.cumsum(run.counts))[np.searchsorted(run.cells, ends)])
            if run.counts.min(initial=0) < 0:
                raise InvalidCounts(self.stage, f"{self._named(index)} has negative counts")
            yield run
        if not np.array_equal(sums, self.class_counts):
            raise InvalidCounts(self.stage, f"{self._named(index)} does not sum to the rows of each class")

    def _named(self, index: int) -> str:
        return f"the table of {self.schema.attributes[self.families[index].attribute].name!r} given its parents"

    def cells(self, index: int) -> tuple[Integers, Integers, Integers, Integers]:
        """Return the distinct counted cells of a family.

        `index`: position in `families`.
        Returns `y`, (m,) int64: class codes, ascending; `parents`, (m, k) int64: codes of the parents; `x`, (m,) int64:
        codes of the attribute; `counts`, (m,) int64: numbers of rows, all positive.
        """
        ((cells, counts),) = self._checked(index, [self._cells[index].distinct()])
        return *self._codes(index, cells), counts

    def _codes(self, index: int, cells: Integers) -> tuple[Integers, Integers, Integers]:
        """Return the codes of the class, the parents and the attribute from cell numbers."""
        members = self.members[index]
        columns = np.empty((members.size, cells.size), np.int64)
        for m in reversed(range(members.size)):
            cells, columns[m] = np.divmod(cells, self.schema.domain_sizes[members[m]])
        return cells, columns[:-1].T, columns[-1]

    def paths(self, index: int) -> tuple[Codes, Codes, Integers]:
        """Return the content of `cells` in a third of the memory.

        `index`: position in `families`.
        Returns `paths`, (m, k + 1) uint16: class codes, and codes of the parents; ascending; `x`, (m,) uint16;
        `counts`, (m,) int64.
        """
        parts = [self._paths(index, *run) for run in self.blocks(index)]
        if len(parts) == 1:
            return parts[0]
        paths, x, counts = (np.concatenate(column) for column in zip(*parts, strict=True))
        return paths, x, counts

    def _paths(self, index: int, cells: Integers, counts: Integers) -> tuple[Codes, Codes, Integers]:
        """Return `paths` of cells."""
        members = self.members[index]
        paths, x = np.empty((cells.size, members.size), np.uint16), np.empty(cells.size, np.uint16)
        for m in reversed(range(members.size)):
            cells, codes = np.divmod(cells, self.schema.domain_sizes[members[m]])
            if m == members.size - 1:
                x[:] = codes
            else:
                paths[:, m + 1] = codes
        paths[:, 0] = cells
        return paths, x, counts

    def to_arrow(self) -> pa.Table:
        """One row per distinct cell: family, cell, count; family -1 holds the class counts."""
        distinct = [cells.distinct() for cells in self._cells]
        n_classes = self.class_counts.size
        family = np.repeat(np.arange(-1, len(distinct)), [n_classes, *(cells.size for cells, _ in distinct)])
        cells = np.concatenate([np.arange(n_classes), *(cells for cells, _ in distinct)])
        counts = np.concatenate([self.class_counts, *(counts for _, counts in distinct)])
        return pa.table({"family": family.astype(np.int32), "cell": cells, "count": counts})

    def from_arrow(self, table: pa.Table) -> FamilyCounts:
        """Build the statistic from the output of `to_arrow`."""
        read = self.empty()
        family, cell, count = (table[name].to_numpy() for name in ("family", "cell", "count"))
        bounds = np.searchsorted(family, np.arange(-1, len(self.families) + 1))
        read.class_counts = count[: bounds[1]].copy()
        read.n_rows = int(read.class_counts.sum())
        for index, cells in enumerate(read._cells):
            first, last = bounds[index + 1], bounds[index + 2]
            for run in read._checked(index, [Run(cell[first:last].copy(), count[first:last].copy())]):
                cells.add(*run)
        return read

    def can_read(self, spec: Mapping[str, object]) -> bool:
        """Return whether `from_stored` accepts this specification: any family counts may contain these families."""
        return spec.get("statistic") == self.spec["statistic"]

    def can_derive(self, family: Family, spec: Mapping[str, object]) -> bool:
        """Return whether `from_stored` can derive a family from a statistic with this specification."""
        members = {family.attribute, *family.parents}
        return any(members <= {other.attribute, *other.parents} for other in families_from_spec(spec))

    def can_recode(self, family: Family, unknown: Collection[int]) -> bool:
        """Return whether `recoded` supports a family if these attributes have other cut points: only if it has none of
        them.
        """
        return not {family.attribute, *family.parents} & set(unknown)

    def from_stored(self, table: pa.Table, spec: Mapping[str, object]) -> FamilyCounts:
        """Return the counts of these families from the `to_arrow` table of the families in `spec`, which contain their
        members.
        """
        return FamilyCounts(self.schema, families_from_spec(spec)).from_arrow(table).only(self.families)

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows were counted."""
        if not isinstance(other, FamilyCounts):
            return NotImplemented
        return (
            self.schema == other.schema
            and self.families == other.families
            and np.array_equal(self.class_counts, other.class_counts)
            and all(
                np.array_equal(a, b)
                for ours, theirs in zip(self._cells, other._cells, strict=True)
                for a, b in zip(ours.distinct(), theirs.distinct(), strict=True)
            )
        )


def smallest_covering_family(family: Family, families: Sequence[Family]) -> Family:
    """Return the smallest family that has all members of another. Raises KeyError without one."""
    members = {family.attribute, *family.parents}
    holders = [other for other in families if members <= {other.attribute, *other.parents}]
    if not holders:
        raise KeyError(family)
    return min(holders, key=lambda other: len(other.parents))


def families_from_spec(spec: Mapping[str, object]) -> list[Family]:
    """Return the families in a specification of family counts."""
    written = cast("Sequence[tuple[int, Sequence[int]]]", spec["families"])
    return [Family(attribute, tuple(parents)) for attribute, parents in written]


class Cells:
    """Counts of the cells of one family: the given dense table, or else sorted keys."""

    def __init__(self, n_cells: int, limit: MemoryLimit, dense: AnyIntegers | None) -> None:
        self.n_cells, self.dense = n_cells, dense
        self.sparse: SparseCells | None = SparseCells(n_cells, limit) if dense is None else None

    def count(self, rows: Chunk, members: Integers, sizes: Integers) -> None:
        """Count the rows of a chunk: the cells of members (k,) with domain sizes (k,), as in `family_cell_indices`."""
        if self.dense is not None:
            add_family_cell_counts(rows.x, rows.y, members, sizes, self.dense)
        elif self.sparse is not None and rows.n_rows:
            family_cell_indices(rows.x, rows.y, members, sizes, self.sparse.room(rows.n_rows))

    def distinct(self) -> Run:
        """Return the cells with a nonzero count, ascending, and their counts."""
        if self.sparse is not None:
            return self.sparse.distinct()
        assert self.dense is not None
        cells = np.flatnonzero(self.dense)
        return Run(cells, self.dense[cells].astype(np.int64))

    def blocks(self) -> Iterator[Run]:
        """Yield the content of `distinct` in blocks that fit in memory."""
        if self.sparse is None:
            yield self.distinct()
        else:
            yield from self.sparse.blocks()

    def add(self, cells: Integers, counts: Integers) -> None:
        """Add counts of distinct ascending cells."""
        if self.dense is not None:
            sums = self.dense[cells] + counts
            self.make_room(int(sums.max(initial=0)))
            self.dense[cells] = sums
        elif self.sparse is not None:
            self.sparse.add_run(Run(cells, counts))

    def make_room(self, most: int) -> None:
        """Widen a dense table, if necessary, for counts up to `most`."""
        if self.dense is not None and most > MOST_SHORT:
            self.dense = self.dense.astype(np.int64, copy=False)

    def combine(self, other: Cells, sign: int) -> None:
        """Add (sign 1) or subtract (-1) the counts of other rows."""
        if self.dense is not None and other.dense is not None:
            (np.add if sign > 0 else np.subtract)(self.dense, other.dense, out=self.dense, casting="same_kind")
        elif self.sparse is not None and other.sparse is not None:
            self.sparse.add_counts(other.sparse, sign)
        else:  # the limit was another when the other was made, or one has more rows
            for cells, counts in other.blocks():
                self.add(cells, sign * counts)


def empty_family_tables(sizes: Sequence[int], whole: MemoryLimit) -> list[Cells]:
    """Allocate empty tables for families of these sizes; dense tables share one array, whose large pages are cleared
    faster.

    Dense tables get an eighth of the limit, because several threads count. Sorted keys get half of the rest: with
    many families in each thread, more would take most of the memory without saving time.
    """
    left = whole.n_bytes // 8
    most = min(DENSE_CELLS, left // max(1, len(sizes)) // MOST_CELL_BYTES)
    n_dense = [n if n <= most else 0 for n in sizes]
    left -= MOST_CELL_BYTES * sum(n_dense)
    limit = MemoryLimit(left // (2 * max(1, n_dense.count(0))), whole.directory)
    ends = np.cumsum([0, *n_dense]).tolist()
    room = np.zeros(ends[-1], np.int32)
    return [
        Cells(n_cells, limit, room[end - n : end] if n else None)
        for n_cells, n, end in zip(sizes, n_dense, ends[1:], strict=True)
    ]


def sum_counts_by_cell(cells: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Return the distinct cells, ascending, and the sums of their counts."""
    distinct, row = np.unique(cells, return_inverse=True)
    sums = np.zeros(distinct.size, np.int64)
    np.add.at(sums, row, counts)
    return distinct, sums
