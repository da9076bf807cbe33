"""Counts of every pair of attributes by class where their tables would not fit in memory: only cells that occur are kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from learners.counts.families.family_counts import Family, FamilyCounts
from learners.counts.pairs.pairwise import PairwiseCounts
from learners.kernels.arrays import Integers
from learners.passes.memory import memory_limit
from learners.passes.statistic import CodeStatistic
from learners.schema import Chunk, Schema
from learners.schema.schema_growth import CodeMaps

MEMORY_SHARE = 8  # of the limit, as for families
FEW_CELLS = 4096  # a pair, on the average: sparse tables would be no smaller


class SparsePairs(CodeStatistic):
    """Number of rows for each (value of X_i, value of X_j, class), i < j, and for each (value of X_i, class).

    The same as `PairwiseCounts`, in sorted runs that go to files beyond the memory limit.
    """

    stage = "counting pairs"

    def __init__(self, schema: Schema) -> None:
        self.schema, n = schema, schema.n_attributes
        pairs = [Family(j, (i,)) for i in range(n) for j in range(i + 1, n)]
        self._counted = FamilyCounts(schema, [*(Family(i) for i in range(n)), *pairs])

    @property
    def n_rows(self) -> int:
        """How many were counted."""
        return self._counted.n_rows

    @property
    def class_counts(self) -> Integers:
        """(n_classes,) int64: rows of each class."""
        return self._counted.class_counts

    @property
    def spec(self) -> dict[str, object]:
        """What is collected."""
        return {"statistic": "sparse pairwise counts"}

    def under(self, schema: Schema) -> SparsePairs:
        """No rows, by another schema."""
        return SparsePairs(schema)

    def recoded(self, schema: Schema, maps: CodeMaps) -> SparsePairs | None:
        """The same rows counted by another schema; None if a value that was counted has no code there."""
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
        """Values and classes of an attribute that occur together, and their rows; each (m,) int64."""
        y, _, x, counts = self._counted.cells(i)
        return x, y, counts

    def counts_of_pairs(self) -> Iterator[Iterator[Integers]]:
        """Of each pair in ascending order its rows of each cell that occurs, in blocks that fit in memory."""
        for index in range(self.schema.n_attributes, len(self._counted.families)):
            yield (counts for _, counts in self._counted.blocks(index))

    def to_arrow(self) -> pa.Table:
        """One row per cell that occurs."""
        return self._counted.to_arrow()

    def from_arrow(self, table: pa.Table) -> SparsePairs:
        """Read what `to_arrow` wrote."""
        return self._of(self._counted.from_arrow(table))

    def __eq__(self, other: object) -> bool:
        """Whether the same rows were counted."""
        return isinstance(other, SparsePairs) and self._counted == other._counted


PairCounts = PairwiseCounts | SparsePairs


def pair_counts(schema: Schema) -> PairCounts:
    """Counts of no rows: whole tables, or where these would take too much memory, only cells that occur."""
    sizes = schema.domain_sizes.astype(np.float64)
    n_pairs = sizes.size * (sizes.size - 1) // 2
    n_cells = schema.n_classes * (sizes.sum() ** 2 - (sizes**2).sum()) / 2
    is_sparse = 8 * n_cells > memory_limit().n_bytes // MEMORY_SHARE and n_cells > FEW_CELLS * n_pairs
    return SparsePairs(schema) if is_sparse else PairwiseCounts(schema)
