"""How many rows have each value of a nominal column, without an object for every row."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from learners.errors import SchemaError
from learners.kernels.arrays import Integers, Uint8s
from learners.schema.encoding.nominal_values import distinct, plain_values
from learners.schema.inference.numeric_count_kernels import count_indices

_BYTES = (pa.int8(), pa.uint8())
FEW_BYTES = 8


def value_counts(column: pa.Array, name: str) -> tuple[pa.Array, Integers, int]:
    """Distinct values of a nominal column, the rows of each, and how many rows are missing.

    Raises SchemaError if the values have no nominal form, or an index is beyond its dictionary.
    """
    kind = column.type
    if kind in _BYTES and not column.null_count:
        values = np.frombuffer(column.buffers()[1], np.int8 if kind == pa.int8() else np.uint8)
        counts = _of_bytes(values[column.offset :][: len(column)].view(np.uint8))
        every = np.arange(256, dtype=np.uint8).view(values.dtype).astype(np.int64)
        return pa.array(every[counts > 0]), counts[counts > 0], 0
    if pa.types.is_boolean(kind):
        return pa.array([False, True]), np.array([column.false_count, column.true_count]), column.null_count
    is_plain = pa.types.is_dictionary(kind) and kind.index_type == pa.int32()
    if is_plain and not column.null_count and not column.dictionary.null_count:
        counts = np.zeros(len(column.dictionary), np.int64)
        if not count_indices(column.indices.to_numpy(), counts):
            raise SchemaError(f"Column {name!r} has indices beyond its dictionary.", name)
        return plain_values(column.dictionary, name), counts, 0
    values, index, is_null = distinct(column, name)
    return values, np.bincount(index[~is_null], minlength=len(values)), int(is_null.sum())


def _of_bytes(values: Uint8s) -> Integers:
    """(256,) int64: how often each byte occurs."""
    largest = int(values.max(initial=0))
    if largest >= FEW_BYTES:
        return np.bincount(values, minlength=256)
    # Comparing is a fifteenth of what an increment for each row costs.
    counts = np.zeros(256, np.int64)
    counts[: largest + 1] = [np.count_nonzero(values == byte) for byte in range(largest + 1)]
    return counts
