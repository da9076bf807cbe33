"""Summaries of single columns in the schema pass, and warnings about information that a schema omits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import InvalidParameter, SchemaError, columns_setting, setting
from learners.kernels.arrays import Floats, Integers
from learners.schema.category_counts import ValueTally
from learners.schema.discretise import EXACT, Histogram, Tally, floats_from_ordered_keys
from learners.schema.nominal_forms import canonical_nominal_values, value_words
from learners.schema.overrides import (
    DROPPED,
    SCREENED,
    WEIGHT,
    ColumnOverride,
    declared_column_reading,
    declared_dialect,
)
from learners.schema.schema import NO_CUT, Attribute, LeftOut, Schema, Value
from learners.schema.times_and_durations import clock_kind_and_ticks

NEARLY_CONSTANT = "nearly constant: its other values are too few for an interval of their own"
IDENTIFIER_SHARE = 0.9
SMALL_TABLE = 20
WIDEST_NULL = 256  # bytes
PANDAS_INDEX = re.compile(r"__index_level_\d+__")
_NUMBERS = re.compile(r"u?int|halffloat|float|double|decimal")
ONE_VALUE = "one value only"
# Such columns tell nothing of the class, or were left out on purpose: nothing is lost with them.
HARMLESS = (NO_CUT, NEARLY_CONSTANT, ONE_VALUE, "constant", DROPPED, SCREENED, WEIGHT)


@dataclass
class Column:
    """Summary of one column: nominal values, or numbers in `merged` and `tally`; `histogram` combines both."""

    arrow_type: str = "null"
    kind: str = "empty"
    n_missing: int = 0
    values: ValueTally = field(default_factory=ValueTally)
    merged: Histogram = field(default_factory=Histogram.empty)
    tally: Tally | None = None
    types: dict[str, int] | None = field(default_factory=dict)  # type -> rows; None as an earlier release has stored it
    is_uncertain: bool = False  # whether rows were subtracted that leave nobody knows what

    @property
    def counts(self) -> dict[Value, int]:
        """Rows of each nominal value."""
        return self.values.counts

    @property
    def is_overfull(self) -> bool:
        """True if there were too many nominal values to count."""
        return self.values.is_overfull

    @property
    def histogram(self) -> Histogram:
        """Histogram of all numbers so far."""
        if self.tally is not None:
            tallied, self.tally = self.tally.histogram(), None
            n_classes = max(tallied.counts.shape[1], self.merged.counts.shape[1])
            self.merged = self.merged.widened(n_classes).merge(tallied.widened(n_classes))
        return self.merged

    @histogram.setter
    def histogram(self, found: Histogram) -> None:
        self.merged, self.tally = found, None

    def add_numbers(self, x: Floats, y: Integers, n_classes: int) -> None:
        """Count numbers (n,), NaN where missing, by class (n,) int64."""
        if self.tally is None:
            self.tally = Tally(self.merged.level)
        self.n_missing += self.tally.add(x, y, n_classes)

    @property
    def constant(self) -> str:
        """Reason why a column with a single number cannot be used; large numbers may have been rounded to it."""
        size = np.abs(floats_from_ordered_keys(self.histogram.keys)).max(initial=0.0)
        is_rounded = self.arrow_type.startswith("decimal") or EXACT <= size < np.inf
        return f"{ONE_VALUE} in double precision" if is_rounded else ONE_VALUE

    def pandas_index(self, name: str) -> str:
        """Return the reason for omitting a column that looks like a saved pandas index, usually row numbers; else
        empty.
        """
        is_whole = self.arrow_type.startswith(("int", "uint")) and not self.n_missing
        if not PANDAS_INDEX.fullmatch(name) and not (name in ("", "Unnamed: 0") and is_whole):
            return ""
        return f"an index that pandas has saved; to learn from it, give its kind in columns: {{{name!r}: …}}"

    def has_states(self, most: int) -> bool:
        """Return whether all numbers are integers, with at most `most` distinct values, and not times."""
        histogram = self.histogram
        if histogram.keys.size > most or histogram.level or not _NUMBERS.match(self.arrow_type):
            return False
        numbers = floats_from_ordered_keys(histogram.keys)
        return bool(np.all(np.abs(numbers) < EXACT) and np.all(np.mod(numbers, 1.0) == 0))

    def states(self) -> dict[Value, int]:
        """Return the integers and the rows of each."""
        numbers = floats_from_ordered_keys(self.histogram.keys).tolist()
        return {int(x): int(n) for x, n in zip(numbers, self.histogram.counts.sum(axis=1), strict=True)}

    def as_states(self, name: str) -> Column:
        """Convert to a nominal column. Raises SchemaError if numbers are not integers."""
        if self.kind != "numeric":
            return self
        if not self.has_states(self.histogram.keys.size):
            raise fractional_states_error(name)
        return Column(self.arrow_type, "nominal", self.n_missing, ValueTally(self.states()), types=self.types)

    def most_frequent(self, max_values: int) -> tuple[tuple[Value, ...], int]:
        """Return the most frequent values, in code order, which get codes, and the number of other values."""
        counts = self.counts
        values = sorted(counts, key=lambda value: (-counts[value], value))
        return tuple(sorted(values[:max_values])), max(0, len(values) - max_values)

    def has_type(self, arrow_type: str, kind: str, name: str, rows: Mapping[str, int] | None) -> None:
        """Record the type; if files differ (int32, double), the result does not depend on their order.

        `rows`: of each type.
        Raises SchemaError if they count time in different units, as their numbers do not compare.
        """
        if kind == self.kind == "numeric" and clock_kind_and_ticks(arrow_type) != clock_kind_and_ticks(self.arrow_type):
            raise SchemaError(
                f"Column {name!r} holds {arrow_type} here, but {self.arrow_type} elsewhere. Make the units agree.", name
            )
        self.arrow_type = arrow_type if self.kind == "empty" else min(self.arrow_type, arrow_type)
        self.kind = kind
        own = self.types
        self.types = None if own is None or rows is None else {t: own.get(t, 0) + rows.get(t, 0) for t in [*own, *rows]}

    def merge(self, other: Column, name: str, place: Integers, n_classes: int) -> None:
        """Add the rows of another summary; its class j is place[j] of n_classes here. Raises SchemaError as `has_type`."""
        if other.kind != "empty":
            self.has_type(other.arrow_type, other.kind, name, other.types)
        self.n_missing += other.n_missing
        self.is_uncertain |= other.is_uncertain
        self.values.merge(other.values)
        here = np.arange(self.histogram.counts.shape[1])
        there = place[: other.histogram.counts.shape[1]]
        grown = self.histogram.with_classes(here, n_classes)
        self.histogram = grown.merge(other.histogram.with_classes(there, n_classes))

    def subtract(self, other: Column, place: Integers, n_classes: int) -> None:
        """Subtract rows that were counted here; classes as in `merge`.

        With a coarse histogram, or too many values to count, the summary of the remaining rows is unknown: this sets
        `is_uncertain`.
        """
        if other.types is None or self.types is None:
            self.is_uncertain |= other.kind != "empty"
        else:
            left = {name: n - other.types.get(name, 0) for name, n in self.types.items()}
            self.types = {name: n for name, n in left.items() if n}
            self.arrow_type = min(self.types, default="null")
            self.kind = self.kind if self.types else "empty"
        self.n_missing -= other.n_missing
        self.is_uncertain |= self.is_overfull or self.histogram.level > 0
        self.values.subtract(other.values)
        if not self.is_uncertain:
            here = np.arange(self.histogram.counts.shape[1])
            there = place[: other.histogram.counts.shape[1]]
            whole = self.histogram.with_classes(here, n_classes)
            self.histogram = whole.without(other.histogram.with_classes(there, n_classes))


def is_numeric_nominal(attribute: Attribute) -> bool:
    """Return whether the values of a nominal attribute are numbers."""
    return attribute.kind == "nominal" and _NUMBERS.match(attribute.arrow_type) is not None


def is_whole_number_column(column: pa.Array) -> bool:
    """Return whether all numbers of a column are integers."""
    if not (pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return True
    x = pc.drop_null(pc.cast(column, pa.float64(), safe=False)).to_numpy(zero_copy_only=False)
    return bool(np.all((np.mod(x, 1.0) == 0) | np.isnan(x)))


def fractional_states_error(name: str) -> SchemaError:
    """Create the error for fractions in a column that was learned as integer states."""
    return SchemaError(
        f"Column {name!r} was learned as states, which are whole numbers, but now has fractions. Train once without the earlier schema, "
        f"or with {columns_setting({name: {'kind': 'numeric'}})}.",
        name,
    )


def column_kind_by_type(arrow_type: pa.DataType, override: ColumnOverride | None) -> str:
    """Return "nominal", "numeric" or "unsupported" by type alone, so that it does not depend on the values of a file."""
    value_type = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    textual = (
        pa.types.is_string(value_type) or pa.types.is_large_string(value_type) or pa.types.is_string_view(value_type)
    )
    numeric = (
        pa.types.is_integer(value_type)
        or pa.types.is_floating(value_type)
        or pa.types.is_decimal(value_type)
        or (pa.types.is_temporal(value_type) and not pa.types.is_interval(value_type))
    )
    if not (textual or numeric or pa.types.is_boolean(value_type)):
        return "unsupported"
    if override is not None and override.kind is not None:
        return "text as numeric" if override.kind == "numeric" and textual else override.kind
    if pa.types.is_dictionary(arrow_type) or textual or pa.types.is_boolean(value_type):
        return "nominal"
    return "nominal" if value_type in (pa.int8(), pa.uint8()) else "numeric"


def compact_null_column(kind: pa.DataType, n_rows: int) -> pa.Array:
    """Create a compact column of nulls of a type, dictionary-encoded if a null takes as much memory as a value."""
    if _null_bytes(kind) <= WIDEST_NULL:
        return pa.nulls(n_rows, kind)
    return pa.DictionaryArray.from_arrays(pa.nulls(n_rows, pa.int32()), pa.array([], kind))


def _null_bytes(kind: pa.DataType) -> int:
    if pa.types.is_struct(kind):
        return sum(_null_bytes(field.type) for field in kind)
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * _null_bytes(kind.value_type)
    return kind.byte_width if pa.types.is_fixed_size_binary(kind) else 16


def nominal_attribute(
    name: str, column: Column, override: ColumnOverride, n_rows: int, max_values: int
) -> Attribute | LeftOut:
    """Return the attribute of a nominal column, or the reason for omitting a constant or identifier.

    Raises InvalidParameter if the user lists more values than an attribute may have.
    """
    has_missing = column.n_missing > 0
    if column.is_overfull:
        return LeftOut(name, column.values.too_many)
    n_present = n_rows - column.n_missing
    n_distinct = len(column.counts)
    if override.order is not None:
        order = canonical_nominal_values(override.order, column.arrow_type)
        unlisted = sorted((v for v in column.counts if v not in set(order)), key=str)
        if len(override.order) > max_values:
            raise InvalidParameter(
                f"columns[{name!r}].order", len(override.order), f"at most max_values={max_values} values"
            )
        return Attribute(name, "nominal", order, (), has_missing, column.arrow_type, len(unlisted))
    if n_distinct + int(has_missing) < 2:
        return LeftOut(name, ONE_VALUE)
    if override.kind is None and n_present > SMALL_TABLE and n_distinct > IDENTIFIER_SHARE * n_present:
        return LeftOut(name, f"nearly unique ({n_distinct:,} different values in {n_present:,} rows): an identifier")
    values, n_folded = column.most_frequent(max_values)
    return Attribute(name, "nominal", values, (), has_missing, column.arrow_type, n_folded)


def reorder_columns(columns: Mapping[str, Column], names: Iterable[str]) -> dict[str, Column]:
    """Order the columns by these names; the others follow."""
    place = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return dict(sorted(columns.items(), key=lambda item: place.get(item[0], len(place))))


def schema_with_overrides(schema: Schema, overrides: Mapping[str, ColumnOverride]) -> Schema:
    """Add the declared dialect and the rule for null classes to the schema.

    Raises InvalidParameter if a weight names a class that does not exist.
    """
    of_target = overrides.get(schema.target or "")
    null_class, weight = (None, None) if of_target is None else (of_target.null_class, of_target.weight)
    words = {word for value in _class_values(schema) for word in value_words(value)}
    for name, count in weight if isinstance(weight, tuple) else ():
        if count and name not in words:
            some = ", ".join(map(repr, schema.classes[:6])) + (", …" if schema.n_classes > 6 else "")
            raise InvalidParameter(f"columns[{schema.target!r}].weight", name, f"one of the classes {some}")
    dialect = declared_dialect(overrides) or schema.dialect
    reading = None if schema.target is None else declared_column_reading(overrides, schema.target)
    return replace(
        schema,
        dialect=dialect,
        null_class=schema.null_class if null_class is None else null_class,
        class_reading=schema.class_reading if reading is None else reading,
    )


def _class_values(schema: Schema) -> list[str | bool]:
    return [name == "True" for name in schema.classes] if schema.class_type == "bool" else list(schema.classes)


def refresh_schema_domains(
    kept: Schema,
    columns: Mapping[str, Column],
    overrides: Mapping[str, ColumnOverride],
    max_values: int,
    classes: Sequence[Value],
) -> Schema:
    """Update the domains of the kept attributes from the columns.

    Raises SchemaError if a column has too many values to count.
    """
    attributes = []
    for attribute in kept.attributes:
        column = columns.get(attribute.name, Column())
        if column.is_overfull:
            raise SchemaError(
                f"Column {attribute.name!r} has {column.values.too_many} now. "
                "Train once without the earlier schema, or drop the column.",
                attribute.name,
            )
        values, n_folded = attribute.values, 0
        is_given = attribute.name in overrides and overrides[attribute.name].order is not None
        if attribute.kind == "nominal" and (attribute.n_folded or is_given):
            # What is folded cannot be told apart any more, so the values that have a code keep it.
            n_others = sum(value not in set(values) for value in column.counts)
            n_folded = max(n_others, int(attribute.n_folded > 0))
        elif attribute.kind == "nominal":
            values, n_folded = column.most_frequent(max_values)
        has_missing = column.n_missing > 0
        attributes.append(replace(attribute, values=values, has_missing=has_missing, n_folded=n_folded))
    return replace(kept, attributes=tuple(attributes), classes=tuple(str(name) for name in classes))


def value_count_structs(counts: Mapping[Value, int], order: Iterable[Value]) -> list[dict[str, object]]:
    """Convert value counts to structs for an Arrow column."""

    def slot(value: Value) -> str:
        return "text" if isinstance(value, str) else "bool" if isinstance(value, bool) else "number"

    return [{slot(value): value, "count": counts[value]} for value in order]


def list_column_item(column: pa.ListArray, i: int) -> Integers:
    """Return one list of a list column, (n,) int64; empty if it is null."""
    first, last = column.offsets[i].as_py(), column.offsets[i + 1].as_py()
    return np.array(column.values[first:last].to_numpy(), np.int64)


class FoldingCost(NamedTuple):
    """Possible cost of folding the rare values of a column."""

    share: float  # of the rows, those with a folded value
    most_nats: float  # of information about the class that is lost, at most


NO_COSTS: Mapping[str, FoldingCost] = {}


def schema_loss_warnings(schema: Schema, costs: Mapping[str, FoldingCost] = NO_COSTS) -> list[str]:
    """Return one warning for each column that is unused, or not used with all its values.

    `schema`: as it was inferred from a table.
    `costs`: known costs of folding, by the name of the column.
    """
    lost = [
        f"Column {entry.name!r} is left out: {entry.reason}."
        for entry in schema.left_out
        if not entry.reason.startswith(HARMLESS)
    ]
    lost += [
        f"Column {own.name!r} is learned by its {own.part} alone{' (in UTC)' if 'tz=' in own.arrow_type else ''}: later rows are predicted better that way ({setting('holdout_by', 'random')} keeps it whole)."
        for own in schema.attributes
        if own.part is not None
    ]
    return lost + [_of_folding(own, costs.get(own.name)) for own in schema.attributes if own.n_folded]


def _of_folding(attribute: Attribute, cost: FoldingCost | None) -> str:
    text = f"Column {attribute.name!r}: the {len(attribute.values):,} most frequent values have codes of their own; {attribute.n_folded:,} rarer ones share one"
    if cost is not None:
        text += f", in {cost.share:.1%} of the rows: separate codes would lower the log loss by at most {cost.most_nats:.3g}"
    return f"{text}. Raise max_values to keep more."
