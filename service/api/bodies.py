"""Request bodies within limits, and problems as answers, for everything that is plain ASGI."""

import json
from collections.abc import Iterable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service import problems
from service.problems import BodyTooLarge

STREAMED = ("/import",)  # goes to the disk piece by piece, and has a limit of its own


class BodyLimit:
    """ASGI middleware that reads the whole body, refuses what is too long, and passes the rest on in one piece.

    Starlette's own limit answers in plain text; bodies of the control plane are small, so reading ahead costs nothing.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self.app = app
        self.max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or answer 413."""
        has_body = scope["type"] == "http" and scope["method"] in {"POST", "PUT", "PATCH"}
        if not has_body or scope["path"].endswith(STREAMED):
            await self.app(scope, receive, send)
            return
        try:
            body = await read_body(receive, content_length(scope), self.max_bytes)
        except ClientDisconnect:
            return
        except BodyTooLarge as error:
            await send_problem(error, scope, send)
            return
        messages = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def receive_again() -> Message:
            return next(messages, None) or await receive()

        await self.app(scope, receive_again, send)


def content_length(scope: Scope) -> int | None:
    """The announced length of the body."""
    return next((int(value) for name, value in scope["headers"] if name == b"content-length"), None)


def is_json(content_type: str | None) -> bool:
    """Whether a content type says JSON: application/json, or application/…+json."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return media_type.startswith("application/") and media_type.endswith(("/json", "+json"))


async def read_body(receive: Receive, length: int | None, max_bytes: int) -> bytes:
    """The whole request body, refused as soon as it is known to be too long."""
    if length is not None and length > max_bytes:
        raise BodyTooLarge(f"The body has {length} bytes; at most {max_bytes} are read.", max_bytes=max_bytes)
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False):
        return body
    parts, n_bytes = [body], len(body)
    while message.get("more_body", False):
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        n_bytes += len(parts[-1])
        if n_bytes > max_bytes:
            raise BodyTooLarge(f"The body has more than {max_bytes} bytes.", max_bytes=max_bytes)
    return b"".join(parts)


async def send_problem(error: Exception, scope: Scope, send: Send) -> None:
    """Answer with the problem of an exception."""
    problem = problems.problem_of(error)
    body = problem.body(scope["path"])
    if scope["path"].startswith("/v2"):
        body["error"] = problem.detail  # where clients of the Open Inference Protocol look
    extra = [(name.encode(), value.encode()) for name, value in problems.headers_of(problem).items()]
    await send_body(send, problem.status, problems.MEDIA_TYPE, json.dumps(body).encode(), extra)


async def send_body(
    send: Send, status: int, content_type: str, body: bytes, extra: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Answer with one complete body."""
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
