"""Rules for rows: their weights, and the treatment of rows with a null class."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import InvalidParameter, SchemaError, known_values_text
from learners.kernels.arrays import Integers, Mask
from learners.passes.sources.source import Condition, Fragment, Source, SourceFile
from learners.passes.statistic import Statistic
from learners.schema import Attribute, Chunk, Schema
from learners.schema.encoding.encode import numeric_column_as_floats
from learners.schema.nominal_forms import dictionary_encoded_column, dictionary_row_indices, nominal_forms, value_words
from learners.schema.overrides import ALL, DROP, MOST_WEIGHT, ColumnOverride
from learners.schema.times_and_durations import canonical_time_text

JSON_BOOLEANS = frozenset({"true", "false"})
REPEATED_ROWS, MOST_REPEATED = 65_536, 1 << 27  # of one batch


@dataclass(frozen=True)
class Weight(Condition):
    """Weight of each row; a condition, so that statistics of weighted and unweighted rows are kept apart."""

    column: str
    # A row counts round(weight x scale) times; None: weights are whole numbers, and anything else is refused.
    scale: float | None = None
    # If there are any, the column holds no weights: how often rows count that have a value there, in words. Others
    # count once.
    of_values: tuple[tuple[str, int], ...] = ()

    @property
    def text(self) -> str:
        """Text of the condition."""
        if self.of_values:
            # Earlier releases did not read these words as booleans: what they counted has another text.
            suffix = " with booleans" if not JSON_BOOLEANS.isdisjoint(dict(self.of_values)) else ""
            return f"weighted by {self.column}: {json.dumps(sorted(self.of_values))}{suffix}"
        return f"weighted by {self.column}" + ("" if self.scale is None else f" x {self.scale!r}")

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return (self.column,)

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Return the rows that count at least once, (n_rows,) bool."""
        del fragment, offset
        try:
            return self.counts(rows) > 0
        except SchemaError as error:
            raise SchemaError(f"{file.path}: {error}", error.column, error.columns) from error

    def counts(self, rows: pa.RecordBatch) -> Integers:
        """Return how often each row counts, (n_rows,) int64.

        Raises SchemaError if a weight is missing, negative, too large or, without a scale, not a whole number.
        """
        column = rows.column(self.column)
        if self.of_values:
            return self._counts_of_values(column)
        weights = numeric_column_as_floats(column, self.column) * (1.0 if self.scale is None else self.scale)
        counts = weights if self.scale is None else np.rint(weights)
        is_count = (counts >= 0) & (counts <= MOST_WEIGHT) & (counts == np.floor(counts))
        if not is_count.all():
            place = int(np.argmin(is_count))
            raise SchemaError(
                f"Column {self.column!r} is the row weight and holds {column[place].as_py()}. {self._remedy(weights[place])}",
                self.column,
            )
        return counts.astype(np.int64)

    def _counts_of_values(self, column: pa.Array) -> Integers:
        if pa.types.is_null(column.type):
            return np.ones(len(column), np.int64)
        coded = dictionary_encoded_column(column, self.column)
        values, _ = nominal_forms(coded.dictionary, self.column)
        index, is_null = dictionary_row_indices(coded, values)
        counts = dict(self.of_values)
        named = [next(filter(counts.__contains__, value_words(value)), None) for value in values.to_pylist()]
        of_values = np.array([1 if word is None else counts[word] for word in named] or [1], np.int64)
        return np.where(is_null, 1, of_values[np.where(is_null, 0, index)])

    def _remedy(self, weight: float) -> str:
        if np.isnan(weight):
            return "Fill in a weight; 0 leaves the row out."
        if weight < 0:
            return "A weight must be zero or more."
        if weight > MOST_WEIGHT:
            return f"The weights of all rows may sum to {MOST_WEIGHT:,} at most: set a scale below 1."
        of_hundredths = f'{{"{self.column}": {{"weight": 100}}}}'
        return f"To use fractions, set a factor by which they are multiplied before rounding, such as {of_hundredths} for hundredths."


def row_weight_rule(columns: Mapping[str, object] | None) -> Weight | None:
    """Return the row weight declared in the column overrides, if any. Raises InvalidParameter if there are two."""
    weights = [
        Weight(name, None, weight) if isinstance(weight, tuple) else Weight(name, None if weight is True else weight)
        for name, entry in (columns or {}).items()
        if name != ALL and (weight := ColumnOverride.of(name, cast("ColumnOverride", entry)).weight)
    ]
    if len(weights) > 1:
        names = ", ".join(repr(weight.column) for weight in weights)
        raise InvalidParameter(
            "columns", names, because="only one column can be the weight of the rows; multiply them into one"
        )
    return weights[0] if weights else None


def row_weight_warnings(schema: Schema, columns: Mapping[str, object] | None) -> list[str]:
    """Return a warning for each weighted value that the column of an attribute did not have in training.

    `schema`: as it was inferred from the rows; it refuses weights of unknown classes itself.
    """
    weight = row_weight_rule(columns)
    own = None if weight is None else next((a for a in schema.attributes if a.name == weight.column), None)
    if weight is None or own is None or own.n_folded:
        return []
    return [
        f"Column {own.name!r} has no value {word!r}, so its weight counts no row{_known_values(own, word)}."
        for word, count in weight.of_values
        if count and not _may_have_word(own, word)
    ]


def _known_values(attribute: Attribute, word: str) -> str:
    if attribute.kind == "nominal":
        return f" (known: {known_values_text(word, [value_words(value)[-1] for value in attribute.values])})"
    ends = [attribute.number_text(number) for number in attribute.quantiles[:: len(attribute.quantiles) - 1 or 1]]
    return f" (it ranges from {ends[0]} to {ends[-1]})" if ends else ""


