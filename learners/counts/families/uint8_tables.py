"""Counts of one byte a cell; what does not fit is carried to sorted runs."""

from __future__ import annotations

import numpy as np

from learners.counts.cell_kernels import add_narrow_cells, add_narrow_family, add_narrow_keys, narrow_cells
from learners.counts.sparse_counts import Run, SparseCells, merged
from learners.kernels.arrays import Codes, Integers, Uint32s
from learners.passes.memory import MemoryLimit
from learners.schema import Chunk

CARRY = 256  # rows
WORD_BYTES = 8


class NarrowCells:
    """Counts of cells of which many occur, and few more than 255 times.

    A cell of a byte takes a sixteenth of what a run takes for each cell that occurs, and an increment less time than sorting
    a key. Each time that a byte begins again at 0, its cell is noted: there are at most n_rows / 256 such notes.

    Parameters
    ----------
    n_cells : int
        Cells there could be, less than 2^32.
    limit : MemoryLimit
        Of what is carried.
    """

    def __init__(self, n_cells: int, limit: MemoryLimit) -> None:
        n_words = -(-n_cells // WORD_BYTES)  # of which it is read many cells at a time
        self._bytes: Codes = np.zeros(n_words * WORD_BYTES, np.uint8)
        self._carried = SparseCells(n_cells, limit)

    def count(self, rows: Chunk, members: Integers, sizes: Integers) -> None:
        """Add the rows of a chunk: the cells of members (k,), whose domains have these sizes (k,), as in `family_cells`."""
        noted = np.empty(rows.n_rows, np.uint32)
        n = add_narrow_family(rows.x, rows.y, members, sizes, self._bytes, noted)
        self._carried.add_keys(noted[:n])

    def count_keys(self, keys: Integers | Uint32s) -> None:
        """Count a row for each of these cells (n,)."""
        noted = np.empty(keys.size, np.uint32)
        n = add_narrow_keys(keys, self._bytes, noted)
        self._carried.add_keys(noted[:n])

    def add(self, cells: Integers, counts: Integers) -> None:
        """Add counts, which may be negative, of distinct ascending cells."""
        sums = self._bytes[cells] + counts
        self._bytes[cells] = sums & (CARRY - 1)
        carried = np.flatnonzero(sums >> 8)
        self._carried.add_run(Run(cells[carried], sums[carried] >> 8))

    def merge(self, other: NarrowCells) -> None:
        """Add the counts of as many cells of other rows."""
        noted = np.empty(self._bytes.size, np.uint32)  # what is not written to takes no memory
        n = add_narrow_cells(self._bytes, other._bytes, noted)
        self._carried.add_run(Run(noted[:n].astype(np.int64), np.ones(n, np.int64)))
        self._carried.add_counts(other._carried, 1)

    def distinct(self) -> Run:
        """All cells with a count other than zero, ascending."""
        n = int(np.count_nonzero(self._bytes))
        cells, counts = np.empty(n + 1, np.int64), np.empty(n + 1, np.int64)
        narrow_cells(self._bytes.view(np.uint64), cells, counts)
        carried = self._carried.distinct()
        return merged(Run(cells[:n], counts[:n]), Run(carried.cells, CARRY * carried.counts))
