"""Bodies of requests within limits: what all of them hold together, what they are decoded to, and large ones piece by piece; answers."""

import json
import math
import re
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from learners.passes.memory import release_free_memory
from service.requests import problems
from service.requests.problems import BodyTooLarge, InvalidRequest, MalformedBody, Overloaded

WORTH_GIVING_BACK = 64 << 20
UNCOUNTED = 64 << 10  # the thousands of small requests are not worth a lock


class InFlight:
    """The bytes that requests of this process hold, at most `max_bytes` together: bodies, and what they are decoded to."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.n_bytes = max_bytes, 0
        self._lock = threading.Lock()

    def take(self, n_bytes: int) -> None:
        """Add to what is held, or give back where it is negative; Overloaded if that is too much."""
        with self._lock:
            if n_bytes > 0 and self.n_bytes + n_bytes > self.max_bytes:
                raise Overloaded(
                    f"The requests that this server is answering hold {self.n_bytes:,} bytes, and this one would take "
                    f"{n_bytes:,} more than the {self.max_bytes:,} for all (FEWPASS_MAX_IN_FLIGHT_BYTES). Try again in a moment.",
                    max_in_flight_bytes=self.max_bytes,
                )
            self.n_bytes += n_bytes


class Hold:
    """What one request holds, given back when it ends."""

    def __init__(self, of: InFlight) -> None:
        self.of, self.n_bytes = of, 0

    def add(self, n_bytes: int) -> None:
        """Hold so many bytes more; Overloaded if that is too much."""
        if n_bytes:
            self.of.take(n_bytes)
            self.n_bytes += n_bytes

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        if self.n_bytes:
            self.of.take(-self.n_bytes)
            if self.n_bytes > WORTH_GIVING_BACK:
                release_free_memory()


# As Python has them: a dict, each of its members with its name, a list, each of its elements, and a text beyond its characters.
RECORD_BYTES, MEMBER_BYTES, LIST_BYTES, ELEMENT_BYTES, TEXT_BYTES = 200, 100, 72, 40, 48
WIDE_TEXT_BYTES, WIDE = 80, 4  # one character beyond ASCII, and each of its text takes up to four bytes
MOST_MEMBERS = 65_536  # of a record
MOST_VALUES = 500_000  # of a body that Python reads on the event loop: a tenth of a second
VALUE_BYTES = 256  # of the limit, for each value: two million values of 512 MiB, which take two tenths of a second
SHAPED = 2  # as JSON has the values, and as the shape of the request keeps them


def check_json_size(body: bytes, max_bytes: int, *, is_shaped: bool = False) -> int:
    """Refuse JSON of too many values, or of records of too many members; returns about the bytes that its values will take.

    Punctuation is counted also in texts, so a body is held to be larger than it is, never smaller. `is_shaped` says that
    Python reads it on the event loop, and a shape of pydantic checks and copies it. Raises BodyTooLarge.
    """
    n_colons, n_records, n_lists = (body.count(mark) for mark in (b":", b"{", b"["))
    n_records = max(1, n_records)
    if n_colons > MOST_MEMBERS * n_records:
        raise BodyTooLarge(f"A record has more than {MOST_MEMBERS:,} members.", max_members=MOST_MEMBERS)
    n_commas = body.count(b",")
    n_elements = max(0, n_commas - n_colons) + n_lists
    n_texts = max(0, body.count(b'"') // 2 - n_colons)
    n_bytes = RECORD_BYTES * n_records + MEMBER_BYTES * n_colons + LIST_BYTES * n_lists
    is_wide = not body.isascii() or b"\\u" in body
    n_bytes += ELEMENT_BYTES * n_elements + (WIDE_TEXT_BYTES if is_wide else TEXT_BYTES) * n_texts
    n_bytes += len(body) * (WIDE if is_wide else 1)
    n_bytes *= SHAPED if is_shaped else 1
    check_decoded_size(n_bytes, max_bytes)
    n_values = n_commas + n_records + n_lists
    most_values = min(MOST_VALUES, max_bytes // VALUE_BYTES) if is_shaped else max_bytes // VALUE_BYTES
    if n_values > most_values:
        raise BodyTooLarge(
            f"The body has {n_values:,} values; at most {most_values:,} are read here. Send fewer at once.",
            max_values=most_values,
        )
    return n_bytes


def check_csv_body_size(body: bytes, max_bytes: int) -> int:
    """Refuse a CSV of too many values (BodyTooLarge); returns about the bytes that they will take."""
    n_bytes = len(body) + 16 * (body.count(b",") + body.count(b"\n"))
    check_decoded_size(n_bytes, max_bytes)
    return n_bytes


def check_decoded_size(n_bytes: int, max_bytes: int) -> None:
    """Refuse what would hold too much (BodyTooLarge)."""
    if n_bytes > max_bytes:
        raise BodyTooLarge(
            f"The body would take {n_bytes:,} bytes decoded; at most {max_bytes:,} are (FEWPASS_MAX_DECODED_BYTES). Send fewer "
            "rows at once.",
            max_decoded_bytes=max_bytes,
        )


Decoded = TypeVar("Decoded")
MOST_READ_AGAIN = 1 << 16
MOST_OF_NAME = 80
IN_RECORD = re.compile(r"\$\.(\w+)\[(\d+)\]\[\.\.\.\]")
MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
TOO_DEEP = "The body is nested too deeply."
HALF_A_CHARACTER = "The body escapes half of a character (\\ud800 to \\udfff without its other half), which is no text."


def check_lone_surrogates(body: bytes) -> None:
    """Refuse a JSON text that escapes halves of characters, which no database and no file name can hold (MalformedBody).

    Python's own reader lets them in; what is no JSON at all is for others to refuse.
    """
    if MAYBE_HALF.search(body):
        try:
            json.dumps(json.loads(body), ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise MalformedBody(HALF_A_CHARACTER) from error
        except (ValueError, RecursionError):
            pass


def decode_json_body(decode: Callable[[bytes], Decoded], body: bytes, remedy: str) -> Decoded:
    """What a decoder of msgspec makes of a JSON body (InvalidRequest, MalformedBody); `remedy` says what to send instead."""
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        words = overlong_json_integer_text(body) if "out of range" in str(error) else ""
        raise InvalidRequest(f"{words or json_error_with_column(str(error), body)}. {remedy}") from error
    except RecursionError as error:  # where anything may stand, as among the parameters of a protocol
        raise MalformedBody(TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(
            f"The body is not JSON: {error}.{invalid_json_hint(body)}" if body else "The body is empty."
        ) from error


def json_error_with_column(words: str, body: bytes) -> str:
    """What is wrong in a record, with its column in place of msgspec's `[...]`; of bodies that are quick to read again."""
    place = IN_RECORD.search(words)
    if place is None or len(body) > MOST_READ_AGAIN:
        return words
    try:
        record = json.loads(body)[place[1]][int(place[2])]
    except (ValueError, RecursionError):
        return words
    wrong = (name for name, value in record.items() if isinstance(value, list | dict) or value in (math.inf, -math.inf))
    return words.replace("[...]", f"[{next(wrong, '...')[:MOST_OF_NAME]!r}]", 1)


