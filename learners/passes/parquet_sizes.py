"""What reading a row group of Parquet takes, told from page headers before anything is decoded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pyarrow.parquet as pq

from learners.passes.content import BATCH_ROWS
from learners.passes.footers import ColumnChunk
from learners.passes.page_headers import DELTA_BYTE_ARRAY, DICTIONARY_PAGE, pages_between
from learners.passes.repeated_text import text_bytes

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
_LEVEL_BYTES = 4


class Taken(NamedTuple):
    """What one column takes: bytes, and whether it cannot be more.

    Bytes that are no text but come from a dictionary may take more than their pages say. So may text whose values repeat
    parts of the one before (DELTA_BYTE_ARRAY), where `repeated_text` cannot look into the pages.
    """

    n_bytes: int
    is_bounded: bool


def column_sizes(
    metadata: pq.FileMetaData,
    chunks: Sequence[ColumnChunk],
    n_rows: int,
    read_at: Callable[[int, int], bytes],
    text: set[str],
    limit: int,
) -> Callable[[int], Taken]:
    """A function that tells what reading a column of a row group takes, by the column's number.

    Pages are unpacked one at a time, so the largest counts, beside the dictionary; then values come, at most 65,536 rows
    at a time. A row of a list may hold all values of its column.

    Parameters
    ----------
    metadata : pyarrow.parquet.FileMetaData
    chunks : sequence of ColumnChunk
        Of the row group.
    n_rows : int
        Of the row group.
    read_at : callable
        `read_at(n_bytes, offset)` gives bytes of the file.
    text : set of str
        The columns that are read as dictionaries.
    limit : int
        Bytes; nobody looks into a page that takes more.
    """

    def taken(place: int) -> Taken:
        kind = metadata.schema.column(place)
        largest = dictionary = n_values = 0
        is_bounded = True
        texts: list[tuple[int, int]] = []
        levels = kind.max_repetition_level, kind.max_definition_level
        for page in pages_between(read_at, chunks[place].begin, chunks[place].end):
            if page.kind == DICTIONARY_PAGE:
                dictionary = page.decoded_bytes
                continue
            largest, n_values = max(largest, page.decoded_bytes), n_values + page.n_values
            if page.encoding == DELTA_BYTE_ARRAY and page.decoded_bytes <= limit:
                n_bytes = text_bytes(page, chunks[place].codec, levels, read_at)
                is_bounded &= n_bytes is not None
                texts.append((page.n_values, n_bytes or 0))
        width = kind.length if kind.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS[kind.physical_type]
        is_plain = kind.physical_type == "BYTE_ARRAY" and kind.path not in text
        is_bounded &= not (is_plain and dictionary)
        n_held = n_values if kind.max_repetition_level else min(n_rows, BATCH_ROWS)
        n_bytes = largest + dictionary + n_held * (width + _LEVEL_BYTES) + most_together(texts, n_held)
        return Taken(n_bytes, is_bounded)

    return taken


def most_together(pages: Sequence[tuple[int, int]], n_values: int) -> int:
    """The most bytes of neighbouring pages, each of so many values and bytes, that n_values values may lie in."""
    most = held = first = between = 0  # values of the held pages between the first and the one before this
    for place, (_, n_bytes) in enumerate(pages):
        between += pages[place - 1][0] if place - 1 > first else 0
        while first < place and between + 2 > n_values:
            held -= pages[first][1]
            first += 1
            between -= pages[first][0] if first < place else 0
        held += n_bytes
        most = max(most, held)
    return most
