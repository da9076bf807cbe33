"""The schema pass: summarize the values of each column and derive the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import EmptyData, InvalidParameter, SchemaError, UnknownColumn
from learners.kernels.arrays import Integers
from learners.passes.statistic import Statistic
from learners.passes.stored_summaries import read_summaries_table, summaries_table
from learners.schema.category_counts import (
    category_python_values,
    category_value_counts,
    check_class_count,
    check_rows_per_class,
    distinct_classes,
)
from learners.schema.discretise import (
    Histogram,
    equal_frequency_cut_points,
    histogram_quantiles,
    mdl_cut_points,
    quantile_cut_points,
)
from learners.schema.encoding.encode import numeric_column_as_floats
from learners.schema.overrides import ALL, DROPPED, WEIGHT, ColumnOverride, Overrides, declared_column_reading
from learners.schema.schema import FEW_CLASSES, NO_CUT, Attribute, LeftOut, Schema, Value
from learners.schema.schema_inference import (
    NEARLY_CONSTANT,
    Column,
    column_kind_by_type,
    fractional_states_error,
    is_numeric_nominal,
    is_whole_number_column,
    nominal_attribute,
    refresh_schema_domains,
    reorder_columns,
    schema_with_overrides,
)
from learners.schema.time_parts import CYCLES

CutPoints = Callable[[str, Histogram], tuple[float, ...]]
NO_CUTS: Mapping[str, tuple[float, ...]] = {}


class ColumnSummaries(Statistic):
    """Distinct values of nominal columns and class histograms of numeric ones, in one pass over record batches.

    `target`: the class column; None for an unsupervised model.
    `overrides`: column name to `ColumnOverride`, or what `ColumnOverride.of` reads.
    `max_values`: a nominal column keeps this many values, the most frequent ones; the rest share one code, and the
    schema says how many they are.
    `n_bins`: equal-frequency intervals of a numeric column where there is no target.
    `kept`: of an earlier training, whose attributes and cut points are kept: only domains are counted, without
    histograms.
    `max_classes`: a target of more classes is refused.
    `max_states`: the most different numbers, all whole, with which a numeric column becomes nominal; 0 keeps all numeric.
    `only`: the columns to summarise; None for all. Raises InvalidParameter.
    """

    def __init__(
        self,
        target: str | None,
        overrides: Overrides | None = None,
        *,
        max_values: int = 1024,
        n_bins: int = 8,
        kept: Schema | None = None,
        max_classes: int = FEW_CLASSES,
        max_states: int = 0,
        only: frozenset[str] | None = None,
    ) -> None:
        if not 2 <= max_values <= 65_000:
            raise InvalidParameter("max_values", max_values, "from 2 to 65,000")
        self.target, self.max_values, self.n_bins, self.kept = target, max_values, n_bins, kept
        self.max_classes, self.max_states, self.only = max_classes, max_states, only
        self.overrides = {name: ColumnOverride.of(name, entry) for name, entry in (overrides or {}).items()}
        if target is not None and target in self.overrides and self.overrides[target].drop:
            raise InvalidParameter(f"columns[{target!r}]", "drop", because="the target cannot be dropped")
        self.n_rows = 0
        self.found: dict[str, Column] = {}
        self.classes: list[Value] = []
        self.class_counts: dict[Value, int] = {}

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic; it includes kinds and dropped columns, not orders or cut points."""
        kinds = {
            name: "dropped" if override.drop else override.kind
            for name, override in sorted(self.overrides.items())
            if override.drop or override.kind
        }
        spec: dict[str, object] = {"statistic": "column summaries", "target": self.target, "kinds": kinds}
        spec |= {} if self.only is None else {"only": sorted(self.only)}
        return spec if self.kept is None else spec | {"domains_of": self._names()}

    @property
    def stage(self) -> str:
        """Name of the pass, for progress messages."""
        return "reading the schema" if self.kept is None else "reading the domains"

    @property
    def columns(self) -> list[str] | None:
        """Columns to read; None for all."""
        if self.only is not None:
            return [*sorted(self.only), *([] if self.target is None else [self.target])]
        return None if self.kept is None else self.kept.columns

    @property
    def is_sufficient(self) -> bool:
        """True if all columns are known; subtraction may leave uncertain ones, see `Column.subtract`."""
        return not any(column.is_uncertain for column in self.found.values())

    def remainder(self) -> ColumnSummaries:
        """Return empty summaries of the uncertain columns."""
        return self._empty(frozenset(name for name, column in self.found.items() if column.is_uncertain))

    def completed(self, rest: ColumnSummaries) -> ColumnSummaries:
        """Replace the summaries of columns that were counted again."""
        place = self._class_places(rest)
        for name in rest.only or ():
            self.found[name] = Column()
            self.found[name].merge(rest.found[name], name, place, len(self.classes))
        return self

    @cached_property
    def _states(self) -> frozenset[str]:
        """Numeric columns that the kept schema treats as nominal states."""
        kept = () if self.kept is None else self.kept.attributes
        return frozenset(attribute.name for attribute in kept if is_numeric_nominal(attribute))

    def _names(self) -> list[str]:
        assert self.kept is not None
        return sorted(attribute.name for attribute in self.kept.attributes)

    def can_read(self, spec: Mapping[str, object]) -> bool:
        """Return whether `from_stored` accepts this specification; summaries of all columns include the domains."""
        of_all = {name: entry for name, entry in self.spec.items() if name != "domains_of"}
        return spec in (self.spec, of_all)

    def empty(self) -> ColumnSummaries:
        """Return summaries of no rows with the same settings."""
        return self._empty(self.only)

    def _empty(self, only: frozenset[str] | None) -> ColumnSummaries:
        limits = {"max_values": self.max_values, "n_bins": self.n_bins, "max_classes": self.max_classes}
        return ColumnSummaries(
            self.target, self.overrides, kept=self.kept, max_states=self.max_states, only=only, **limits
        )

    def update(self, rows: pa.RecordBatch) -> None:
        """Add a record batch. Raises UnknownColumn or SchemaError."""
        is_whole = self.kept is None and self.only is None
        required = [name for name in self.overrides if name != ALL] if is_whole else []
        for name in [*required, *([self.target] if self.target is not None else [])]:
            if name not in rows.schema.names:
                raise UnknownColumn(name, rows.schema.names)
        self.n_rows += rows.num_rows
        y = self._update_classes(rows)
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            if name != self.target:
                self._update_column(name, column, y)

    def _update_classes(self, rows: pa.RecordBatch) -> Integers:
        if self.target is None:
            self.classes = [""]
            self.class_counts[""] = self.class_counts.get("", 0) + rows.num_rows
            return np.zeros(rows.num_rows, np.int64)
        column = rows.column(rows.schema.names.index(self.target))
        if not pa.types.is_null(column.type) and column_kind_by_type(column.type, None) == "unsupported":
            raise SchemaError(
                f"The target {self.target!r} holds {column.type}. Use text, whole numbers or booleans.", self.target
            )
        values, index = distinct_classes(column, self.target)
        counts = np.bincount(index, minlength=len(values))
        known = {value: j for j, value in enumerate(self.classes)}
        position = np.zeros(len(values), np.int64)
        for j, value in enumerate(category_python_values(values, self.target)):
            if counts[j] == 0:
                continue
            if value not in known:
                known[value] = len(self.classes)
                self.classes.append(value)
            position[j] = known[value]
            self.class_counts[value] = self.class_counts.get(value, 0) + int(counts[j])
        check_class_count(self.target, len(self.classes), self.max_classes, {type(v) for v in self.classes} == {int})
        return position[index]

    def _update_column(self, name: str, column: pa.Array, y: Integers) -> None:
        override = self.overrides.get(name)
        if self.kept is not None and name in self._states:
            override = ColumnOverride(kind="nominal")
        seen = self.found.setdefault(name, Column())
        if not len(column) or (override is not None and (override.drop or override.is_weight)):
            return
        if pa.types.is_null(column.type):
            seen.n_missing += len(column)
            return
        arrow_type = str(column.type)
        seen.has_type(arrow_type, column_kind_by_type(column.type, override), name, {arrow_type: len(column)})
        if seen.kind == "nominal":
            if name in self._states and not is_whole_number_column(column):
                raise fractional_states_error(name)
            values, counts, n_missing = category_value_counts(column, name)
            seen.n_missing += n_missing
            seen.values.add(values, counts, name)
        elif seen.kind == "numeric":
            if self.kept is not None:
                seen.n_missing += int(pc.sum(pc.is_null(column, nan_is_null=True)).as_py() or 0)
                return
            seen.add_numbers(numeric_column_as_floats(column, name), y, len(self.classes))

    def _combine(self, other: ColumnSummaries, sign: int) -> None:
        if sign < 0:
            self._take_away(other)
            return
        self.n_rows += other.n_rows
        for value in other.classes:
            if value not in self.class_counts:
                self.classes.append(value)
            self.class_counts[value] = self.class_counts.get(value, 0) + other.class_counts[value]
        place = self._class_places(other)
        for name, theirs in other.found.items():
            self.found.setdefault(name, Column()).merge(theirs, name, place, len(self.classes))

    def _class_places(self, other: ColumnSummaries) -> Integers:
        """Map the classes of other summaries to positions here."""
        codes = {value: j for j, value in enumerate(self.classes)}
        return np.array([codes[value] for value in other.classes], dtype=np.int64)

    def _take_away(self, other: ColumnSummaries) -> None:
        self.n_rows -= other.n_rows
        place, n_classes = self._class_places(other), len(self.classes)
        for name, theirs in other.found.items():
            self.found[name].subtract(theirs, place, n_classes)
        for value, count in other.class_counts.items():
            self.class_counts[value] -= count
        is_left = np.array([self.class_counts[value] > 0 for value in self.classes], bool)
        self.class_counts = {value: count for value, count in self.class_counts.items() if count}
        self.classes = [value for value in self.classes if value in self.class_counts]
        for column in self.found.values():
            own = column.histogram.counts
            column.histogram = replace(column.histogram, counts=own[:, is_left[: own.shape[1]]])
        if not self.n_rows:
            self.found = {}

    def order_columns(self, names: Sequence[str]) -> None:
        """Reorder the columns."""
        self.found = reorder_columns(self.found, names)

    def build_schema(self, cut_points: CutPoints | None = None, *, by_name: bool = True) -> Schema:
        """Build the schema: sort domains, find cut points, and drop useless columns with a reason.

        `cut_points`: finds those of a numeric column from its name and histogram; by default MDL's with a target, and equal
        frequencies without.
        `by_name`: whether attributes are in the order of their names, so that no model depends on that of the columns.
        Raises EmptyData if there were no rows; SchemaError if the target has a single value, or no column is left.
        """
        if not self.n_rows:
            raise EmptyData("There are no rows to learn from.")
        order = sorted(range(len(self.classes)), key=lambda j: self.classes[j])
        if self.target is not None and len(order) < 2:
            raise SchemaError(
                f"The target {self.target!r} has only one class, {self.classes[0]!r}: a classifier needs at least two.",
                self.target,
            )
        are_numbers = type(self.classes[0]) is int
        check_rows_per_class(self.target, len(order), self.max_classes, self.n_rows, are_numbers)
        classes = [self.classes[j] for j in order]
        if self.kept is not None:
            now = refresh_schema_domains(self.kept, self.found, self.overrides, self.max_values, classes)
            return schema_with_overrides(now, self.overrides)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        attributes: list[Attribute] = []
        left_out: list[LeftOut] = []
        for name, column in sorted(self.found.items()) if by_name else self.found.items():
            finding = self._attribute(name, column, place, cut_points)
            if isinstance(finding, Attribute):
                attributes.append(replace(finding, reading=declared_column_reading(self.overrides, name)))
            else:
                left_out.append(finding)
        # Numbers that tell nothing of the class leave a model that answers with the classes' shares; anything else is a mistake.
        if not attributes and not any(entry.reason in (NO_CUT, NEARLY_CONSTANT) for entry in left_out):
            reasons = "; ".join(f"{entry.name}: {entry.reason}" for entry in left_out[:5])
            raise SchemaError(f"No column is left to learn from ({reasons or 'the table has the target only'}).")
        class_type = "string" if isinstance(classes[0], str) else "bool" if isinstance(classes[0], bool) else "int64"
        schema = Schema(tuple(attributes), self.target, tuple(map(str, classes)), class_type, tuple(left_out))
        return schema_with_overrides(schema, self.overrides)

    def _attribute(
        self, name: str, column: Column, place: Integers, cut_points: CutPoints | None
    ) -> Attribute | LeftOut:
        override = self.overrides.get(name, ColumnOverride())
        has_missing = column.n_missing > 0
        if override.drop or override.is_weight:
            return LeftOut(name, DROPPED if override.drop else WEIGHT)
        is_given = override.order is not None or override.cuts is not None
        if column.kind == "empty" or (column.n_missing == self.n_rows and not is_given):
            return LeftOut(name, "every value is missing")
        if override.kind is None and (reason := column.pandas_index(name)):
            return LeftOut(name, reason)
        if column.kind == "unsupported":
            return LeftOut(name, f"its type {column.arrow_type} is not supported; flatten or convert it")
        if column.kind == "text as numeric":
            raise SchemaError(f"Column {name!r} holds text and cannot be numeric. Convert it to numbers first.", name)
        if column.kind == "numeric":
            histogram = column.histogram.with_classes(place[: column.histogram.counts.shape[1]], len(place))
            cuts = override.cuts if override.part is None else CYCLES[override.part].cuts
            if cuts is None and histogram.keys.size < 2 and not has_missing:
                return LeftOut(name, column.constant)
            if cuts is None and override.kind is None and column.has_states(self.max_states):
                return Attribute(name, "nominal", tuple(column.states()), (), has_missing, column.arrow_type)
            if cuts is None:
                cuts = (cut_points or self._cut_points)(name, histogram)
            if not cuts and not has_missing:
                return LeftOut(name, NEARLY_CONSTANT if cut_points or self.target is None else NO_CUT)
            attribute = Attribute(name, "numeric", cuts=cuts, has_missing=has_missing, arrow_type=column.arrow_type)
            if override.part is not None:
                return replace(attribute, part=override.part)
            return replace(attribute, quantiles=histogram_quantiles(column.histogram))
        return nominal_attribute(name, column, override, self.n_rows, self.max_values)

    def _cut_points(self, _: str, histogram: Histogram) -> tuple[float, ...]:
        return (
            mdl_cut_points(histogram) if self.target is not None else equal_frequency_cut_points(histogram, self.n_bins)
        )

    def to_arrow(self) -> pa.Table:
        """Return one row per column, the target first."""
        return summaries_table(self.target, self.n_rows, self.class_counts, self.found)

    def from_arrow(self, table: pa.Table) -> ColumnSummaries:
        """Build the summaries from the output of `to_arrow`."""
        summaries = self.empty()
        summaries.n_rows, summaries.class_counts, summaries.found = read_summaries_table(table)
        summaries.classes = list(summaries.class_counts)
        return summaries

    def from_stored(self, table: pa.Table, spec: Mapping[str, object]) -> ColumnSummaries:
        """Build these summaries from the `to_arrow` table of summaries with this specification."""
        summaries = self.from_arrow(table)
        return summaries if self.kept is None or "domains_of" in spec else summaries.domains_of(self.kept)

    def domains_of(self, kept: Schema) -> ColumnSummaries:
        """Restrict to the domains of another schema's attributes. Raises SchemaError if integer states have become
        fractions.
        """
        domains = self._empty(self.only)
        domains.kept, domains.n_rows = kept, self.n_rows
        domains.classes, domains.class_counts = list(self.classes), dict(self.class_counts)
        domains.found = {
            name: c.as_states(name) if name in domains._states else replace(c, merged=Histogram.empty(), tally=None)
            for name, c in self.found.items()
            if name in set(domains._names())
        }
        return domains

    def __eq__(self, other: object) -> bool:
        """Return whether the same rows were counted; the order of classes and columns does not matter."""
        if not isinstance(other, ColumnSummaries):
            return NotImplemented
        return self.spec == other.spec and self._canonical() == other._canonical()

    def _canonical(self) -> dict[str, object]:
        order = sorted(range(len(self.classes)), key=lambda j: self.classes[j])
        columns = {}
        for name, c in self.found.items():
            counts = c.histogram.with_classes(np.arange(c.histogram.counts.shape[1]), len(order)).counts[:, order]
            columns[name] = (c.arrow_type, c.kind, c.types, c.n_missing, c.counts, c.is_overfull, c.histogram.level,
                             c.histogram.keys.tolist(), counts.tolist())  # fmt: skip
        return {"rows": self.n_rows, "classes": self.class_counts, "columns": columns}


def quantile_binned_schema(
    summaries: ColumnSummaries,
    max_bin: int,
    known: Mapping[str, tuple[float, ...]] = NO_CUTS,
    *,
    by_name: bool = True,
) -> Schema:
    """Build a schema with at most `max_bin` intervals per numeric column, without regard to the class.

    With bins in the schema, trees use codes that every model file, job and request supports.

    `summaries`: with a target.
    `max_bin`: a column with no more distinct values keeps them all apart; cut points that the user gave stay.
    `known`: cut points of columns that have them from elsewhere.
    `by_name`: whether attributes are in the order of their names, or else of the columns.
    Raises EmptyData or SchemaError as `ColumnSummaries.build_schema` does.
    """
    return summaries.build_schema(
        lambda name, histogram: known.get(name) or quantile_cut_points(histogram, max_bin), by_name=by_name
    )
