"""Looking up text in a domain without making Python objects of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from learners.schema.kernels import hash_bytes, string_codes

Integers = np.ndarray[Any, np.dtype[np.int64]]


class StringTable(NamedTuple):
    """A hash table of some texts with open addressing.

    Attributes
    ----------
    slots : (power of two,) int64
        Position of a text in `starts`, or -1.
    starts : (n + 1,) int64
        Where each text begins in `text`.
    text : (n_bytes,) uint8
        UTF-8 of all texts.
    """

    slots: Integers
    starts: Integers
    text: np.ndarray[Any, np.dtype[np.uint8]]


def string_table(values: Sequence[str]) -> StringTable:
    """The table of distinct texts."""
    encoded = [value.encode() for value in values]
    starts = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    text = np.frombuffer(b"".join(encoded) or b"\0", np.uint8)
    slots = np.full(1 << max(3, (2 * len(values)).bit_length()), -1, np.int64)
    mask = slots.size - 1
    for number in range(len(values)):
        slot = int(hash_bytes(text, starts[number], starts[number + 1])) & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = number
    return StringTable(slots, starts, text)


def codes_of_strings(column: pa.Array, table: StringTable, first: int, unseen: int, codes: Any) -> None:
    """Codes of a column of pa.string(): first + position of the text in the table; OUT codes (n_rows,).

    What stands at nulls means nothing.
    """
    _, offsets, data = column.buffers()
    if offsets is None or not len(column):
        return
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data is not None and data.size else table.text
    string_codes(ends, text, table, first, unseen, codes)
