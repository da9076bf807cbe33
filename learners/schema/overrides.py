"""Column overrides given by the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, cast

import numpy as np

from learners.errors import InvalidParameter
from learners.schema.reading import DIALECT_FIELDS, FIELDS, Dialect, Reading
from learners.schema.schema import DISTRIBUTIONS, Distribution, Kind, Value
from learners.schema.time_parts import TimePart

DROP, DROPPED = "drop", "dropped by request"
SCREENED = "screened out"
WEIGHT = "the weight of the rows"
MOST_WEIGHT = 1 << 33  # of all rows: sums of losses in whole multiples of 2^-30 stay within 64 bits
MOST_FACTOR = 2.0**1023  # by which weights are multiplied
MOST_CUTS = 65_000  # codes have 16 bits
ALL = "*"  # in place of a column's name: how the values of all columns are written


@dataclass(frozen=True)
class ColumnOverride:
    """User settings of a column; None leaves the decision to the data."""

    kind: Kind | None = None  # "nominal", "numeric" or None
    drop: bool = False  # leave the column out
    order: tuple[Value, ...] | None = None  # the values of a nominal column in code order
    cuts: tuple[float, ...] | None = None  # the cut points of a numeric column, strictly ascending
    # One of DISTRIBUTIONS, "intervals" or None: how a circuit models a numeric column; classifiers see its intervals.
    distribution: Distribution | Literal["intervals"] | None = None
    reading: Reading | None = None  # how its values are written in text files: the fields `FIELDS` of a mapping
    # Of the target: "drop" leaves rows without a class out, anything else is their class.
    null_class: str | int | None = None
    # The column says how often each row counts: True for whole numbers; a number by which they are multiplied and
    # rounded; or (value in words, how often rows with it count), once for all others.
    weight: bool | float | tuple[tuple[str, int], ...] | None = None
    # Found by training and said by nobody: the part by which a column of moments enters.
    part: TimePart | None = None

    @property
    def is_weight(self) -> bool:
        """True if the column holds row weights, and so is not learned from."""
        return bool(self.weight) and not isinstance(self.weight, tuple)

    @classmethod
    def of(cls, column: str, entry: ColumnOverride | Mapping[str, object] | str) -> ColumnOverride:
        """Create an override from a mapping, a kind, or "drop". Raises InvalidParameter naming the column and the
        field.
        """
        if isinstance(entry, ColumnOverride):
            return entry
        if isinstance(entry, str):
            entry = {"drop": True} if entry == "drop" else {"kind": entry}
        where = f"columns[{column!r}]"
        known = [*(field.name for field in fields(cls) if field.name not in ("reading", "part")), *FIELDS]
        known = [*FIELDS, *DIALECT_FIELDS] if column == ALL else known
        unknown = set(entry) - set(known)
        if unknown:
            first = sorted(unknown)[0]
            is_of_files = first in DIALECT_FIELDS
            problem = (
                f"set {first!r} for all columns, under '*'"
                if is_of_files
                else f"unknown field {first!r}; use {', '.join(known)}"
            )
            raise InvalidParameter(where, dict(entry), because=problem)
        kind, distribution = entry.get("kind"), entry.get("distribution")
        if kind not in (None, "nominal", "numeric"):
            raise InvalidParameter(f"{where}.kind", kind, "'nominal', 'numeric' or 'drop'")
        order, cuts = _order(f"{where}.order", entry.get("order")), _cuts(f"{where}.cuts", entry.get("cuts"))
        if distribution not in (None, "intervals", *DISTRIBUTIONS):
            raise InvalidParameter(f"{where}.distribution", distribution, f"{', '.join(DISTRIBUTIONS)} or 'intervals'")
        is_numeric = cuts is not None or distribution is not None
        if is_numeric and (kind == "nominal" or order is not None):
            raise InvalidParameter(where, dict(entry), because="cuts and distribution are for numeric columns only")
        if kind is None:
            kind = "nominal" if order is not None else "numeric" if is_numeric else None
        return cls(
            kind,
            bool(entry.get("drop", False)),
            order,
            cuts,
            cast('Distribution | Literal["intervals"] | None', distribution),
            _reading(column, entry),
            _null_class(f"{where}.null_class", entry.get("null_class")),
            _weight(where, entry),
        )


Overrides = Mapping[str, ColumnOverride | Mapping[str, object] | str]


def declared_column_reading(overrides: Mapping[str, ColumnOverride], name: str) -> Reading | None:
    """Return how the values of a column are written, from its own override and that of all columns."""
    own, of_all = (overrides[key].reading if key in overrides else None for key in (name, ALL))
    reading = of_all if own is None else own.within(of_all)
    if reading is None or reading.dialect is None:
        return reading
    return replace(reading, dialect=None) if reading != Reading() else None


def declared_dialect(overrides: Mapping[str, ColumnOverride]) -> Dialect | None:
    """Return the declared dialect of CSV files, if any."""
    reading = overrides[ALL].reading if ALL in overrides else None
    return None if reading is None else reading.dialect


def _null_class(where: str, instead: object) -> str | int | None:
    if instead is not None and (isinstance(instead, bool) or not isinstance(instead, str | int) or instead == ""):
        raise InvalidParameter(
            where, instead, f"{DROP!r}, which leaves rows without a class out, or the class to give them"
        )
    return instead


def _weight(where: str, entry: Mapping[str, object]) -> bool | float | tuple[tuple[str, int], ...] | None:
    weight = entry.get("weight")
    if weight is None or weight is False:
        return None
    if isinstance(weight, Mapping):
        return _weights_of_values(f"{where}.weight", weight)
    if not isinstance(weight, int | float) or not 0 < weight < MOST_FACTOR:
        raise InvalidParameter(
            f"{where}.weight",
            weight,
            "true (whole numbers), a factor by which fractions are multiplied before they are rounded, or a mapping from values to counts",
        )
    if set(entry) != {"weight"}:
        raise InvalidParameter(where, dict(entry), because="a column of weights takes no other setting")
    return weight


def _weights_of_values(where: str, counts: Mapping[object, object]) -> tuple[tuple[str, int], ...]:
    weights = []
    for value, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_WEIGHT:
            raise InvalidParameter(
                f"{where}[{value!r}]",
                count,
                f"a whole number up to {MOST_WEIGHT:,}: how often a row with this value counts",
            )
        weights.append((str(value), count))
    if not weights:
        raise InvalidParameter(where, {}, "a mapping from values to how often a row with that value counts")
    return tuple(weights)


def _reading(column: str, entry: Mapping[str, object]) -> Reading | None:
    """Return the reading of a column's values; for all columns, with the dialect of the files."""
    reading = Reading.of(column, {name: entry[name] for name in FIELDS if name in entry})
    dialect = Dialect.of({name: entry[name] for name in DIALECT_FIELDS if name in entry})
    return reading if dialect is None else replace(reading or Reading(), dialect=dialect)


