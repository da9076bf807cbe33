"""The rows of each class in data whose class column is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from learners.kernels.arrays import Integers
from learners.monitoring.reference import Reference, training_class_counts
from learners.passes.statistic import Statistic
from learners.schema import Schema
from learners.schema.encoding.encode import cached_schema_encoder
from learners.schema.overrides import DROP


class LabelCounts(Statistic):
    """How many rows each class has, and how many have a class that the model does not know; rows without a class do not count.

    Parameters
    ----------
    model_schema : Schema
        With a target.

    Attributes
    ----------
    counts : (n_classes + 1,) int64, the unknown classes last
    """

    stage = "counting classes"

    def __init__(self, model_schema: Schema) -> None:
        self.model_schema = model_schema
        self.counts: Integers = np.zeros(model_schema.n_classes + 1, np.int64)

    @property
    def spec(self) -> dict[str, object]:
        """Specification of the statistic."""
        return {"statistic": "label counts", "schema": self.model_schema.fingerprint}

    @property
    def columns(self) -> list[str]:
        """Columns to read."""
        return [str(self.model_schema.target)]

    def empty(self) -> LabelCounts:
        """Return counts of no rows."""
        return LabelCounts(self.model_schema)

    def update(self, rows: pa.RecordBatch) -> None:
        """Add a record batch. Raises SchemaError if the type of the class column does not fit."""
        codes = cached_schema_encoder(self.model_schema).target.codes(rows)[0].astype(np.int64)
        column = rows.column(rows.schema.names.index(str(self.model_schema.target)))
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        is_null = column.is_null(nan_is_null=pa.types.is_floating(column.type)).to_numpy(zero_copy_only=False)
        instead = self.model_schema.null_class
        if instead in (None, DROP):
            codes = codes[~is_null]
        else:
            codes[is_null] = self.model_schema.classes.index(str(instead))
        self.counts += np.bincount(codes, minlength=self.counts.size)

    def _combine(self, other: LabelCounts, sign: int) -> None:
        self.counts += sign * other.counts

    def to_arrow(self) -> pa.Table:
        """Return one row for each class."""
        return pa.table({"n": self.counts})

    def from_arrow(self, table: pa.Table) -> LabelCounts:
        """Build the counts from the output of `to_arrow`."""
        read = self.empty()
        read.counts = table["n"].to_numpy().copy()
        return read

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelCounts) and self.spec == other.spec and np.array_equal(self.counts, other.counts)


class Labels(NamedTuple):
    """Classes of a window and of its reference, as `LabelCounts.counts` has them."""

    window: Integers
    reference: Integers


def labels_to_compare(window: LabelCounts, other: LabelCounts | None, reference: Reference) -> Labels | None:
    """Return the classes of a window beside those of reference rows (`other`) or, without them, of training; None if one side
    knows no class.
    """
    known = training_class_counts(reference, window.model_schema.n_classes) if other is None else other.counts
    return None if known is None or not known.sum() or not window.counts.sum() else Labels(window.counts, known)
