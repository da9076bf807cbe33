"""Distinct rows of a table and their counts, in memory while they fit and in files beyond."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from learners.counts.sparse_counts import Folder
from learners.counts.sparse_kernels import add_packed_row_counts, fill_row_hash_table
from learners.errors import InvalidCounts, StatisticMismatch
from learners.kernels.arrays import Codes, Integers, Uint64s
from learners.passes.memory import memory_limit
from learners.passes.statistic import CodeStatistic
from learners.schema import Chunk, Schema
from learners.schema.schema_growth import CodeMaps

PARTITION_BITS = 6
# Rows that there is room for at first.
FIRST_ROWS = 1 << 12


class Packed(NamedTuple):
    """Packed distinct rows with counts."""

    rows: Uint64s  # (n, w) uint64: the codes of each row as bits
    counts: Integers  # (n,) int64


class _Layout:
    """Bit positions of each column's code in the words of a row."""

    def __init__(self, schema: Schema) -> None:
        bits = [max(1, int(size - 1).bit_length()) for size in schema.domain_sizes.tolist()]
        words, shifts, word, used = [], [], 0, 0
        for of_column in bits:
            if used + of_column > 64:
                word, used = word + 1, 0
            words.append(word)
            shifts.append(used)
            used += of_column
        self.words, self.shifts = np.array(words, np.int64), np.array(shifts, np.uint64)
        self.masks = np.array([(1 << of_column) - 1 for of_column in bits], np.uint64)
        self.width = word + 1

    def packed(self, x: Codes) -> Uint64s:
        """Pack codes (d, n) to rows (n, w)."""
        rows = np.zeros((x.shape[1], self.width), np.uint64)
        for codes, word, shift in zip(x, self.words, self.shifts, strict=True):
            rows[:, word] |= codes.astype(np.uint64) << shift
        return rows

    def unpacked(self, rows: Uint64s, schema: Schema) -> Codes:
        """Unpack rows (n, w) to codes (d, n)."""
        x = np.empty((self.words.size, rows.shape[0]), schema.code_dtype)
        for codes, word, shift, mask in zip(x, self.words, self.shifts, self.masks, strict=True):
            codes[:] = (rows[:, word] >> shift) & mask
        return x


class _Table:
    """Distinct rows in memory, in order of arrival."""

    def __init__(self, width: int) -> None:
        self.n = 0
        self.rows = np.empty((0, width), np.uint64)
        self.totals = np.empty(0, np.int64)
        self.slots = np.empty(0, np.int32)

    def add(self, packed: Packed) -> None:
        """Add counts, which may be negative."""
        needed = self.n + packed.counts.size
        if needed > self.totals.size:
            size = max(FIRST_ROWS, needed, 2 * self.n)
            rows, totals = np.empty((size, self.rows.shape[1]), np.uint64), np.empty(size, np.int64)
            rows[: self.n], totals[: self.n] = self.rows[: self.n], self.totals[: self.n]
            self.rows, self.totals = rows, totals
        if 2 * needed > self.slots.size:
            self.slots = np.empty(1 << int(3 * needed).bit_length(), np.int32)
            fill_row_hash_table(self.rows, self.n, self.slots)
        self.n = int(add_packed_row_counts(packed.rows, packed.counts, self.slots, self.rows, self.totals, self.n))

    @property
    def n_bytes(self) -> int:
        """Bytes needed for the rows in use, their slots, and sorting them."""
        return self.n * (16 * self.rows.shape[1] + 48)

    def content(self) -> Packed:
        """Return the rows and counts."""
        return Packed(self.rows[: self.n], self.totals[: self.n])


