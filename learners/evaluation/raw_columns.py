"""Columns as other libraries take them: numbers, with nominal values as codes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from learners.kernels.arrays import Floats
from learners.passes.sources.source import type_family
from learners.schema.encoding.encode import numbers
from learners.schema.nominal_forms import distinct

Predict = Callable[[pa.Table], Floats]


class RawColumns:
    """Turns columns into numbers, with the values of the training rows.

    `table`: training rows without the target; columns without a value are left out.
    """

    def __init__(self, table: pa.Table) -> None:
        self.names: list[str] = []
        self.values: dict[str, pa.Array] = {}
        for name in table.column_names:
            column = table[name].combine_chunks()
            if column.null_count == len(column):
                continue
            self.names.append(name)
            if type_family(column.type) in ("text", "bool"):
                values, index, is_null = distinct(column, name)
                occurring = values.take(pa.array(np.unique(index[~is_null])))
                self.values[name] = occurring.take(pc.sort_indices(occurring))

    def numbers_of(self, table: pa.Table) -> Floats:
        """(n_rows, n_columns) float64; NaN where a value is missing or, for nominal columns, unknown."""
        return np.stack([self._column(table[name].combine_chunks(), name) for name in self.names], axis=1)

    def _column(self, column: pa.Array, name: str) -> Floats:
        if name not in self.values:
            return numbers(column, name)
        values, index, is_null = distinct(column, name)
        codes = pc.index_in(values, value_set=self.values[name]).cast(pa.float64())
        x = np.asarray(codes.to_numpy(zero_copy_only=False), np.float64)[index] if len(values) else np.zeros(len(index))
        x[is_null] = np.nan
        return x
