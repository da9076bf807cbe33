"""The cells of families and how often each occurs: dense tables, or sorted runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from learners.counts.cell_kernels import add_family, family_cells
from learners.counts.count_dtypes import MOST_CELL_BYTES, wide_enough
from learners.counts.sparse_counts import Run, SparseCells
from learners.kernels.arrays import AnyIntegers, Integers
from learners.passes.memory import MemoryLimit
from learners.schema import Chunk

DENSE_CELLS = 1 << 16


class Cells:
    """Counts of the cells of one family: a dense table, which is given, or else keys to be sorted."""

    def __init__(self, n_cells: int, limit: MemoryLimit, dense: AnyIntegers | None) -> None:
        self.n_cells, self.dense = n_cells, dense
        self.sparse: SparseCells | None = SparseCells(n_cells, limit) if dense is None else None

    def count(self, rows: Chunk, members: Integers, sizes: Integers) -> None:
        """Add the rows of a chunk: the cells of members (k,), whose domains have these sizes (k,), as in `family_cells`."""
        if self.dense is not None:
            add_family(rows.x, rows.y, members, sizes, self.dense)
        elif self.sparse is not None and rows.n_rows:
            family_cells(rows.x, rows.y, members, sizes, self.sparse.room(rows.n_rows))

    def distinct(self) -> Run:
        """Cells with a count other than zero, ascending, and their counts."""
        if self.sparse is not None:
            return self.sparse.distinct()
        assert self.dense is not None
        cells = np.flatnonzero(self.dense)
        return Run(cells, self.dense[cells].astype(np.int64))

    def blocks(self) -> Iterator[Run]:
        """What `distinct` gives, in blocks that fit in memory."""
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
        """Make a dense table wide enough for counts up to this one."""
        if self.dense is not None:
            self.dense = wide_enough(self.dense, most)

    def combine(self, other: Cells, sign: int) -> None:
        """Add the counts of other rows, or take them away."""
        if self.dense is not None and other.dense is not None:
            (np.add if sign > 0 else np.subtract)(self.dense, other.dense, out=self.dense, casting="same_kind")
        elif self.sparse is not None and other.sparse is not None:
            self.sparse.add_counts(other.sparse, sign)
        else:  # the limit was another when the other was made, or one has more rows
            for cells, counts in other.blocks():
                self.add(cells, sign * counts)


def tables_of(sizes: Sequence[int], whole: MemoryLimit) -> list[Cells]:
    """No rows of families of so many cells; dense tables lie in one array, whose large pages the machine clears faster.

    All have an eighth of the whole, as several threads count. What is sorted has half of what dense tables leave: of many
    families, in each thread, more would be most of the memory, and saved no time.
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


def summed(cells: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Distinct cells, ascending, and the sums of their counts."""
    distinct, row = np.unique(cells, return_inverse=True)
    sums = np.zeros(distinct.size, np.int64)
    np.add.at(sums, row, counts)
    return distinct, sums