class DistinctRows(CodeStatistic):
    """Counts of each combination of the codes of all attributes.

    `schema`: without a target.
    """

    stage = "counting distinct rows"

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.n_rows = 0
        self._layout = _Layout(schema)
        self._table = _Table(self._layout.width)
        limit = memory_limit()
        # An eighth for each of a few threads, as `FamilyCounts` has it.
        self._limit, self._directory = limit.n_bytes // 8, limit.directory
        self._folder: Folder | None = None
        self._paths: dict[int, Path] = {}

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return {"statistic": "distinct rows"}

    def under(self, schema: Schema) -> DistinctRows:
        """Return a statistic of no rows with another schema."""
        return DistinctRows(schema)

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        self.n_rows += rows.n_rows
        self._add(Packed(self._layout.packed(rows.x), np.ones(rows.n_rows, np.int64)))

    def check(self) -> None:
        """Refuse counts in memory that are negative, or do not sum to the number of rows. Raises InvalidCounts."""
        counts = self._table.content().counts
        if counts.min(initial=0) < 0 or (self.is_in_memory and counts.sum() != self.n_rows):
            raise InvalidCounts(self.stage, f"{self.n_rows:,} rows were counted as {counts.sum():,}")

    def _combine(self, other: DistinctRows, sign: int) -> None:
        self.n_rows += sign * other.n_rows
        for part in list(other._parts()) if other is self else other._parts():
            self._add(Packed(part.rows, sign * part.counts))

    def _add(self, packed: Packed) -> None:
        self._table.add(packed)
        if self._table.n_bytes > self._limit:
            self._spill()

    def _spill(self) -> None:
        """Move the rows in memory to files, one per range of hashes."""
        if self._folder is None:
            self._folder = Folder(self._directory)
        rows, counts = self._table.content()
        partition = _hashes(rows) >> np.uint64(64 - PARTITION_BITS)
        for p in np.unique(partition).tolist():
            own = np.flatnonzero(partition == p)
            if p not in self._paths:
                self._paths[p] = self._folder.next_path()
            with self._paths[p].open("ab") as file:
                np.column_stack([rows[own], counts[own].view(np.uint64)]).tofile(file)
        self._table = _Table(self._layout.width)

    @property
    def is_in_memory(self) -> bool:
        """True if there are no files, and therefore one block."""
        return not self._paths

    @property
    def n_distinct(self) -> int:
        """Number of distinct rows; an upper bound for those in files."""
        in_files = sum(path.stat().st_size for path in self._paths.values()) // (8 * self._layout.width + 8)
        return self._table.n + in_files

    def _parts(self) -> Iterator[Packed]:
        """Yield rows with a nonzero count in hash order: all at once, or one range of hashes at a time."""
        rows, counts = self._table.content()
        if self.is_in_memory:
            yield _ordered(Packed(rows, counts))
            return
        partition = _hashes(rows) >> np.uint64(64 - PARTITION_BITS)
        for p in range(1 << PARTITION_BITS):
            table = _Table(self._layout.width)
            if p in self._paths:
                stored = np.fromfile(self._paths[p], np.uint64).reshape(-1, self._layout.width + 1)
                table.add(Packed(np.ascontiguousarray(stored[:, :-1]), stored[:, -1].copy().view(np.int64)))
            own = np.flatnonzero(partition == p)
            table.add(Packed(rows[own], counts[own]))
            yield _ordered(table.content())

    def blocks(self) -> Iterator[tuple[Codes, Integers]]:
        """Yield codes (d, n) and counts (n,) of the distinct rows, in blocks that fit in memory."""
        for rows, counts in self._parts():
            if counts.size or self.is_in_memory:
                yield self._layout.unpacked(rows, self.schema), counts

    def recoded(self, schema: Schema, maps: CodeMaps) -> DistinctRows | None:
        """Recode the rows to another schema; None if a counted value has no code there."""
        read = self.under(schema)
        read.n_rows = self.n_rows
        for x, counts in self.blocks():
            codes = np.stack([codes[of_column] for codes, of_column in zip(maps.attributes, x, strict=True)])
            if (codes < 0).any():
                return None
            read._add(Packed(read._layout.packed(np.ascontiguousarray(codes.astype(schema.code_dtype))), counts))
        return read

    def to_arrow(self) -> pa.Table:
        """Return a table with one row per distinct row: its words and its count."""
        parts = list(self._parts())
        rows = np.concatenate([part.rows for part in parts])
        words = {f"word{w}": np.ascontiguousarray(rows[:, w]) for w in range(self._layout.width)}
        return pa.table(words | {"count": np.concatenate([part.counts for part in parts])})

    def from_arrow(self, table: pa.Table) -> DistinctRows:
        """Build the statistic from the output of `to_arrow`."""
        read = self.empty()
        if table.num_columns != self._layout.width + 1:
            raise StatisticMismatch("The stored rows belong to another schema.")
        for batch in table.to_batches(FIRST_ROWS << 4):
            columns = [column.to_numpy(zero_copy_only=False) for column in batch.columns]
            read._add(Packed(np.column_stack(columns[:-1]), columns[-1].astype(np.int64)))
            read.n_rows += int(columns[-1].sum())
        return read

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows were counted."""
        if not isinstance(other, DistinctRows):
            return NotImplemented
        if self.schema != other.schema or self.n_rows != other.n_rows:
            return False
        ours, theirs = (
            [np.concatenate(arrays) for arrays in zip(*side._parts(), strict=True)] for side in (self, other)
        )
        return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


def _hashes(rows: Uint64s) -> Uint64s:
    """Hash each row as the kernel `packed_row_hash` does, (n,) uint64."""
    h = np.zeros(rows.shape[0], np.uint64)
    for word in rows.T:
        h = (h ^ word) + np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(31)
    return h


def _ordered(packed: Packed) -> Packed:
    """Remove zero counts and sort by hash, ties by content."""
    is_counted = packed.counts != 0
    rows, counts = packed.rows[is_counted], packed.counts[is_counted]
    order = np.lexsort((*rows.T[::-1], _hashes(rows)))
    return Packed(rows[order], counts[order])
