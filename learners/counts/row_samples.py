"""Rows drawn during a pass: the rows of least hash in the table and in each class, and a hold-out of them."""

from __future__ import annotations

from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from learners.counts.kernels import hash_row_contents
from learners.errors import StatisticMismatch
from learners.kernels.arrays import Codes, Floats, Integers, Mask, Uint64s
from learners.passes.statistic import CodeStatistic
from learners.schema import Chunk, Schema
from learners.schema.schema_growth import CodeMaps

A = TypeVar("A", Codes, Integers)

# Twice as many rows are kept as are drawn, so that rows can be subtracted until half of them are gone.
RESERVE = 2
EVERYTHING = 2**64 - 1
MAX_ROWS = 5000
# Codes of the distinct rows drawn from: of a narrow table, where rows repeat, more rows.
ROOM = 200_000
# Distinct rows that are drawn of each class, whatever its share.
OF_CLASS = 500
# Rows a distinct row up to which rows hardly repeat, and how many times the mean a weight may be where they do.
HARDLY_REPEAT, TIMES_THE_MEAN = 1.5, 2.0
# Mean weight above which rows are the counts of a table that was grouped.
GROUPED = 10


class Sample(NamedTuple):
    """Distinct sampled rows, ascending by hash."""

    hashes: Uint64s  # (m,) uint64
    rows: Codes  # (m, n_attributes + 1), the class last
    counts: Integers  # (m,) int64

    def at(self, index: slice | Mask) -> Sample:
        """Select rows by a slice or mask."""
        return Sample(self.hashes[index], self.rows[index], self.counts[index])


class Draw(NamedTuple):
    """Rows drawn from a table."""

    rows: Chunk
    copies: Integers  # (n,) int64: how many rows of the table equal each of them, itself included
    is_by_class: bool  # some classes have more rows than their shares, so rows need weights

    def weights(self, class_counts: Integers) -> Floats | None:
        """Return weights with mean one, (n,) float64, that give the classes their shares in the table; None if all are equal.

        `class_counts`: (n_classes,) int64, the rows of each class in the table.
        """
        if not self.is_by_class:
            return None
        assert self.rows.y is not None
        drawn = np.bincount(self.rows.y, minlength=class_counts.size)
        weights = (class_counts / np.maximum(drawn, 1))[self.rows.y]
        return np.asarray(weights * (weights.size / weights.sum()))

    def without_coincidences(self, n_distinct: float, n_read: int, n_rows: int) -> Integers:
        """Return `copies` of rows that count by weights, (n,) int64: those that are copies of one row, not equal by chance.

        Where rows that are read hardly repeat, all that equal a row are its copies. Else a row has as many as it counts, which
        is at most a few times the mean. Where rows count many times in the mean, they are taken for the counts of a table that was
        grouped: each counts by itself.

        `n_distinct`: distinct rows of the table.
        `n_read`: its rows, each counted once.
        `n_rows`: its rows by their weights.
        """
        if n_rows > GROUPED * n_read:
            return np.ones_like(self.copies)
        if n_read <= HARDLY_REPEAT * n_distinct:
            return self.copies
        return np.minimum(self.copies, int(np.ceil(TIMES_THE_MEAN * n_rows / n_read)))


