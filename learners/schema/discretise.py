"""Numeric values: order-preserving integer keys, histograms of adaptive precision, and MDL cut points."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.errors import StatisticMismatch
from learners.kernels.arrays import Floats, Integers
from learners.schema.discretise_kernels import mark_mdl_cuts
from learners.schema.hash_kernels import EMPTY, Slots, count_hashed_numbers, fill_key_hash_table
from learners.schema.schema import FEW_CLASSES

MAX_BINS = 65_536
MAX_CELLS = 1 << 21  # of a histogram of more classes
MIN_BINS = 128
EXACT = 2**53  # whole numbers up to here are float64 numbers
FIRST_KEYS = 256


def ordered_keys_from_floats(x: Floats) -> Integers:
    """Convert floats to integer keys of the same order: the bits of a float64, inverted for negative numbers."""
    bits = (x + 0.0).view(np.int64)  # + 0.0 makes one zero of the two
    return np.where(bits >= 0, bits, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF))


def floats_from_ordered_keys(keys: Integers) -> Floats:
    """Inverse of `ordered_keys_from_floats`."""
    return np.where(keys >= 0, keys, keys ^ np.int64(0x7FFF_FFFF_FFFF_FFFF)).view(np.float64)


def _sum_equal(keys: Integers, counts: Integers) -> tuple[Integers, Integers]:
    """Sum the rows of `counts` whose (sorted) keys are equal."""
    if not keys.size:
        return keys, counts
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(counts, starts, axis=0)


def _bit_lengths(numbers: Integers) -> Integers:
    """Return the bit length of each number as an unsigned integer, (n,) int64."""
    bits = numbers.view(np.uint64)
    for shift in (1, 2, 4, 8, 16, 32):
        bits = bits | bits >> np.uint64(shift)
    return np.bitwise_count(bits).astype(np.int64)


def max_histogram_bins(n_classes: int) -> int:
    """Return the maximum number of histogram bins: `MAX_BINS`, or fewer beyond `FEW_CLASSES` classes to limit the
    cells.
    """
    return MAX_BINS if n_classes <= FEW_CLASSES else max(MIN_BINS, MAX_CELLS // n_classes)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Class counts of the values of a numeric column, exact up to `max_histogram_bins` distinct values, coarser beyond.

    A bin holds the keys that agree in all but the lowest `level` bits. The level is the smallest that leaves at most
    `max_histogram_bins` bins; as coarser bins are unions of finer ones, it depends only on the values and the number
    of classes, not on their order or partition. So, unlike a randomized quantile sketch, histograms merge bit for bit
    (docs/decisions/numeric-histograms.md).
    """

    keys: Integers  # (n_bins,) int64, ascending
    counts: Integers  # (n_bins, n_classes) int64
    level: int = 0

    @classmethod
    def empty(cls, n_classes: int = 0) -> Histogram:
        """Return a histogram without values."""
        return cls(np.empty(0, np.int64), np.empty((0, n_classes), np.int64))

    @classmethod
    def of(cls, x: Floats, y: Integers, n_classes: int, level: int = 0) -> Histogram:
        """Count values (n,) float64 without NaN by class (n,), in bins at least as coarse as `level`."""
        keys, inverse = np.unique(ordered_keys_from_floats(x) >> level, return_inverse=True)
        counts = np.bincount(inverse * n_classes + y, minlength=keys.size * n_classes).reshape(keys.size, n_classes)
        return cls(keys, counts.astype(np.int64), level).fitted()

    def at_level(self, level: int) -> Histogram:
        """Coarsen the bins to a level."""
        if level == self.level:
            return self
        return Histogram(*_sum_equal(self.keys >> (level - self.level), self.counts), level)

    def fitted(self, n_classes: int = 1) -> Histogram:
        """Coarsen to at most `max_histogram_bins` bins for its classes, or for `n_classes` if more."""
        most = max_histogram_bins(max(n_classes, self.counts.shape[1]))
        if self.keys.size <= most:
            return self
        # Neighbours share a bin as soon as the highest bit in which they differ is dropped, so these bits tell the level at once.
        n_differing = np.bincount(_bit_lengths(self.keys[1:] ^ self.keys[:-1]), minlength=65)
        n_bins = self.keys.size - np.cumsum(n_differing)
        return self.at_level(self.level + int(np.argmax(n_bins <= most)))

    def merge(self, other: Histogram) -> Histogram:
        """Return the sum of both histograms."""
        level = max(self.level, other.level)
        a, b = self.at_level(level), other.at_level(level)
        if not (a.keys.size and b.keys.size):
            return a.fitted() if a.keys.size else b.fitted()
        keys = np.concatenate([a.keys, b.keys])
        order = np.argsort(keys, kind="stable")
        return Histogram(*_sum_equal(keys[order], np.concatenate([a.counts, b.counts])[order]), level).fitted()

    def without(self, other: Histogram) -> Histogram:
        """Subtract rows that were counted here; the result is the histogram of the other rows, if this one is exact.

        Raises StatisticMismatch if some of the rows were not counted here.
        """
        counts = self.counts.copy()
        is_known = np.isin(other.keys, self.keys)
        counts[np.searchsorted(self.keys, other.keys[is_known])] -= other.counts[is_known]
        if not is_known.all() or counts.min(initial=0) < 0:
            raise StatisticMismatch("Cannot subtract numbers that were never counted.")
        is_left = counts.any(axis=1)
        return Histogram(self.keys[is_left], counts[is_left], self.level)

    def with_classes(self, columns: Integers, n_classes: int) -> Histogram:
        """Move class j to columns[j] of n_classes, coarsening to the bins allowed for that many classes."""
        own = self.fitted(n_classes)
        counts = np.zeros((own.keys.size, n_classes), np.int64)
        counts[:, columns] = own.counts
        return Histogram(own.keys, counts, own.level)

    def widened(self, n_classes: int) -> Histogram:
        """Extend the counts to `n_classes` classes, at least as many as before."""
        own = self.counts.shape[1]
        return self if own == n_classes else self.with_classes(np.arange(own), n_classes)

    def thresholds(self) -> Floats:
        """Return a number between each bin and the next, (n_bins - 1,) float64; a value equal to it belongs to the
        lower bin.
        """
        low = floats_from_ordered_keys(self.keys << self.level)
        high = floats_from_ordered_keys((self.keys << self.level) | ((1 << self.level) - 1))
        with np.errstate(over="ignore", invalid="ignore"):
            middle = high[:-1] / 2 + low[1:] / 2
        # Next to an infinity, or between neighbouring floats, the middle would not separate: then cut at the lower.
        separates = np.isfinite(middle) & (middle >= high[:-1]) & (middle < low[1:])
        return np.where(separates, middle, high[:-1])


