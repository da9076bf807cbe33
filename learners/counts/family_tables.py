"""The cells of families and how often each occurs: dense tables, or sorted runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learners.arrays import AnyIntegers, Integers
from learners.counts.spill import Run, SparseCells
from learners.counts.widths import MOST_CELL_BYTES, wide_enough
from learners.memory import MemoryLimit

DENSE_CELLS = 1 << 20


class Cells:
    """Counts of the cells of one family: a dense table, which is given, or sorted runs of distinct cells."""

    def __init__(self, n_cells: int, limit: MemoryLimit, dense: AnyIntegers | None) -> None:
        self.n_cells, self.dense = n_cells, dense
        self.sparse: SparseCells | None = SparseCells(n_cells, limit) if dense is None else None

    def distinct(self) -> tuple[Integers, Integers]:
        """Cells with a count other than zero, ascending, and their counts."""
        if self.sparse is not None:
            return self.sparse.distinct()
        assert self.dense is not None
        cells = np.flatnonzero(self.dense)
        return cells, self.dense[cells].astype(np.int64)

    def add(self, cells: Integers, counts: Integers) -> None:
        """Add counts of distinct ascending cells."""
        if self.dense is not None:
            sums = self.dense[cells] + counts
            self.make_room(int(sums.max(initial=0)))
            self.dense[cells] = sums
        elif self.sparse is not None:
            self.sparse.add_run(Run(cells, counts))

    def make_room(self, most: int) -> None:
        """Make a dense table wide enough for counts up to this one."""
        if self.dense is not None:
            self.dense = wide_enough(self.dense, most)

    def combine(self, other: Cells, sign: int) -> None:
        """Add the counts of other rows, or take them away."""
        if self.dense is not None and other.dense is not None:
            (np.add if sign > 0 else np.subtract)(self.dense, other.dense, out=self.dense, casting="same_kind")
        elif self.sparse is not None and other.sparse is not None:
            self.sparse.add_counts(other.sparse, sign)
        else:  # the limit was another when the other was made
            cells, counts = other.distinct()
            self.add(cells, sign * counts)


def limit_of_each(sizes: Sequence[int], whole: MemoryLimit) -> MemoryLimit:
    """The limit of each family of so many cells, where dense tables leave what they do not need to the others.

    All have an eighth of the whole, as several threads count; sorting and merging take as much again.
    """
    n_bytes = whole.n_bytes // 8
    each = n_bytes // max(1, len(sizes))
    dense = [n for n in sizes if n <= _most_dense(each)]
    if len(dense) < len(sizes):
        each = (n_bytes - MOST_CELL_BYTES * sum(dense)) // (len(sizes) - len(dense))
    return MemoryLimit(each, whole.directory)


def _most_dense(n_bytes: int) -> int:
    """Cells of the largest table that a limit allows."""
    return min(DENSE_CELLS, n_bytes // MOST_CELL_BYTES)


def tables_of(sizes: Sequence[int], limit: MemoryLimit) -> list[Cells]:
    """No rows of families of so many cells; dense tables lie in one array, whose large pages the machine clears faster."""
    n_dense = [n if n <= _most_dense(limit.n_bytes) else 0 for n in sizes]
    ends = np.cumsum([0, *n_dense]).tolist()
    room = np.zeros(ends[-1], np.int32)
    return [
        Cells(n_cells, limit, room[end - n : end] if n else None)
        for n_cells, n, end in zip(sizes, n_dense, ends[1:], strict=True)
    ]


def summed(cells: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Distinct cells, ascending, and the sums of their counts."""
    distinct, row = np.unique(cells, return_inverse=True)
    sums = np.zeros(distinct.size, np.int64)
    np.add.at(sums, row, counts)
    return distinct, sums
