"""Request bodies within limits, and problems as answers, for everything that is plain ASGI."""

import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from typing import TypeVar

import msgspec
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.api.bodies.decoded_sizes import check_json
from service.http.memory_in_flight import UNCOUNTED, Hold, InFlight
from service.http.paths import IMPORTING, QUERYING, READING
from service.requests import problems
from service.requests.problems import BodyTooLarge, InvalidRequest, MalformedBody, Overloaded
from service.settings import Settings

Decoded = TypeVar("Decoded")
MAX_QUERY_BYTES = 4 << 20  # 10,000 queries of 400 bytes; to read them all takes a tenth of a second
MOST_READ_AGAIN = 1 << 16
MOST_OF_NAME = 80
IN_RECORD = re.compile(r"\$\.(\w+)\[(\d+)\]\[\.\.\.\]")
MAYBE_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
TOO_DEEP = "The body is nested too deeply."
HALF_A_CHARACTER = "The body escapes half of a character (\\ud800 to \\udfff without its other half), which is no text."


class BodyLimit:
    """ASGI middleware that reads the whole body, refuses what is too long, and passes the rest on in one piece.

    Starlette's own limit answers in plain text; bodies of the control plane are small, so reading ahead costs nothing.
    """

    def __init__(self, app: ASGIApp, settings: Settings, in_flight: InFlight) -> None:
        self.app, self.in_flight = app, in_flight
        self.max_bytes, self.max_decoded_bytes = settings.max_body_bytes, settings.max_decoded_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or answer 413."""
        has_body = scope["type"] == "http" and scope["method"] in {"POST", "PUT", "PATCH"}
        if not has_body or IMPORTING.take(scope):
            await self.app(scope, receive, send)
            return
        with self.in_flight.holding() as hold:
            await self._with_body(scope, receive, send, hold)

    async def _with_body(self, scope: Scope, receive: Receive, send: Send, hold: Hold) -> None:
        try:
            most = min(self.max_bytes, MAX_QUERY_BYTES) if QUERYING.take(scope) else self.max_bytes
            body = await read_body(receive, content_length(scope), most, hold)
            is_read_here = not READING.take(scope)  # those look themselves
            if len(body) > UNCOUNTED and is_read_here:
                hold.add(check_json(body, self.max_decoded_bytes, is_shaped=True))
            if is_read_here:
                check_characters(body)
        except ClientDisconnect:
            return
        except (BodyTooLarge, Overloaded, MalformedBody) as error:
            await send_problem(error, scope, send)
            return
        scope["fewpass.hold"] = hold
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_again() -> Message:
            return next(messages, None) or await receive()

        await self.app(scope, receive_again, send)


def check_characters(body: bytes) -> None:
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


def decoded(decode: Callable[[bytes], Decoded], body: bytes, remedy: str) -> Decoded:
    """What a decoder of msgspec makes of a JSON body (InvalidRequest, MalformedBody); `remedy` says what to send instead."""
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        words = long_number(body) if "out of range" in str(error) else ""
        raise InvalidRequest(f"{words or with_column(str(error), body)}. {remedy}") from error
    except RecursionError as error:  # where anything may stand, as among the parameters of a protocol
        raise MalformedBody(TOO_DEEP) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedBody(f"The body is not JSON: {error}.{hint(body)}" if body else "The body is empty.") from error


def with_column(words: str, body: bytes) -> str:
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


def long_number(body: bytes) -> str:
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


def hint(body: bytes) -> str:
    """What may be wrong with a body that is not JSON."""
    if body.startswith(b"\x1f\x8b"):
        return " It is compressed with gzip: send it as it is."
    return " Write null for NaN and infinities." if b"NaN" in body or b"Infinity" in body else ""


def content_length(scope: Scope) -> int | None:
    """The announced length of the body."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def is_json(content_type: str | None) -> bool:
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


async def send_problem(error: Exception, scope: Scope, send: Send) -> None:
    """Answer with the problem of an exception."""
    problem = problems.problem_of(error)
    body = json.dumps(problem.body(scope["path"])).encode()
    extra = [(name.encode(), value.encode()) for name, value in problems.headers_of(problem).items()]
    await send_body(send, problem.status, problems.MEDIA_TYPE, body, extra)


async def send_body(
    send: Send, status: int, content_type: str, body: bytes, extra: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with one complete body."""
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
