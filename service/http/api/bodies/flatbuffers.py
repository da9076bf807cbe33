"""Just enough of flatbuffers to look into the messages of Arrow's streams without reading them.

References
----------
FlatBuffers, Internals: tables, vtables and vectors.
"""

from struct import Struct

_unsigned, _signed = Struct("<I").unpack_from, Struct("<i").unpack_from
_short = Struct("<H").unpack_from


def table_at(body: bytes, place: int) -> int:
    """Where the table is to which the offset at a place leads.

    Raises struct.error beyond the end of the body, as in all of these.
    """
    return place + int(_unsigned(body, place)[0])


def field(body: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it has none such."""
    layout = table - _signed(body, table)[0]
    entry = 4 + 2 * number
    if layout < 0 or entry >= _short(body, layout)[0]:
        return 0
    offset = _short(body, layout + entry)[0]
    return table + offset if offset else 0
