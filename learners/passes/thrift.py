"""Structures in Thrift's compact protocol, as Parquet's footers and page headers are: bytes that nobody has vouched for."""

from __future__ import annotations

_STOP, _TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(13)
_MOST_DEPTH = 16

# By the number of the field; floating numbers are None, as nobody asks for them.
Fields = dict[int, object]


def structure(content: bytes, at: int, depth: int = 0) -> tuple[Fields, int]:
    """The fields of a structure that begins at a place, and the place behind it.

    Raises
    ------
    IndexError
        If the content ends before the structure does.
    ValueError
        If it is no structure.

    References
    ----------
    https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
    """
    if depth > _MOST_DEPTH:
        raise ValueError("A structure of Parquet is nested too deeply.")
    fields: Fields = {}
    index = 0
    while (first := content[at]) != _STOP:
        kind, delta, at = first & 0xF, first >> 4, at + 1
        if delta:
            index += delta
        else:
            index, at = _signed(content, at)
        if _I16 <= kind <= _I64:  # most are numbers, and most of these a byte
            byte = content[at]
            if byte < 0x80:
                fields[index], at = (byte >> 1) ^ -(byte & 1), at + 1
            else:
                fields[index], at = _signed(content, at)
        elif kind in (_TRUE, _FALSE):
            fields[index] = kind == _TRUE
        else:
            fields[index], at = _value(content, at, kind, depth)
    return fields, at + 1


def number(fields: Fields, index: int) -> int:
    """A field that must be there and a number.

    Raises
    ------
    ValueError
    """
    found = fields.get(index)
    if isinstance(found, int):
        return found
    raise ValueError("A structure of Parquet lacks a number.")


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
            raise ValueError("A structure of Parquet holds a number that is too long.")


def _signed(content: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(content, at)
    return (value >> 1) ^ -(value & 1), at


def _value(content: bytes, at: int, kind: int, depth: int) -> tuple[object, int]:
    if kind in (_BYTE, _TRUE, _FALSE):  # truths in lists take a byte each
        return content[at], at + 1
    if kind in (_I16, _I32, _I64):
        return _signed(content, at)
    if kind == _DOUBLE:
        return None, _within(content, at + 8)
    if kind == _BINARY:
        length, at = (content[at], at + 1) if content[at] < 0x80 else _varint(content, at)
        end = _within(content, at + length)
        return content[at:end], end
    if kind == _STRUCT:
        return structure(content, at, depth + 1)
    if kind in (_LIST, _SET):
        return _list(content, at, depth)
    raise ValueError("A structure of Parquet holds a kind of value that it has not.")  # maps


def _list(content: bytes, at: int, depth: int) -> tuple[list[object], int]:
    if depth > _MOST_DEPTH:
        raise ValueError("A structure of Parquet is nested too deeply.")
    n, kind, at = content[at] >> 4, content[at] & 0xF, at + 1
    if n == 15:
        n, at = _varint(content, at)
    values = []
    for _ in range(n):
        value, at = _value(content, at, kind, depth + 1)
        values.append(value)
    return values, at


def _within(content: bytes, at: int) -> int:
    """The place, if the content goes so far."""
    if at > len(content):
        raise IndexError
    return at
