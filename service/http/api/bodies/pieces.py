"""Rows of large JSON bodies, decoded piece by piece, so that other threads get their turn in between."""

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from service.requests.problems import BodyTooLarge

Value = str | int | float | bool | None
Found = TypeVar("Found")
Rows = TypeVar("Rows", bound=msgspec.Struct)
Record = dict[str, Value]
Column = list[Value]
WHOLE_BYTES = 1 << 20  # up to here a body is decoded at once, a third faster and within a fiftieth of a second
RECORDS = 1_000  # in one piece: about a hundredth of a second
PLACE = re.compile(r"\$\[(\d+)\]")


class Split(msgspec.Struct):
    """A data frame as pandas' orient="split" writes it; the index is overlooked."""

    columns: list[str]
    data: list[list[Value]]
    index: list[Any] | None = None


class RawSplit(msgspec.Struct):
    """The same, its rows not decoded yet."""

    columns: list[str]
    data: list[msgspec.Raw]
    index: msgspec.Raw = msgspec.Raw()


# Members of requests that hold rows, not decoded yet.
RAW: dict[str, Any] = {
    "records": list[msgspec.Raw] | None,
    "columns": dict[str, msgspec.Raw] | None,
    "dataframe_split": RawSplit | None,
    "dataframe_records": list[msgspec.Raw] | None,
    "inputs": list[msgspec.Raw] | dict[str, msgspec.Raw] | None,
    "instances": list[msgspec.Raw] | dict[str, msgspec.Raw] | None,
}
DECODE_RECORDS = msgspec.json.Decoder(list[Record]).decode
DECODE_ROWS = msgspec.json.Decoder(list[Column]).decode
DECODE_COLUMN = msgspec.json.Decoder(Column).decode
DECODE_VALUES = msgspec.json.Decoder(Column | Value).decode  # MLflow's clients may send a column of one row as a value


def row_reader(shape: type[Rows], max_rows: int) -> Callable[[bytes], Rows]:
    """What reads bodies of a msgspec struct whose rows are in members of `RAW`: short ones at once, long ones piece by piece.

    It raises BodyTooLarge if there are more records than rows may be, of a long body before any is decoded; and
    msgspec.DecodeError.
    """
    fields = [(name, RAW[name], None) for name in shape.__struct_fields__ if name in RAW]
    raw_shape = msgspec.defstruct(shape.__name__, fields, bases=(shape,), forbid_unknown_fields=True)
    read_at_once, read_raw = msgspec.json.Decoder(shape).decode, msgspec.json.Decoder(raw_shape).decode

    def read(body: bytes) -> Rows:
        if len(body) <= WHOLE_BYTES:
            return read_at_once(body)
        members = msgspec.structs.asdict(read_raw(body))
        return shape(**{name: _rows(name, raw, max_rows) if name in RAW else raw for name, raw in members.items()})

    return read


def check_rows(n_rows: int, max_rows: int) -> None:
    """Refuse too many rows (BodyTooLarge)."""
    if n_rows > max_rows:
        raise BodyTooLarge(f"{n_rows} rows in one request; the limit is {max_rows}.", max_rows=max_rows)


def _rows(name: str, raw: Any, max_rows: int) -> Any:
    """A member that holds rows, decoded piece by piece."""
    if isinstance(raw, list):
        return _listed(DECODE_RECORDS, raw, f"$.{name}", max_rows)
    if isinstance(raw, RawSplit):
        return Split(raw.columns, _listed(DECODE_ROWS, raw.data, f"$.{name}.data", max_rows))
    if isinstance(raw, dict):
        decode: Callable[[bytes | msgspec.Raw], Any] = DECODE_COLUMN if name == "columns" else DECODE_VALUES
        return {column: _decoded(decode, values, f"$.{name}[...]", 0) for column, values in raw.items()}
    return raw


def _listed(
    decode: Callable[[bytes | msgspec.Raw], list[Found]], raw: list[msgspec.Raw], place: str, max_rows: int
) -> list[Found]:
    check_rows(len(raw), max_rows)
    found: list[Found] = []
    for first in range(0, len(raw), RECORDS):
        found += _decoded(decode, b"[%b]" % b",".join(raw[first : first + RECORDS]), place, first)
    return found


def _decoded(
    decode: Callable[[bytes | msgspec.Raw], Found], piece: bytes | msgspec.Raw, place: str, first: int
) -> Found:
    """A piece; an error names its place in the body."""
    try:
        return decode(piece)
    except msgspec.ValidationError as error:
        words = PLACE.sub(lambda found: f"{place}[{first + int(found[1])}]", str(error), count=1)
        raise msgspec.ValidationError(words if "`$" in words else f"{words} - at `{place}`") from error
