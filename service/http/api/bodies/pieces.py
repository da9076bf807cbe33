"""Rows of large JSON bodies, decoded piece by piece, so that other threads get their turn in between."""

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from service.requests.problems import BodyTooLarge

Value = str | int | float | bool | None
Found = TypeVar("Found")
WHOLE_BYTES = 4 << 20  # up to here a body is decoded at once, a third faster and within a twentieth of a second
RECORDS = 1_000  # in one piece: about a hundredth of a second
PLACE = re.compile(r"\$\[(\d+)\]")


class RawRows(msgspec.Struct, forbid_unknown_fields=True):
    """The rows of a request, not decoded yet."""

    records: list[msgspec.Raw] | None = None
    columns: dict[str, msgspec.Raw] | None = None


READ = msgspec.json.Decoder(RawRows).decode
DECODE_RECORDS = msgspec.json.Decoder(list[dict[str, Value]]).decode
DECODE_COLUMN = msgspec.json.Decoder(list[Value]).decode


def rows_in_pieces(body: bytes, max_rows: int) -> tuple[list[dict[str, Value]] | None, dict[str, list[Value]] | None]:
    """The records and the columns of a body.

    Raises
    ------
    BodyTooLarge
        If there are more records than rows may be: before any is decoded.
    msgspec.DecodeError
    """
    raw = READ(body)
    records, columns = None, None
    if raw.records is not None:
        if len(raw.records) > max_rows:
            raise BodyTooLarge(f"{len(raw.records)} rows in one request; the limit is {max_rows}.", max_rows=max_rows)
        records = []
        for first in range(0, len(raw.records), RECORDS):
            piece = b"[%b]" % b",".join(raw.records[first : first + RECORDS])
            records += _decoded(DECODE_RECORDS, piece, "$.records", first)
    if raw.columns is not None:
        columns = {name: _decoded(DECODE_COLUMN, told, "$.columns[...]", 0) for name, told in raw.columns.items()}
    return records, columns


def _decoded(
    decode: Callable[[bytes | msgspec.Raw], Found], piece: bytes | msgspec.Raw, place: str, first: int
) -> Found:
    """A piece; an error names its place in the body."""
    try:
        return decode(piece)
    except msgspec.ValidationError as error:
        words = PLACE.sub(lambda found: f"{place}[{first + int(found[1])}]", str(error), count=1)
        raise msgspec.ValidationError(words if "`$" in words else f"{words} - at `{place}`") from error
