"""Request and response bodies: a limit on the bytes that all requests hold, and large bodies decoded piece by piece."""

import asyncio
import contextlib
import json
import re
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Self, TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from learners.passes.memory import release_free_memory
from service.http.api.json_bodies import check_decoded_size
from service.requests import problems
from service.requests.abandonment import ASKED, Asked
from service.requests.problems import BodyTooLarge, MalformedBody, Overloaded, UnsupportedMediaType

WORTH_GIVING_BACK = 64 << 20
UNCOUNTED = 64 << 10  # the thousands of small requests are not worth a lock


class InFlight:
    """Bytes held by the requests of this process (bodies and their decoded values), at most `max_bytes` in total."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes, self.n_bytes = max_bytes, 0
        self._lock = threading.Lock()

    def take(self, n_bytes: int) -> None:
        """Add `n_bytes` to the bytes held, or release them if negative; raises Overloaded above the limit."""
        with self._lock:
            if n_bytes > 0 and self.n_bytes + n_bytes > self.max_bytes:
                raise Overloaded(
                    f"The requests in progress hold {self.n_bytes:,} bytes; {n_bytes:,} more would exceed the limit of "
                    f"{self.max_bytes:,} (FEWPASS_MAX_IN_FLIGHT_BYTES). Try again in a moment.",
                    max_in_flight_bytes=self.max_bytes,
                )
            self.n_bytes += n_bytes


class Hold:
    """Bytes held by one request, released when it ends."""

    def __init__(self, of: InFlight) -> None:
        self.of, self.n_bytes = of, 0

    def add(self, n_bytes: int) -> None:
        """Hold `n_bytes` more; raises Overloaded above the limit."""
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


def check_csv_body_size(body: bytes, max_bytes: int) -> int:
    """Refuse a CSV with too many values (BodyTooLarge); return roughly the bytes that its values will take."""
    n_bytes = len(body) + 16 * (body.count(b",") + body.count(b"\n"))
    check_decoded_size(n_bytes, max_bytes)
    return n_bytes


def check_content_encoding(scope: Scope) -> None:
    """Refuse a compressed body (UnsupportedMediaType)."""
    encoding = scope["fewpass.headers"].get(b"content-encoding", b"").decode("latin-1").strip()
    if encoding.lower() not in ("", "identity"):
        raise UnsupportedMediaType(f"Content-Encoding {encoding[:80]!r} is not supported. Send the body uncompressed.")


def check_no_content_range(scope: Scope) -> None:
    """Refuse a body that is a part of another (MalformedBody)."""
    if b"content-range" in scope["fewpass.headers"]:
        raise MalformedBody("Content-Range is not supported. Send the whole body in one request.")


def check_whole_body(scope: Scope) -> None:
    """Refuse a body that is a part of a file (MalformedBody), a compressed file or a form with a file in it
    (UnsupportedMediaType): stored as it is, it would be another file.
    """
    check_no_content_range(scope)
    check_content_encoding(scope)
    kind = scope["fewpass.headers"].get(b"content-type", b"").decode("latin-1").strip()
    if kind.lower().startswith("multipart/"):
        raise UnsupportedMediaType(
            f"Content type {kind.partition(';')[0][:80]!r} is not supported. Send the bytes of the file alone, as curl -T does."
        )


def content_length(scope: Scope) -> int | None:
    """Return the Content-Length of the request; None without one."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


async def read_body(receive: Receive, length: int | None, max_bytes: int, hold: Hold) -> bytes:
    """Read the whole request body, holding a large one piece by piece; a body that is too long is refused as early as
    possible.
    """
    if length is not None and length > max_bytes:
        raise BodyTooLarge(f"The body has {length} bytes; the limit is {max_bytes}.", max_bytes=max_bytes)
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


@contextlib.asynccontextmanager
async def watched_client(receive: Receive, *, is_watched: bool = True) -> AsyncIterator[asyncio.Future[Message]]:
    """Mark the request of this task abandoned, which ends its work on threads, once it is late, the server stops or,
    with `is_watched`, its client leaves. Whoever needs the message that the client has left waits for the future.
    """
    left: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    request = Asked()
    ASKED.set(request)
    watch = asyncio.create_task(_watch(receive, left, request)) if is_watched else None
    try:
        yield left
    except asyncio.CancelledError:  # it is late, or the server stops
        request.is_abandoned = True
        raise
    finally:
        if watch is not None:
            watch.cancel()


async def _watch(receive: Receive, left: asyncio.Future[Message], request: Asked) -> None:
    """Wait until the client disconnects and mark the request abandoned."""
    while (message := await receive())["type"] != "http.disconnect":
        pass
    request.is_abandoned = True
    if not left.done():
        left.set_result(message)


async def send_problem_body(error: Exception, scope: Scope, send: Send) -> None:
    """Answer with the problem document of an exception."""
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
    """A data frame in the form of pandas' orient="split"; the index is ignored."""

    columns: list[str]
    data: list[list[Value]]
    index: list[Any] | None = None


class RawSplit(msgspec.Struct):
    """A split data frame whose rows are not decoded yet."""

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
    """Return a decoder of bodies into a msgspec struct with rows in its members `RAW`: short bodies at once, long ones
    piece by piece.

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
    """Refuse more than `max_rows` rows (BodyTooLarge)."""
    if n_rows > max_rows:
        raise BodyTooLarge(f"{n_rows} rows in one request; the limit is {max_rows}.", max_rows=max_rows)


def _rows(name: str, raw: Any, max_rows: int) -> Any:
    """Decode a member that holds rows, piece by piece."""
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
    """Decode one piece of a body; an error names its place in the whole body."""
    try:
        return decode(piece)
    except msgspec.ValidationError as error:
        words = PLACE.sub(lambda found: f"{place}[{first + int(found[1])}]", str(error), count=1)
        raise msgspec.ValidationError(words if "`$" in words else f"{words} - at `{place}`") from error