class DrawnRows(CodeStatistic):
    """Sample of the distinct rows with the smallest content hashes, and their counts.

    The hash depends only on the content (names and values, not codes), so the sample is the same for any order
    and partition of the rows and for any larger domain, and samples merge exactly: a row among the smallest of
    the whole is among the smallest of every part that contains it. Rows can be subtracted until the reserve is
    used up; see `is_sufficient`.

    `n_distinct`: distinct rows to draw; twice as many are kept.
    `of_class`: distinct rows of each class to draw besides, fewer where classes are many; twice as many are kept.
    `limit`: every row with a hash up to this one is in the sample.
    """

    stage = "drawing rows"
    # In the stored table.
    stored_name = "codes"
    stored_dtype: np.dtype[Any] = np.dtype(np.uint16)

    def __init__(self, schema: Schema, n_distinct: int, of_class: int = 0) -> None:
        self.schema, self.n_distinct, self.of_class = schema, n_distinct, of_class
        # All classes together take no more than as many again.
        self.n_of_class = max(1, min(of_class, n_distinct // max(1, schema.n_classes))) if of_class else 0
        self.n_rows = 0
        self.limit = EVERYTHING
        self.class_limits = np.full(schema.n_classes, EVERYTHING if of_class else 0, np.uint64)
        width = schema.n_attributes + 1
        self._sample = Sample(np.empty(0, np.uint64), np.empty((0, width), schema.code_dtype), np.empty(0, np.int64))
        self._pending: list[Sample] = []
        self._n_pending = 0
        self._is_settled = True

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        own = {"of_class": self.of_class} if self.of_class else {}
        return {"statistic": "drawn rows", "n": self.n_distinct, "reserve": RESERVE} | own

    def under(self, schema: Schema) -> Self:
        """Return a statistic of no rows with another schema."""
        fresh = object.__new__(type(self))
        fresh.__dict__.update(self.__dict__)
        DrawnRows.__init__(fresh, schema, self.n_distinct, self.of_class)
        return fresh

    def update(self, rows: Chunk) -> None:
        """Add the rows of a chunk."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        hashes = self._hashes(rows)
        bound = self._bound(hashes)
        small = np.flatnonzero(self._is_within(hashes, rows.y, bound))
        if small.size:
            self._add(Sample(hashes[small], self._content(rows, small), np.ones(small.size, np.int64)))

    def _is_within(self, hashes: Uint64s, y: Codes, limit: np.uint64) -> Mask:
        """Return which hashes are within the common limit or the limit of their class."""
        if not self.of_class:
            return np.asarray(hashes <= limit)
        return np.asarray(hashes <= np.maximum(self.class_limits, limit)[y])

    def _hashes(self, rows: Chunk) -> Uint64s:
        hashes = np.empty(rows.n_rows, np.uint64)
        hash_row_contents(rows.x, rows.y, self.schema.value_keys, self.schema.class_keys, hashes)
        return hashes

    def _content(self, rows: Chunk, some: Integers) -> Codes:
        """Return the codes of the given rows, the class last, (n_some, width)."""
        assert rows.y is not None
        content = np.empty((rows.x.shape[0] + 1, some.size), rows.x.dtype)
        np.take(rows.x, some, axis=1, out=content[:-1], mode="clip")  # which needs no copy of what it gives
        content[-1] = rows.y[some]
        return content.T

    def _bound(self, hashes: Uint64s) -> np.uint64:
        """Return a hash above which no row can be in the sample."""
        if self.limit < EVERYTHING:
            return np.uint64(self.limit)
        reserve = RESERVE * self.n_distinct
        for rank in (reserve + reserve // 16 + 1, 2 * reserve):  # few rows repeat, or many do
            if hashes.size > rank:
                smallest = _smallest(hashes, rank)
                if 1 + np.count_nonzero(smallest[1:] != smallest[:-1]) > reserve:
                    return np.uint64(smallest[-1])
        return np.uint64(EVERYTHING)

    def _combine(self, other: Self, sign: int) -> None:
        if sign < 0:
            self._take_away(other)
            return
        self.n_rows += other.n_rows
        sample = other.sample
        self.limit = min(self.limit, other.limit)
        self.class_limits = np.minimum(self.class_limits, other.class_limits)
        self._add(sample)

    def _take_away(self, other: Self) -> None:
        """Subtract another sample; rows that were crowded out are unknown, see `is_sufficient`."""
        ours, theirs = self.sample, other.sample
        limit = min(self.limit, other.limit)
        self.class_limits = np.minimum(self.class_limits, other.class_limits)
        known, gone = (
            self._is_within(sample.hashes, sample.rows[:, self.schema.n_attributes], np.uint64(limit))
            for sample in (ours, theirs)
        )
        parts = [ours.at(known), theirs.at(gone)]
        parts[1] = parts[1]._replace(counts=-parts[1].counts)
        left = _distinct(parts)
        if np.any(left.counts < 0):
            raise StatisticMismatch("Cannot subtract rows that were never added.")
        self.n_rows -= other.n_rows
        self.limit = limit
        self._sample = left.at(left.counts > 0)

    @property
    def n_distinct_of_table(self) -> float:
        """Number of distinct rows of the table, estimated from the largest hash of the sample if rows were crowded out."""
        hashes = self.sample.hashes
        return float(np.count_nonzero(hashes <= np.uint64(self.limit))) * ((EVERYTHING + 1) / (self.limit + 1))

    @property
    def is_sufficient(self) -> bool:
        """Return whether enough rows of the table and of each class are known."""
        hashes, rows, _ = self.sample
        if self.limit < EVERYTHING and np.count_nonzero(hashes <= np.uint64(self.limit)) < self.n_distinct:
            return False
        if not self.of_class or self.limit == EVERYTHING:
            return True
        n = np.bincount(rows[:, self.schema.n_attributes], minlength=self.class_limits.size)
        return bool(np.all((n >= self.n_of_class) | (self.class_limits == EVERYTHING)))

    def recoded(self, schema: Schema, maps: CodeMaps) -> Self | None:
        """Recode the rows to another schema; None if distinct values share a code there, because their hashes differ."""
        if not all(map(_is_one_to_one, (*maps.attributes, maps.classes))):
            return None
        read = self.under(schema)
        hashes, rows, counts = self.sample
        codes = [
            maps.classes[rows[:, i]] if i == schema.n_attributes else maps.attributes[i][rows[:, i]]
            for i in range(schema.n_attributes + 1)
        ]
        if any(np.any(column < 0) for column in codes):
            return None
        # Behind the codes may be what has no code.
        content = np.concatenate([np.stack(codes, axis=1), rows[:, len(codes) :]], axis=1)
        read._sample, read._is_settled = Sample(hashes, content.astype(read._sample.rows.dtype), counts), False
        read.n_rows, read.limit = self.n_rows, self.limit
        is_known = maps.classes[: self.class_limits.size] >= 0
        read.class_limits[maps.classes[: self.class_limits.size][is_known]] = self.class_limits[is_known]
        return read

    def _add(self, sample: Sample) -> None:
        # Sorting at every chunk would take longer than counting.
        self._pending.append(sample)
        self._is_settled = False
        self._n_pending += sample.hashes.size
        if self._n_pending > RESERVE * self.n_distinct:
            self._settle()

    @property
    def sample(self) -> Sample:
        """Sampled rows in hash order."""
        self._settle()
        return self._sample

    def _settle(self) -> None:
        if not self._pending and self._is_settled:
            return
        whole = _distinct([self._sample, *self._pending])
        self._pending, self._n_pending, self._is_settled = [], 0, True
        known = int(np.searchsorted(whole.hashes, np.uint64(self.limit), side="right"))
        if known > RESERVE * self.n_distinct:
            known = RESERVE * self.n_distinct
            self.limit = int(whole.hashes[known - 1])
        if not self.of_class:
            self._sample = whole.at(slice(known))
            return
        classes = whole.rows[:, self.schema.n_attributes]
        is_in = self._is_within(whole.hashes, classes, np.uint64(0))
        rank, most = _rank_in_class(classes, is_in), RESERVE * self.n_of_class
        last = np.flatnonzero(rank == most - 1)
        n_in = np.bincount(classes[is_in], minlength=self.class_limits.size)
        last = last[n_in[classes[last]] > most]
        self.class_limits[classes[last]] = whole.hashes[last]
        self._sample = whole.at((np.arange(classes.size) < known) | (is_in & (rank < most)))

    def draw_by_class(self, most: int) -> Draw:
        """Return the rows of `occurrences`, with more rows of each class that has fewer than `n_of_class` among them.

        Such a class gives its first `n_of_class` distinct rows in hash order, each as often as it occurred, but at most
        `n_of_class` rows. They follow the other rows.
        """
        drawn = self._drawn()
        rows, copies = self._chunk(_spread(drawn.rows, drawn.counts, most)), _spread(drawn.counts, drawn.counts, most)
        assert rows.y is not None
        n_drawn = np.bincount(rows.y, minlength=self.class_limits.size)
        own = self.sample.at(_rank_in_class(self.sample.rows[:, self.schema.n_attributes]) < self.n_of_class)
        classes = own.rows[:, self.schema.n_attributes]
        n_known = np.bincount(classes, own.counts, self.class_limits.size).astype(np.int64)
        lacking = np.flatnonzero(n_drawn < np.minimum(n_known, self.n_of_class))
        if not lacking.size:
            return Draw(rows, copies, is_by_class=False)
        is_enough = ~np.isin(rows.y, lacking)
        parts, of_parts = [np.column_stack([rows.x.T, rows.y])[is_enough]], [copies[is_enough]]
        for each in lacking:
            some, n_each = own.at(classes == each), min(int(n_known[each]), self.n_of_class)
            parts.append(_spread(some.rows, some.counts, n_each))
            of_parts.append(_spread(some.counts, some.counts, n_each))
        return Draw(self._chunk(np.concatenate(parts)), np.concatenate(of_parts), is_by_class=True)

    def occurrences(self, most: int) -> Chunk:
        """Return the first `n_distinct` distinct rows in hash order, each as often as it occurred.

        `most`: maximum number of rows; if there are more, evenly spaced ones are used.
        """
        drawn = self._drawn()
        return self._chunk(_spread(drawn.rows, drawn.counts, most))

    def _drawn(self) -> Sample:
        sample = self.sample
        n = min(self.n_distinct, int(np.searchsorted(sample.hashes, np.uint64(self.limit), side="right")))
        return sample.at(slice(n))

    def _chunk(self, content: Codes) -> Chunk:
        return Chunk(np.ascontiguousarray(content[:, :-1].T), np.ascontiguousarray(content[:, -1]))

    def to_arrow(self) -> pa.Table:
        """Return a table with one row per sampled row, each with the number of all rows."""
        hashes, rows, counts = self.sample
        content = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel().astype(self.stored_dtype)), rows.shape[1])
        n_rows, limit = np.full(hashes.size, self.n_rows, np.int64), np.full(hashes.size, self.limit, np.uint64)
        stored = {"hash": hashes, "count": counts, self.stored_name: content, "n_rows": n_rows, "limit": limit}
        if self.of_class:
            # A class without rows here has no limit, or `is_sufficient` would have refused it.
            stored["class_limit"] = self.class_limits[rows[:, self.schema.n_attributes]]
        return pa.table(stored)

    def from_arrow(self, table: pa.Table) -> Self:
        """Build the statistic from the output of `to_arrow`."""
        read = self.empty()
        content = table[self.stored_name].combine_chunks()
        content = content.chunk(0) if isinstance(content, pa.ChunkedArray) and content.num_chunks else content
        flat = content.flatten().to_numpy(zero_copy_only=False) if len(content) else np.empty(0)
        rows: Codes = flat.reshape(-1, read._sample.rows.shape[1]).astype(read._sample.rows.dtype)
        read._sample = Sample(table["hash"].to_numpy().copy(), rows, table["count"].to_numpy().copy())
        if table.num_rows:
            read.n_rows, read.limit = int(table["n_rows"][0].as_py()), int(table["limit"][0].as_py())
            if self.of_class:
                read.class_limits[rows[:, self.schema.n_attributes]] = table["class_limit"].to_numpy()
        return read

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows were sampled from the same number of rows."""
        if not isinstance(other, DrawnRows):
            return NotImplemented
        same = all(np.array_equal(ours, theirs) for ours, theirs in zip(self.sample, other.sample, strict=True))
        same = same and np.array_equal(self.class_limits, other.class_limits)
        return same and (self.n_rows, self.limit) == (other.n_rows, other.limit)


def _rank_in_class(classes: Integers | Codes, is_ranked: Mask | None = None) -> Integers:
    """Return the number of ranked rows of the same class before each row, (n,) int64."""
    order = np.argsort(classes, kind="stable")
    ranked = np.ones(classes.size, np.int64) if is_ranked is None else is_ranked.astype(np.int64)
    before = np.cumsum(ranked[order]) - ranked[order]
    starts = np.flatnonzero(np.diff(classes[order].astype(np.int64), prepend=-1))
    rank = np.empty(classes.size, np.int64)
    rank[order] = before - np.repeat(before[starts], np.diff(starts, append=classes.size))
    return rank


def _spread(rows: A, counts: Integers, most: int) -> A:
    """Repeat each row as often as it occurred; take `most` evenly spaced occurrences if there are more."""
    n = int(counts.sum())
    size = min(most, n)
    passed = np.cumsum(counts) * size // max(1, n)
    return np.repeat(rows, np.diff(passed, prepend=0), axis=0)


def _smallest(hashes: Uint64s, n: int) -> Uint64s:
    """Return the n smallest hashes, ascending; prefilters by size, because hashes are uniform unless rows repeat."""
    below = hashes[hashes <= np.uint64(min(EVERYTHING, EVERYTHING * 5 * n // (4 * hashes.size)))]
    return np.sort(below if below.size >= n else np.partition(hashes, n)[:n])[:n]


def _distinct(parts: list[Sample]) -> Sample:
    """Return the distinct rows, ascending by hash, with the sums of their counts."""
    hashes, rows, counts = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    order = np.argsort(hashes, kind="stable")
    if np.any(hashes[order][1:] == hashes[order][:-1]):
        # The content breaks ties, so that equal rows are neighbours even if others share their hash.
        order = np.lexsort((*rows.T[::-1], hashes))
    hashes, rows, counts = hashes[order], rows[order], counts[order]
    is_new = np.ones(hashes.size, bool)
    is_new[1:] = hashes[1:] != hashes[:-1]
    alike = np.flatnonzero(~is_new)
    is_new[alike] = np.any(rows[alike] != rows[alike - 1], axis=1)
    if is_new.all():
        return Sample(hashes, rows, counts)
    starts = np.flatnonzero(is_new)
    return Sample(hashes[starts], rows[starts], np.add.reduceat(counts, starts))


def _is_one_to_one(codes: Integers) -> bool:
    coded = codes[codes >= 0]
    return bool(np.unique(coded).size == coded.size)


class HoldOut(DrawnRows):
    """A tenth of the rows, drawn from those with the smallest hashes.

    `capacity`: rows to draw at most.
    `room`: maximum number of codes of the distinct rows to draw from, if these are more than `capacity`; twice as
    many are kept. `n_distinct`: distinct rows to draw from. `limit`: every row with a hash up to this one is in the
    sample.
    """

    stage = "drawing rows"

    def __init__(self, schema: Schema, capacity: int = MAX_ROWS, room: int = ROOM) -> None:
        self.capacity, self.room = capacity, room
        super().__init__(schema, max(capacity, room // (schema.n_attributes + 1)))

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return {"statistic": "hold-out", "capacity": self.capacity, "room": self.room, "reserve": RESERVE}

    def draw(self) -> Chunk:
        """Draw min(n_rows / 10, capacity) evenly spaced occurrences of the first `n_distinct` distinct rows, in hash
        order.

        Each occurrence of a sampled row is equally likely to be drawn, and most occurrences of a frequent row remain
        for training.

        Returns a chunk in hash order, without rows if there are fewer than 10.

        References
        ----------
        Petitjean, Buntine, Webb, Zaidi (2018), section 6.1 (the size of the hold-out).
        """
        return self.occurrences(min(self.n_rows // 10, self.capacity))