def _may_have_word(attribute: Attribute, word: str) -> bool:
    """Return whether some value of training may be this word; of numbers the schema keeps the least and the greatest alone."""
    if attribute.kind == "nominal":
        return any(word in value_words(value) for value in attribute.values)
    if attribute.is_time or attribute.clock is not None:
        return canonical_time_text(word, attribute.arrow_type) == word
    if re.fullmatch(r"0|-?[1-9][0-9]*", word) is None:  # as whole numbers are written
        return False
    return not attribute.quantiles or attribute.quantiles[0] <= int(word) <= attribute.quantiles[-1]


def apply_row_weight_rule(source: Source, columns: Mapping[str, object] | None) -> Source:
    """Apply the row weight declared in the column overrides, if any, to a source.

    Raises InvalidParameter or UnknownColumn.
    """
    weight = row_weight_rule(columns)
    if weight is None:
        return source
    if source.weight is not None:
        raise InvalidParameter(
            "columns", weight.column, because="the rows have weights already: give sample_weight or a column, not both"
        )
    return apply_row_weight(source, weight)


def apply_row_weight(source: Source, weight: Weight, *, is_hidden: bool = False) -> Source:
    """Weight the rows of a source; `is_hidden` hides the weight column from readers.

    Raises UnknownColumn.
    """
    return source.weighted(weight, is_hidden=is_hidden).restricted(dict.fromkeys(range(len(source.files)), (weight,)))


def add_weighted_rows(statistic: Statistic, rows: Chunk | pa.RecordBatch, weights: Integers) -> None:
    """Add rows with weights.

    The statistic is doubled once per binary digit of the weights, from the highest digit, and the rows with that
    digit are added, so the number of steps is the number of digits of the largest weight.

    `statistic`: changed in place.
    `rows`: as the statistic takes them.
    `weights`, (n_rows,) int64: at least 0.
    """
    part = statistic.empty()
    for digit in reversed(range(int(weights.max(initial=0)).bit_length())):
        doubled = statistic.empty()
        doubled.merge(part)
        doubled.merge(part)
        part = doubled
        has_digit = (weights >> digit) & 1 == 1
        if has_digit.any():
            part.update(rows.rows(has_digit) if isinstance(rows, Chunk) else rows.filter(pa.array(has_digit)))
    statistic.merge(part)


def repeated_row_positions(weights: Integers) -> Iterator[Integers]:
    """Yield row positions in blocks, each repeated as often as the row counts, for code that reads row by row.

    Raises SchemaError if the total is too large.
    """
    ends = np.cumsum(weights)
    n_all = int(ends[-1]) if ends.size else 0
    if n_all > MOST_REPEATED:
        raise SchemaError(
            f"The weights of {weights.size:,} rows sum to {n_all:,}, but this learner repeats each row by its weight, up to "
            f"{MOST_REPEATED:,} in total. Set a scale below 1, or train a classifier."
        )
    for first in range(0, n_all, REPEATED_ROWS):
        yield np.searchsorted(ends, np.arange(first, min(first + REPEATED_ROWS, n_all)), side="right")


@dataclass(frozen=True)
class NullClass(Condition):
    """Treatment of rows with a null class; a condition, so that their statistics are kept apart."""

    column: str  # the target
    instead: str | int  # "drop" leaves such rows out; anything else is their class

    @property
    def text(self) -> str:
        """Text of the condition."""
        return (
            f"{self.column} is known" if self.instead == DROP else f"{self.column} is {self.instead!r} where it is null"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return (self.column,)

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """Return the rows to keep, (n_rows,) bool."""
        del file, fragment, offset
        if self.instead != DROP:
            return np.ones(rows.num_rows, bool)
        return ~_is_null(_plain(rows.column(self.column))).to_numpy(zero_copy_only=False)

    def completed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Fill in the class of rows without one. Raises SchemaError if the column's type cannot hold it."""
        if self.instead == DROP or self.column not in rows.schema.names:
            return rows
        column = _plain(rows.column(self.column))
        try:
            filled = pc.if_else(_is_null(column), pa.scalar(self.instead).cast(column.type), column)
        except pa.ArrowException as error:
            raise SchemaError(
                f"The target {self.column!r} holds {column.type}, and null_class={self.instead!r} has another type. Name a class of that "
                f"type, or {DROP!r}.",
                self.column,
            ) from error
        return rows.set_column(rows.schema.names.index(self.column), self.column, filled)


def null_class_rule(target: str | None, columns: Mapping[str, object] | None) -> NullClass | None:
    """Return the rule for null classes declared in the column overrides, if any. Raises InvalidParameter."""
    entry = None if target is None else (columns or {}).get(target)
    if target is None or entry is None:
        return None
    instead = ColumnOverride.of(target, cast("Mapping[str, object]", entry)).null_class
    return None if instead is None else NullClass(target, instead)


def apply_null_class_rule(source: Source, target: str | None, columns: Mapping[str, object] | None) -> Source:
    """Apply the rule for null classes declared in the column overrides, if any, to a source."""
    rule = null_class_rule(target, columns)
    return source if rule is None else _by(rule, source)


def apply_schema_null_class(source: Source, schema: Schema) -> Source:
    """Apply the schema's rule for null classes to rows for evaluation, as training did."""
    target, instead = schema.target, schema.null_class
    return source if target is None or instead is None else _by(NullClass(target, instead), source)


def _by(rule: NullClass, source: Source) -> Source:
    """Apply a rule for null classes to a source."""
    if rule.column not in source.arrow_schema.names:  # whoever asks for it says so
        return source
    return source.completed(rule.completed).restricted(dict.fromkeys(range(len(source.files)), (rule,)))


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_null(column: pa.Array) -> pa.Array:
    return pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
