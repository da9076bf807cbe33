"""Numbers of a column counted as they come, until somebody asks for their histogram."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats, Integers
from learners.schema.discretise import Histogram, most_bins
from learners.schema.inference.numeric_count_kernels import EMPTY, Slots, count_numbers, fill_places

FIRST_KEYS = 256


class Tally:
    """Class counts of numbers by value in a hash table, which becomes coarser as a `Histogram` does.

    Sorting every batch for a histogram of its own, and merging these, took most of the time of a schema pass.

    `level`: bits of the keys that are dropped from the beginning.
    """

    def __init__(self, level: int = 0) -> None:
        self.level, self.n = level, 0
        self._slots = _slots(FIRST_KEYS, 1)

    @property
    def n_classes(self) -> int:
        """Classes that it has counted, at least one."""
        return int(self._slots.counts.shape[1])

    def add(self, x: Floats, y: Integers, n_classes: int) -> int:
        """Count numbers (n,) and their classes (n,) int64 below n_classes; returns how many are NaN."""
        if n_classes > self.n_classes:
            self._take_classes(n_classes)
        start, n_missing = 0, 0
        while True:
            start, self.n, n_more = count_numbers(x, y, start, self.level, self._slots, self.n)
            n_missing += n_more
            if start == x.size:
                return n_missing
            self._make_room()

    def histogram(self) -> Histogram:
        """The counts so far, by ascending keys."""
        keys, counts = self._slots.keys[: self.n], self._slots.counts[: self.n]
        order = np.argsort(keys)
        return Histogram(keys[order], counts[order], self.level).fitted()

    @property
    def _most_keys(self) -> int:
        """Twice as many as a histogram has bins: making one is paid for by at least as many new keys."""
        return 2 * most_bins(self.n_classes)

    def _take_classes(self, n_classes: int) -> None:
        """Room for more classes, of which a histogram may have fewer bins."""
        most = 2 * most_bins(n_classes)
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
        fill_places(self._slots.keys, self.n, self._slots.places)

    def _resize(self, capacity: int, n_classes: int) -> None:
        old, self._slots = self._slots, _slots(capacity, n_classes)
        self._slots.keys[: self.n] = old.keys[: self.n]
        self._slots.counts[: self.n, : old.counts.shape[1]] = old.counts[: self.n]
        fill_places(self._slots.keys, self.n, self._slots.places)


def _slots(capacity: int, n_classes: int) -> Slots:
    """Room for so many keys, in at least twice as many slots."""
    places = np.full(1 << int(2 * capacity).bit_length(), EMPTY, np.int32)
    return Slots(places, np.zeros(capacity, np.int64), np.zeros((capacity, n_classes), np.int64))
