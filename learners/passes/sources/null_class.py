"""Rows whose class is null: left out, or of a class of their own, where the user says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.errors import SchemaError
from learners.kernels.arrays import Mask
from learners.passes.sources.source import Condition, Fragment, Source, SourceFile
from learners.schema import Schema
from learners.schema.overrides import DROP, ColumnOverride


@dataclass(frozen=True)
class NullClass(Condition):
    """What becomes of rows without a class; a condition, so that statistics of them are not taken for others."""

    column: str  # the target
    instead: str | int  # "drop" leaves such rows out; anything else is their class

    @property
    def text(self) -> str:
        """The condition in words."""
        return (
            f"{self.column} is known" if self.instead == DROP else f"{self.column} is {self.instead!r} where it is null"
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the condition reads."""
        return (self.column,)

    def mask(self, rows: pa.RecordBatch, file: SourceFile, fragment: Fragment, offset: int) -> Mask:
        """(n_rows,) bool."""
        del file, fragment, offset
        if self.instead != DROP:
            return np.ones(rows.num_rows, bool)
        return ~_is_null(_plain(rows.column(self.column))).to_numpy(zero_copy_only=False)

    def completed(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with their class filled in. Raises SchemaError if the column cannot hold it."""
        if self.instead == DROP or self.column not in rows.schema.names:
            return rows
        column = _plain(rows.column(self.column))
        try:
            filled = pc.if_else(_is_null(column), pa.scalar(self.instead).cast(column.type), column)
        except pa.ArrowException as error:
            raise SchemaError(
                f"The target {self.column!r} holds {column.type}, and null_class={self.instead!r} is none of these. Name a class of "
                f"that type, or {DROP!r}.",
                self.column,
            ) from error
        return rows.set_column(rows.schema.names.index(self.column), self.column, filled)


def null_class_of(target: str | None, columns: Mapping[str, object] | None) -> NullClass | None:
    """What is said of rows without a class, if anything is. Raises InvalidParameter."""
    entry = None if target is None else (columns or {}).get(target)
    instead = (
        None
        if entry is None or target is None
        else ColumnOverride.of(target, cast("Mapping[str, object]", entry)).null_class
    )
    return None if instead is None else NullClass(str(target), instead)


def with_classes(source: Source, target: str | None, columns: Mapping[str, object] | None) -> Source:
    """The rows of a source as a learner takes them: without null classes, where something is said of these."""
    rule = null_class_of(target, columns)
    return source if rule is None else _by(rule, source)


def as_trained(source: Source, schema: Schema) -> Source:
    """The rows to measure a model on, with null classes as its training took them."""
    target, instead = schema.target, schema.null_class
    return source if target is None or instead is None else _by(NullClass(target, instead), source)


def _by(rule: NullClass, source: Source) -> Source:
    """The rows of a source by a rule."""
    if rule.column not in source.arrow_schema.names:  # whoever asks for it says so
        return source
    return source.completed(rule.completed).restricted(dict.fromkeys(range(len(source.files)), (rule,)))


def _plain(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_null(column: pa.Array) -> pa.Array:
    return pc.is_null(column, nan_is_null=pa.types.is_floating(column.type))
