"""Exact sums and sums of products of numeric columns, independent of the order and partition of the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from learners.counts.moment_kernels import DIGIT, add_moment_digit_products
from learners.errors import EmptyStatistic, SchemaError, StatisticMismatch, UnknownColumn
from learners.kernels.arrays import Floats, Uint8s
from learners.passes.statistic import Statistic
from learners.schema import Attribute
from learners.schema.encoding.encode import attribute_numbers

# Bits of resolution of the distance between the outermost cut points of a column.
RESOLUTION_BITS = 22
# Where there is one cut point only, of that number; where it is zero, of one.
LONE_BITS = 40
DIGIT_BITS = 29
MOST_DIGITS = 6


@dataclass(frozen=True)
class Unit:
    """Conversion of a column's numbers to integers: (x - shift) / 2^exponent, rounded."""

    name: str  # of the column
    arrow_type: str  # of the column in training, in whose unit times are told
    shift: float  # a whole number of units
    exponent: int

    @classmethod
    def of(cls, attribute: Attribute) -> Unit:
        """Derive a column's unit from its cut points, so fine that rounding does not affect sums in double precision.

        Rounding to 2^-22 of the spread between the outermost cut points adds 2^-47 of its square to the variance. A
        unit depends on the schema alone, so statistics that share a schema add up.
        """
        cuts = attribute.cuts or (0.0,)
        spread = cuts[-1] - cuts[0]
        if spread > 0 and math.isfinite(spread):
            exponent = math.frexp(spread)[1] - RESOLUTION_BITS
        else:
            exponent = (math.frexp(cuts[0])[1] if cuts[0] else 1) - LONE_BITS
        exponent = max(exponent, -1000)
        middle = cuts[len(cuts) // 2]
        shift = math.ldexp(round(math.ldexp(middle, -exponent)), exponent) if abs(middle) < 2.0**900 else 0.0
        return cls(attribute.name, attribute.arrow_type, shift, exponent)


class Moments(Statistic):
    """Number of rows, sums and sums of products of numeric columns, over complete rows.

    `units`: units of the columns. `n_rows`: complete rows. `n_incomplete`: rows with a missing number, which are left
    out.
    """

    stage = "adding up products"

    def __init__(self, units: Sequence[Unit]) -> None:
        self.units = tuple(units)
        self.n_rows = self.n_incomplete = 0
        self._scales = np.array([(unit.shift, math.ldexp(1.0, -unit.exponent)) for unit in self.units]).reshape(-1, 2)
        d = len(self.units)
        # Python's integers never overflow; those of a pass gather in int64 first.
        self._sums = [0] * d
        self._products = [0] * (d * (d + 1) // 2)
        self._pending: dict[int, Any] = {}
        self._digits = np.zeros((0, 0), np.int32)

    @property
    def spec(self) -> dict[str, Any]:
        """Specification of the statistic."""
        units = [[unit.name, unit.arrow_type, unit.shift.hex(), unit.exponent] for unit in self.units]
        return {"statistic": "moments", "units": units}

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [unit.name for unit in self.units]

    def empty(self) -> Moments:
        """Return a statistic of no rows."""
        return Moments(self.units)

    def update(self, rows: pa.RecordBatch) -> None:
        """Add a record batch.

        Raises UnknownColumn if a column is absent; SchemaError if a column is not numeric, or has a number that is
        infinite or far beyond all others.
        """
        x = []
        for unit in self.units:
            if unit.name not in rows.schema.names:
                raise UnknownColumn(unit.name, rows.schema.names)
            attribute = Attribute(unit.name, "numeric", arrow_type=unit.arrow_type)
            x.append(attribute_numbers(rows.column(rows.schema.names.index(unit.name)), attribute))
        is_complete = np.ones(rows.num_rows, np.uint8)
        n_digits, is_whole = self._n_digits(x, is_complete)
        self._add(x, is_complete, n_digits, is_whole)
        n_complete = int(is_complete.sum())
        self.n_rows += n_complete
        self.n_incomplete += rows.num_rows - n_complete

    def _n_digits(self, x: list[Floats], is_complete: Uint8s) -> tuple[int, bool]:
        """Return the digits of the largest number in these rows, and whether no number is missing; marks incomplete
        rows.
        """
        with np.errstate(invalid="ignore"):
            shifts = self._scales[:, 0]
            bounds = np.array([(c.min(initial=s), c.max(initial=s)) for c, s in zip(x, shifts, strict=True)])
            is_whole = not np.isnan(bounds).any()
            sizes = np.abs((bounds - self._scales[:, :1]) * self._scales[:, 1:]).max(axis=1)
        if not is_whole:
            for column in x:
                is_complete[np.isnan(column)] = 0
            rows = np.flatnonzero(is_complete)
            sizes = np.array(
                [
                    np.abs((column[rows] - shift) * per_unit).max(initial=0.0)
                    for column, (shift, per_unit) in zip(x, self._scales, strict=True)
                ]
            )
        if sizes.max(initial=0.0) < 2.0 ** (DIGIT_BITS - 1):
            return 1, is_whole
        needed = [MOST_DIGITS + 1 if np.isinf(size) else math.frexp(size)[1] // DIGIT_BITS + 1 for size in sizes]
        if max(needed) > MOST_DIGITS:
            i = int(np.argmax(sizes))
            extreme = x[i][np.argmax(np.where(is_complete, np.abs(x[i]), -1.0))]
            unit = self.units[i]
            words = Attribute(unit.name, "numeric", arrow_type=unit.arrow_type).number_text(float(extreme))
            raise SchemaError(
                f"Column {unit.name!r} holds {words}, too far from its other numbers to compute covariances. Replace it by null, or drop the column.",
                unit.name,
            )
        return max(needed), is_whole

    def _add(self, x: list[Floats], is_complete: Uint8s, n_digits: int, is_whole: bool) -> None:
        # Row 0 holds the ones, by which the sums are among the products.
        size = 1 + len(x) * n_digits
        size += size % 2
        n = is_complete.size
        if self._digits.shape[0] != size or self._digits.shape[1] < n:
            self._digits = np.zeros((size, n), np.int32)
        self._digits[0, :n] = is_complete
        for i, column in enumerate(x):
            own = self._digits[1 + i * n_digits : 1 + (i + 1) * n_digits, :n]
            # In base 2^29, balanced around zero, the lowest first; zeros of incomplete rows.
            left = np.rint((column - self._scales[i, 0]) * self._scales[i, 1])
            left = left if is_whole else np.where(is_complete, left, 0.0)
            for digits in own[:-1]:
                higher = np.rint(left * (1.0 / DIGIT))
                digits[:] = left - higher * DIGIT
                left = higher
            own[-1] = left
        halves = self._pending.setdefault(n_digits, np.zeros((2, size, size), np.int64))
        add_moment_digit_products(self._digits, n, halves[0], halves[1])

    def _settle(self) -> None:
        """Move the sums from int64 to Python integers."""
        d = len(self.units)
        for n_digits, (low, high) in self._pending.items():
            whole = [
                [a + (b << 32) for a, b in zip(*rows, strict=True)]
                for rows in zip(low.tolist(), high.tolist(), strict=True)
            ]
            for i in range(d):
                a = 1 + i * n_digits
                self._sums[i] += sum(whole[a + t][0] << (DIGIT_BITS * t) for t in range(n_digits))
                for j in range(i + 1):
                    b = 1 + j * n_digits
                    place = i * (i + 1) // 2 + j
                    for t in range(n_digits):
                        for u in range(n_digits):
                            row, column = max(a + t, b + u), min(a + t, b + u)
                            self._products[place] += whole[row][column] << (DIGIT_BITS * (t + u))
        self._pending = {}

    def _combine(self, other: Moments, sign: int) -> None:
        self._settle()
        other._settle()
        self.n_rows += sign * other.n_rows
        self.n_incomplete += sign * other.n_incomplete
        self._sums = [a + sign * b for a, b in zip(self._sums, other._sums, strict=True)]
        self._products = [a + sign * b for a, b in zip(self._products, other._products, strict=True)]

    def mean(self) -> Floats:
        """Return the mean of each column, (d,) float64. Raises EmptyStatistic without complete rows."""
        self._require_rows()
        return np.array(
            [
                float(Fraction(unit.shift) + Fraction(total, self.n_rows) * _power(unit.exponent))
                for unit, total in zip(self.units, self._sums, strict=True)
            ]
        )

    def scatter(self) -> Floats:
        """Return the sums of products of deviations from the mean, (d, d) float64, each rounded correctly.

        Raises EmptyStatistic without complete rows.
        """
        self._require_rows()
        d = len(self.units)
        sums = np.empty((d, d))
        for i in range(d):
            for j in range(i + 1):
                product = self._products[i * (i + 1) // 2 + j]
                whole = Fraction(self.n_rows * product - self._sums[i] * self._sums[j], self.n_rows)
                scale = _power(self.units[i].exponent + self.units[j].exponent)
                sums[i, j] = sums[j, i] = float(whole * scale)
        return sums

    def _require_rows(self) -> None:
        self._settle()
        if not self.n_rows:
            raise EmptyStatistic("There are no rows in which every column has a number.")

    def to_arrow(self) -> pa.Table:
        """Return a table with one row per sum, as decimal text of any length: numbers of rows, sums, then products."""
        self._settle()
        whole = [self.n_rows, self.n_incomplete, *self._sums, *self._products]
        return pa.table({"sum": pa.array([str(number) for number in whole], pa.string())})

    def from_arrow(self, table: pa.Table) -> Moments:
        """Build the statistic from the output of `to_arrow`."""
        whole = [int(number) for number in table["sum"].to_pylist()]
        read = self.empty()
        d = len(self.units)
        if len(whole) != 2 + d + len(read._products):
            raise StatisticMismatch("The stored moments belong to other columns.")
        read.n_rows, read.n_incomplete = whole[:2]
        read._sums, read._products = whole[2 : 2 + d], whole[2 + d :]
        return read

    def __eq__(self, other: object) -> bool:
        """Return whether the sums are equal."""
        if not isinstance(other, Moments):
            return NotImplemented
        self._settle()
        other._settle()
        return (self.units, self.n_rows, self.n_incomplete, self._sums, self._products) == (
            other.units,
            other.n_rows,
            other.n_incomplete,
            other._sums,
            other._products,
        )


def _power(exponent: int) -> Fraction:
    """Return a power of two."""
    return Fraction(1 << exponent) if exponent >= 0 else Fraction(1, 1 << -exponent)
