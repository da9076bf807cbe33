"""Rows whose columns come some at a time: of a wide table only a few columns are in memory at once, and the codes of all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from learners.kernels.arrays import Codes, Integers
from learners.monitoring.count_layout import STATUSES, ColumnGroup, Watched
from learners.monitoring.raw import BatchRows, status_counts
from learners.schema import Chunk

BLOCK_ROWS = 16_384  # whose codes are counted together


class Counting(Protocol):
    """What the rows are added to."""

    watched: Watched

    @property
    def columns(self) -> list[str]:
        """The columns to read."""

    def add_statuses(self, counts: Integers) -> None:
        """Add what `status_counts` found."""

    def add_encoded(self, chunk: Chunk) -> None:
        """Add the codes of some rows."""


class GatheredColumns:
    """The codes of some rows, as they are gathered.

    Parameters
    ----------
    counts : ServedCounts
        To which `finish` adds the rows.
    n_rows : int
        The most that may come.
    """

    def __init__(self, counts: Counting, n_rows: int) -> None:
        self.counts, schema = counts, counts.watched.schema
        sizes = [min(BLOCK_ROWS, n_rows - start) for start in range(0, n_rows, BLOCK_ROWS)]
        self.blocks = [np.empty((schema.n_attributes, size), schema.code_dtype) for size in sizes]
        self.groups: Sequence[ColumnGroup] = counts.watched.column_groups(tuple(counts.columns))
        self.n_rows = 0

    @property
    def columns(self) -> list[list[str]]:
        """Which columns to read together."""
        return [group.names for group in self.groups]

    def add(self, number: int, batch: pa.RecordBatch, start: int) -> None:
        """Add the columns of one group, of the rows from a number on.

        Raises
        ------
        SchemaError
            If the type of a column does not fit.
        """
        group = self.groups[number]
        x = group.encoder.codes(batch)
        found = np.zeros((self.counts.watched.schema.n_attributes, len(STATUSES)), np.int64)
        found[group.places] = status_counts(
            x, BatchRows(batch), group.encoder.attributes, np.arange(batch.num_rows), encoder=group.encoder
        )
        self.counts.add_statuses(found)
        self._place(group.places, x, start)
        self.n_rows = max(self.n_rows, start + batch.num_rows)

    def _place(self, places: Integers, x: Codes, start: int) -> None:
        done, n_rows = 0, x.shape[1]
        while done < n_rows:
            block, first = divmod(start + done, BLOCK_ROWS)
            n = min(n_rows - done, BLOCK_ROWS - first)
            for k, i in enumerate(places.tolist()):
                self.blocks[block][i, first : first + n] = x[k, done : done + n]
            done += n

    def finish(self) -> None:
        """Count the rows."""
        for start, block in zip(range(0, self.n_rows, BLOCK_ROWS), self.blocks, strict=False):
            self.counts.add_encoded(Chunk(np.ascontiguousarray(block[:, : self.n_rows - start]), None))
