"""The headers of Parquet's pages, which say what decoding allocates, whatever the footer says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
DELTA_BYTE_ARRAY = 7  # values say how much of the value before they repeat
HEADER_BYTES, MOST_HEADER_BYTES = 128, 16 << 20  # what is read at first, and what Arrow reads at most

# Types of Thrift's compact protocol.
_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_MOST_DEPTH = 16

Fields = dict[int, object]


class Page(NamedTuple):
    """One page: its kind, its bytes in the file and once unpacked, the values that it says it has, and their encoding."""

    kind: int
    stored_bytes: int
    decoded_bytes: int
    n_values: int
    encoding: int


def pages_between(read_at: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[Page]:
    """The pages of one column of one row group, in file order.

    Parameters
    ----------
    read_at : callable
        `read_at(n_bytes, offset)` gives at most so many bytes of the file.
    begin, end : int
        Offsets of the column's bytes.

    Raises
    ------
    ValueError
        If there is no header where one must be.

    References
    ----------
    https://github.com/apache/parquet-format, parquet.thrift: PageHeader; the compact protocol of Apache Thrift.
    """
    at = begin
    while at < end:
        header, size = _header(read_at, at, end)
        kind, decoded, stored = (_number(header, i) for i in (1, 2, 3))
        told = header.get({DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind, 0), {})
        if min(decoded, stored) < 0 or at + size + stored > end or not isinstance(told, dict):
            raise ValueError("A page lies outside of its column.")
        n_values = max(0, _number(told, 1)) if told else 0
        encoding = _number(told, 4 if kind == DATA_PAGE_V2 else 2) if told else -1
        yield Page(kind, stored, decoded, n_values, encoding)
        at += size + stored


def _number(fields: Fields, index: int) -> int:
    found = fields.get(index)
    if isinstance(found, int):
        return found
    raise ValueError("A page header lacks a number.")


def _header(read_at: Callable[[int, int], bytes], at: int, end: int) -> tuple[Fields, int]:
    """A header and its length; it may hold bounds of values, so more is read where it does not end."""
    n_bytes = HEADER_BYTES
    while True:
        content = read_at(min(n_bytes, end - at), at)
        try:
            return _struct(content, 0, 0)
        except IndexError as error:
            if n_bytes >= MOST_HEADER_BYTES or len(content) < n_bytes:
                raise ValueError("A page header does not end.") from error
            n_bytes *= 16


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("A page header holds a number that is none.")


def _signed(content: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _struct(content: bytes, at: int, depth: int) -> tuple[Fields, int]:
    if depth > _MOST_DEPTH:
        raise ValueError("A page header is nested too deeply.")
    fields: Fields = {}
    index = 0
    while (first := content[at]) != _STOP:
        kind, delta, at = first & 0xF, first >> 4, at + 1
        if delta:
            index += delta
        else:
            index, at = _signed(content, at)
        fields[index], at = _value(content, at, kind, depth)
    return fields, at + 1


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[object, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _BYTE:
        return content[at], at + 1
    if kind in (_I16, _I32, _I64):
        return _signed(content, at)
    if kind == _DOUBLE:
        return None, _within(content, at + 8)
    if kind == _BINARY:
        length, at = _varint(content, at)
        return None, _within(content, at + length)
    if kind == _STRUCT:
        return _struct(content, at, depth + 1)
    raise ValueError("A page header holds what no page header holds.")  # lists, sets and maps


def _within(content: bytes, at: int) -> int:
    """The place, if the content goes so far."""
    if at > len(content):
        raise IndexError
    return at
