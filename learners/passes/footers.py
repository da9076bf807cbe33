"""Where the columns of a Parquet file lie, and between which values, by its footer.

Arrow tells this too, but for a damaged footer it ends the process: `ColumnChunkMetaData` throws where nothing catches.
"""

from __future__ import annotations

from typing import NamedTuple

from learners.passes.thrift import Fields, number, structure

_MAX, _MIN, _NULL_COUNT, _MAX_VALUE, _MIN_VALUE = 1, 2, 3, 5, 6  # fields of Statistics


class ColumnChunk(NamedTuple):
    """One column of one row group: where its pages lie in the file, and their bytes once unpacked.

    Parameters
    ----------
    begin, end : int
        Offsets in the file.
    unpacked_bytes : int
        As the footer says.
    n_values : int
        Nulls included.
    codec : int
        Parquet's number of what packs its pages.
    statistics : Fields
        As Parquet's structure of that name has them; empty if the footer lacks them.
    """

    begin: int
    end: int
    unpacked_bytes: int
    n_values: int
    codec: int
    statistics: Fields

    def integers(self) -> IntegerBounds | None:
        """The bounds of a column of signed integers, if the footer has them.

        References
        ----------
        https://github.com/apache/parquet-format, parquet.thrift: Statistics; its older fields order such columns alike.
        """
        n_null = self.statistics.get(_NULL_COUNT)
        if not isinstance(n_null, int) or not 0 <= n_null <= self.n_values:
            return None
        if n_null == self.n_values:
            return IntegerBounds(None, None, n_null)
        low = self.statistics.get(_MIN_VALUE, self.statistics.get(_MIN))
        high = self.statistics.get(_MAX_VALUE, self.statistics.get(_MAX))
        if not isinstance(low, bytes) or not isinstance(high, bytes) or {len(low), len(high)} - {4, 8}:
            return None
        least, greatest = (int.from_bytes(value, "little", signed=True) for value in (low, high))
        return IntegerBounds(least, greatest, n_null) if least <= greatest else None


class IntegerBounds(NamedTuple):
    """The least and the greatest value, which are None where all are null, and the number of nulls."""

    least: int | None
    greatest: int | None
    n_null: int


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
    codec, n_values, unpacked, stored, data = (number(fields, index) for index in (4, 5, 6, 7, 9))
    dictionary, statistics = fields.get(11), fields.get(12)
    begin = dictionary if isinstance(dictionary, int) and 0 < dictionary < data else data
    if min(begin, stored, unpacked) < 0:
        raise ValueError("The footer places a column before the file.")
    statistics = statistics if isinstance(statistics, dict) else {}
    return ColumnChunk(begin, begin + stored, unpacked, n_values, codec, statistics)


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