def overlong_json_integer_text(body: bytes) -> str:
    """Where a JSON text has a whole number of more digits than Python reads, in words; none if there is none."""
    most, too_long = sys.get_int_max_str_digits(), object()
    try:
        content = json.loads(body, parse_int=lambda digits: too_long if len(digits.lstrip("-")) > most else 0)
    except (ValueError, RecursionError):
        return ""
    left = [("body", content)]
    while left:
        place, value = left.pop()
        if value is too_long:
            return f"{place}: is a whole number of more than {most:,} digits"
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        left += [(f"{place}.{name}", member) for name, member in members]
    return ""


def invalid_json_hint(body: bytes) -> str:
    """What may be wrong with a body that is not JSON."""
    if body.startswith(b"\x1f\x8b"):
        return " It is compressed with gzip: send it as it is."
    return " Write null for NaN and infinities." if b"NaN" in body or b"Infinity" in body else ""


def content_length(scope: Scope) -> int | None:
    """The announced length of the body."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def is_json_content_type(content_type: str | None) -> bool:
    """Whether a content type says JSON: application/json, or application/…+json."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return media_type.startswith("application/") and media_type.endswith(("/json", "+json"))


async def read_body(receive: Receive, length: int | None, max_bytes: int, hold: Hold) -> bytes:
    """The whole request body, refused as soon as it is known to be too long; a large one is held piece by piece."""
    if length is not None and length > max_bytes:
        raise BodyTooLarge(f"The body has {length} bytes; at most {max_bytes} are read.", max_bytes=max_bytes)
    parts: list[bytes] = []
    n_bytes, is_more = 0, True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, is_more = message.get("body", b""), message.get("more_body", False)
        n_bytes += len(part)
        if n_bytes > max_bytes:
            raise BodyTooLarge(f"The body has more than {max_bytes} bytes.", max_bytes=max_bytes)
        if is_more or len(part) > UNCOUNTED:
            hold.add(len(part))
        parts.append(part)
    return b"".join(parts) if len(parts) > 1 else parts[0]


async def send_problem_body(error: Exception, scope: Scope, send: Send) -> None:
    """Answer with the problem of an exception."""
    problem = problems.problem_from_error(error)
    body = json.dumps(problem.body(scope["path"])).encode()
    extra = [(name.encode(), value.encode()) for name, value in problems.problem_response_headers(problem).items()]
    await send_body(send, problem.status, problems.MEDIA_TYPE, body, extra)


async def send_body(
    send: Send, status: int, content_type: str, body: bytes, extra: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with one complete body."""
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


Value = str | int | float | bool | None
Item = TypeVar("Item")
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


def row_body_decoder(shape: type[Rows], max_rows: int) -> Callable[[bytes], Rows]:
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


def check_n_rows(n_rows: int, max_rows: int) -> None:
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
    decode: Callable[[bytes | msgspec.Raw], list[Item]], raw: list[msgspec.Raw], place: str, max_rows: int
) -> list[Item]:
    check_n_rows(len(raw), max_rows)
    items: list[Item] = []
    for first in range(0, len(raw), RECORDS):
        items += _decoded(decode, b"[%b]" % b",".join(raw[first : first + RECORDS]), place, first)
    return items


def _decoded(decode: Callable[[bytes | msgspec.Raw], Item], piece: bytes | msgspec.Raw, place: str, first: int) -> Item:
    """A piece; an error names its place in the body."""
    try:
        return decode(piece)
    except msgspec.ValidationError as error:
        words = PLACE.sub(lambda found: f"{place}[{first + int(found[1])}]", str(error), count=1)
        raise msgspec.ValidationError(words if "`$" in words else f"{words} - at `{place}`") from error