def mdl_cut_points(histogram: Histogram) -> tuple[float, ...]:
    """Find cut points by the minimum description length principle.

    `histogram`: class counts of the values.
    Returns tuple of float, ascending: empty if no cut is accepted.

    References
    ----------
    Fayyad and Irani (1993), sections 2 and 3.
    """
    if histogram.keys.size < 2:
        return ()
    cumulative = np.zeros((histogram.counts.shape[1], histogram.keys.size + 1), np.int64)
    np.cumsum(histogram.counts.T, axis=1, out=cumulative[:, 1:])
    is_cut = np.zeros(histogram.keys.size, np.uint8)
    mark_mdl_cuts(cumulative, cumulative.sum(axis=0, keepdims=True), is_cut)
    return _finite(histogram.thresholds()[np.flatnonzero(is_cut) - 1])


def equal_frequency_cut_points(histogram: Histogram, n_bins: int) -> tuple[float, ...]:
    """Return at most n_bins - 1 cut points between intervals with about equally many rows, for models without a class."""
    if histogram.keys.size < 2:
        return ()
    below = np.cumsum(histogram.counts.sum(axis=1))
    ranks = below[-1] * np.arange(1, n_bins) / n_bins
    chosen = np.unique(np.searchsorted(below, ranks))
    return _finite(histogram.thresholds()[chosen[chosen < histogram.keys.size - 1]])


def quantile_cut_points(histogram: Histogram, max_bin: int) -> tuple[float, ...]:
    """Return at most max_bin - 1 cut points: between all values if there are few, else at equal frequencies."""
    if histogram.keys.size > max_bin:
        return equal_frequency_cut_points(histogram, max_bin)
    return tuple(dict.fromkeys(_finite(histogram.thresholds())))