def _order(where: str, values: object) -> tuple[Value, ...] | None:
    if values is None:
        return None
    if not isinstance(values, Sequence) or isinstance(values, str) or not all(map(_is_value, values)):
        raise InvalidParameter(where, values, "a list of texts, whole numbers of 64 bits, or true and false")
    if len({type(value) for value in values}) > 1:
        raise InvalidParameter(where, values, because="its values must have one type")
    if not values or len(set(values)) != len(values):
        raise InvalidParameter(where, values, because="each value may appear once only")
    return tuple(values)


def _is_value(value: object) -> bool:
    """Return whether a nominal column can have this value: text, a whole number of 64 bits, or true or false."""
    if isinstance(value, str):
        return not any("\ud800" <= character <= "\udfff" for character in value)  # halves of characters
    return isinstance(value, int) and -(2**63) <= value < 2**63


def _cuts(where: str, cuts: object) -> tuple[float, ...] | None:
    if cuts is None:
        return None
    try:
        numbers = tuple(float(cut) for cut in cast("Iterable[float]", cuts))
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(where, cuts, "finite numbers") from None
    if len(numbers) > MOST_CUTS:
        raise InvalidParameter(where, len(numbers), f"at most {MOST_CUTS:,} numbers")
    if not all(np.isfinite(numbers)) or any(a >= b for a, b in zip(numbers, numbers[1:], strict=False)):
        raise InvalidParameter(where, cuts, "finite numbers, strictly ascending")
    return numbers
