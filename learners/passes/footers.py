"""Where the columns of a Parquet file lie, by its footer.

Arrow tells this too, but for a damaged footer it ends the process: `ColumnChunkMetaData` throws where nothing catches.
"""

from __future__ import annotations

from typing import NamedTuple

from learners.passes.thrift import Fields, number, structure


class ColumnChunk(NamedTuple):
    """One column of one row group: where its pages lie in the file, and their bytes once unpacked.

    Parameters
    ----------
    begin, end : int
        Offsets in the file.
    has_dictionary : bool
    unpacked_bytes : int
        As the footer says.
    """

    begin: int
    end: int
    has_dictionary: bool
    unpacked_bytes: int


def column_chunks(footer: bytes) -> list[list[ColumnChunk]]:
    """Of each row group, its columns in the order of the schema's leaves.

    Raises
    ------
    ValueError
        If the footer is damaged.

    References
    ----------
    https://github.com/apache/parquet-format, parquet.thrift: FileMetaData, RowGroup, ColumnChunk, ColumnMetaData.
    """
    try:
        groups = _structures(structure(footer, 0)[0], 4)
    except IndexError as error:
        raise ValueError("The footer does not end.") from error
    return [[_chunk(column) for column in _structures(group, 1)] for group in groups]


def _chunk(column: Fields) -> ColumnChunk:
    fields = _structure(column, 3)
    unpacked, stored, data, dictionary = (number(fields, 6), number(fields, 7), number(fields, 9), fields.get(11))
    has_dictionary = isinstance(dictionary, int) and 0 < dictionary < data
    begin = dictionary if has_dictionary and isinstance(dictionary, int) else data
    if min(begin, stored, unpacked) < 0:
        raise ValueError("The footer places a column before the file.")
    return ColumnChunk(begin, begin + stored, has_dictionary, unpacked)


def _structure(fields: Fields, index: int) -> Fields:
    found = fields.get(index)
    if isinstance(found, dict):
        return found
    raise ValueError("The footer lacks what it says of a column.")


def _structures(fields: Fields, index: int) -> list[Fields]:
    found = fields.get(index)
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("The footer lacks its row groups or their columns.")
    return found