def histogram_quantiles(histogram: Histogram, n_steps: int = 32) -> tuple[float, ...]:
    """Return the minimum, the quantiles at every 1 / n_steps, and the maximum; for coarse bins, the outer limits of the
    end bins.

    Returns n_steps + 1 ascending numbers; none without values.
    """
    if not histogram.keys.size:
        return ()
    low = floats_from_ordered_keys(histogram.keys << histogram.level)
    high = floats_from_ordered_keys((histogram.keys << histogram.level) | ((1 << histogram.level) - 1))
    below = np.cumsum(histogram.counts.sum(axis=1))
    places = np.searchsorted(below, below[-1] * np.arange(1, n_steps) / n_steps)
    return _finite(np.concatenate([low[:1], high[places], high[-1:]]))


def _finite(cuts: Floats) -> tuple[float, ...]:
    """Convert cut points to plain floats; infinite ones become the nearest finite number."""
    largest = float(np.finfo(np.float64).max)
    return tuple(float(np.clip(cut, -largest, largest)) for cut in cuts)


class Tally:
    """Class counts of numbers by value in a hash table, which coarsens as a `Histogram` does.

    This is faster than sorting each batch into a histogram and merging these, which took most of the time of a
    schema pass.

    `level`: number of key bits dropped from the start.
    """

    def __init__(self, level: int = 0) -> None:
        self.level, self.n = level, 0
        self._slots = _slots(FIRST_KEYS, 1)

    @property
    def n_classes(self) -> int:
        """Number of classes counted, at least one."""
        return int(self._slots.counts.shape[1])

    def add(self, x: Floats, y: Integers, n_classes: int) -> int:
        """Count numbers (n,) and their classes (n,) int64 below n_classes; returns the number of NaNs."""
        if n_classes > self.n_classes:
            self._take_classes(n_classes)
        start, n_missing = 0, 0
        while True:
            start, self.n, n_more = count_hashed_numbers(x, y, start, self.level, self._slots, self.n)
            n_missing += n_more
            if start == x.size:
                return n_missing
            self._make_room()

    def histogram(self) -> Histogram:
        """Return the counts so far as a histogram."""
        keys, counts = self._slots.keys[: self.n], self._slots.counts[: self.n]
        order = np.argsort(keys)
        return Histogram(keys[order], counts[order], self.level).fitted()

    @property
    def _most_keys(self) -> int:
        """Maximum number of keys: twice the bins of a histogram, so that coarsening is amortized over as many new keys."""
        return 2 * max_histogram_bins(self.n_classes)

    def _take_classes(self, n_classes: int) -> None:
        """Make room for more classes, for which a histogram may have fewer bins."""
        most = 2 * max_histogram_bins(n_classes)
        if self.n > most:
            coarser = self.histogram().fitted(n_classes)
            self.level, self.n = coarser.level, coarser.keys.size
            self._slots = self._slots._replace(keys=coarser.keys, counts=coarser.counts)
        self._resize(min(max(self._slots.keys.size, FIRST_KEYS), most), n_classes)

    def _make_room(self) -> None:
        if self.n < self._most_keys:
            self._resize(min(2 * self._slots.keys.size, self._most_keys), self.n_classes)
            return
        # More keys than a histogram may have: the level that these alone need is not above that of all.
        coarser = self.histogram()
        self.level, self.n = coarser.level, coarser.keys.size
        self._slots.keys[: self.n], self._slots.counts[: self.n] = coarser.keys, coarser.counts
        self._slots.counts[self.n :] = 0
        self._slots.places[:] = EMPTY
        fill_key_hash_table(self._slots.keys, self.n, self._slots.places)

    def _resize(self, capacity: int, n_classes: int) -> None:
        old, self._slots = self._slots, _slots(capacity, n_classes)
        self._slots.keys[: self.n] = old.keys[: self.n]
        self._slots.counts[: self.n, : old.counts.shape[1]] = old.counts[: self.n]
        fill_key_hash_table(self._slots.keys, self.n, self._slots.places)


def _slots(capacity: int, n_classes: int) -> Slots:
    """Allocate a hash table for `capacity` keys with at least twice as many slots."""
    places = np.full(1 << int(2 * capacity).bit_length(), EMPTY, np.int32)
    return Slots(places, np.zeros(capacity, np.int64), np.zeros((capacity, n_classes), np.int64))
