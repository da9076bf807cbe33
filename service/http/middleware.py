"""ASGI middleware for every request: id, metrics, log line, OpenTelemetry span, deadline and body limit."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import itertools
import os
import re
import secrets
import time
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio.to_thread
import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.api.bodies import (
    UNCOUNTED,
    Hold,
    InFlight,
    check_content_encoding,
    check_no_content_range,
    content_length,
    read_body,
    send_problem_body,
    watched_client,
)
from service.http.api.json_bodies import check_json_size, check_json_structure
from service.http.paths import QUERYING, READING, SIGNING_IN, STREAMING
from service.http.security import security_headers
from service.requests.problems import BodyTooLarge, MalformedBody, NotReady, Overloaded, TooSlow, UnsupportedMediaType
from service.settings import Settings
from service.telemetry import LATENCY, REQUEST_ID, REQUESTS, TRACEPARENT
from service.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.trace import Span

# https://www.w3.org/TR/trace-context/
TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
SIGN_IN_BYTES = 16 << 10  # a key, and the page to go to
MAX_QUERY_BYTES = 4 << 20  # 10,000 queries of 400 bytes; to read them all takes a tenth of a second
UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})


class Spans:
    """Starts and ends the OpenTelemetry span of each request, and sends spans in batches over OTLP; the library is
    loaded only here.

    OpenTelemetry's own variables say where to and how many: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`. Raises NotReady if OpenTelemetry is not installed.

    References
    ----------
    Semantic conventions: https://opentelemetry.io/docs/specs/semconv/http/http-spans/
    """

    def __init__(self) -> None:
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
        except ImportError:
            raise NotReady(
                "FEWPASS_TRACES is on, and OpenTelemetry is not installed: pip install 'fewpass[otel]', or leave it off."
            ) from None
        name = os.environ.get("OTEL_SERVICE_NAME", "fewpass")
        self._provider = TracerProvider(resource=Resource.create({"service.name": name, "service.version": VERSION}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("fewpass", VERSION)
        self._context = TraceContextTextMapPropagator()

    def start(self, method: str, path: str, traceparent: str) -> Span | None:
        """Start the span of a request within the trace that its header names; None for probes."""
        if path in UNTRACED:
            return None
        from opentelemetry.trace import SpanKind

        return self._tracer.start_span(
            method,
            self._context.extract({"traceparent": traceparent} if traceparent else {}),
            SpanKind.SERVER,
            {"http.request.method": method, "url.path": path},
        )

    @staticmethod
    def traceparent(span: Span) -> str:
        """Return the traceparent header with which other services continue the trace."""
        of = span.get_span_context()
        return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"

    @staticmethod
    def end(span: Span, method: str, route: str, status: int) -> None:
        """End the span of a request with its route and status."""
        from opentelemetry.trace import StatusCode

        span.update_name(f"{method} {route}")
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Send the remaining spans."""
        self._provider.shutdown()


class Telemetry:
    """ASGI middleware: gives each request an id, counts and times it, and logs it unless it is a quick prediction.

    Predictions that take longer than `slow_request_s` are logged one by one. Without spans, the trace of a client
    appears only in logs and webhooks.
    """

    def __init__(self, app: ASGIApp, slow_request_s: float, spans: Spans | None = None) -> None:
        self.app, self.spans, self.slow_request_s = app, spans, slow_request_s
        self.log = structlog.get_logger("access")
        self.prefix = secrets.token_hex(4)
        self.numbers = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its id in the response and in every log line written meanwhile."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = scope["fewpass.started"] = time.perf_counter()
        # Made once for all who look: a walk over the raw headers costs as much as this.
        scope["fewpass.headers"] = dict(scope["headers"])
        scope["fewpass.is_hot"] = is_predict_request(scope["method"], scope["path"])
        request_id = _given_id(scope) or f"{self.prefix}-{next(self.numbers):x}"
        REQUEST_ID.set(request_id)
        headers = [(b"x-request-id", request_id.encode())]
        traceparent, span = _traceparent(scope["fewpass.headers"].get(b"traceparent")), None
        if self.spans is not None:
            given = str(scope["fewpass.headers"].get(b"traceparent", b"")[:128], "latin-1") if traceparent else ""
            span = self.spans.start(scope["method"], scope["path"], given)
            traceparent = traceparent if span is None else self.spans.traceparent(span)
        TRACEPARENT.set(traceparent)
        if traceparent:
            headers.append((b"traceresponse", traceparent.encode()))
        status = 500

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                rate = scope.get("fewpass.rate_headers", ())
                if status == HTTPStatus.TEMPORARY_REDIRECT:
                    message["headers"] = [_on_this_server(*header) for header in message["headers"]]
                message["headers"] += [*headers, *rate, *security_headers(scope["path"])]
            await send(message)

        try:
            await self.app(scope, receive, send_with_id)
        finally:
            self.finish(scope, status, time.perf_counter() - started)
            if self.spans is not None and span is not None:
                self.spans.end(span, scope["method"], _route_of(scope), status)

    def finish(self, scope: Scope, status: int, seconds: float) -> None:
        """Count and time one finished request, and log it if it is worth a line."""
        route = _route_of(scope)
        count, observe = _recorders(route, scope["method"], status)
        count()
        observe(seconds)
        is_quick = scope.get("fewpass.quick", False) and status < 400 and seconds < self.slow_request_s
        if not is_quick and route not in UNTRACED:
            who = {"key": scope["fewpass.key"]} if "fewpass.key" in scope else {}
            self.log.info(
                "request", **who, method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1000, 2)
            )


def _on_this_server(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a header; a Location without scheme and host, which Starlette takes from the request's own Host."""
    if name != b"location":
        return name, value
    place = urlsplit(value)
    return name, place._replace(scheme=b"", netloc=b"", path=b"/" + place.path.lstrip(b"/")).geturl()


def is_predict_request(method: str, path: str) -> bool:
    """Return whether a request is a prediction in its common form; ten times faster than a regular expression."""
    return method == "POST" and path.startswith("/v1/models/") and path.endswith("/predict") and path.count("/") == 4


@cache  # prometheus-client's labels() costs as much as a whole prediction
def _recorders(route: str, method: str, status: int) -> tuple[Callable[[], None], Callable[[float], None]]:
    return REQUESTS.labels(route, method, str(status)).inc, LATENCY.labels(route).observe


def _route_of(scope: Scope) -> str:
    """Return the route template: raw paths would make one time series per model and job."""
    return str(scope.get("fewpass.route") or getattr(scope.get("route"), "path", "unmatched"))


def _traceparent(given: bytes | None) -> str:
    """Return the client's trace with a new span id; empty without a valid traceparent header."""
    match = None if given is None else TRACE.fullmatch(str(given[:128], "latin-1"))
    # Version 00 has no fifth part; of later versions the first four parts are as we know them.
    if match is None or (match[0].startswith("00") and match[4]):
        return ""
    return f"00-{match[1]}-{secrets.token_hex(8)}-{match[3]}"


def _given_id(scope: Scope) -> str | None:
    """Return the client's own request id if it is safe to log, else None."""
    text = str(scope["fewpass.headers"].get(b"x-request-id", b"")[:64], "latin-1")
    return text if text.replace("-", "").replace("_", "").isalnum() else None


class BodyLimit:
    """ASGI middleware that reads the whole body, refuses one that is too long, and passes it on in one piece.

    Starlette's own limit answers in plain text; bodies of the control plane are small, so reading ahead costs nothing.
    """

    def __init__(self, app: ASGIApp, settings: Settings, in_flight: InFlight) -> None:
        self.app, self.in_flight = app, in_flight
        self.max_bytes, self.max_decoded_bytes = settings.max_body_bytes, settings.max_decoded_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on with its body, or answer 413."""
        has_body = scope["type"] == "http" and scope["method"] in {"POST", "PUT", "PATCH"}
        if scope["type"] != "http" or STREAMING.take(scope):
            await self.app(scope, receive, send)
            return
        if not has_body:
            await self._watched(scope, receive, send, b"", is_watched=True)
            return
        with Hold(self.in_flight) as hold:
            await self._with_body(scope, receive, send, hold)

    def _most_bytes(self, scope: Scope) -> int:
        """Return the largest body in bytes that this path accepts; little or none on open paths, which need no key."""
        if "fewpass.role" not in scope:
            return SIGN_IN_BYTES if SIGNING_IN.take(scope) else 0
        return min(self.max_bytes, MAX_QUERY_BYTES) if QUERYING.take(scope) else self.max_bytes

    async def _with_body(self, scope: Scope, receive: Receive, send: Send, hold: Hold) -> None:
        try:
            check_content_encoding(scope)
            check_no_content_range(scope)
            most = self._most_bytes(scope)
            body = await read_body(receive, content_length(scope), most, hold) if most else b""
            body = body.removeprefix(codecs.BOM_UTF8)
            is_read_here = not READING.take(scope)  # those look themselves
            if len(body) > UNCOUNTED and is_read_here:
                hold.add(check_json_size(body, self.max_decoded_bytes, is_shaped=True))
            if is_read_here:
                await _run_unless_small(check_json_structure, body)
        except ClientDisconnect:
            return
        except (BodyTooLarge, Overloaded, MalformedBody, UnsupportedMediaType) as error:
            await send_problem_body(error, scope, send)
            return
        scope["fewpass.hold"] = hold
        await self._watched(scope, receive, send, body, is_watched=most > 0)

    async def _watched(self, scope: Scope, receive: Receive, send: Send, body: bytes, *, is_watched: bool) -> None:
        """Pass the request on with its body, and record when the client disconnects."""
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        async with watched_client(receive, is_watched=is_watched) as left:

            async def receive_again() -> Message:
                return unread.pop() if unread else await asyncio.shield(left)

            await self.app(scope, receive_again, send)


async def _run_unless_small(check: Callable[[bytes], None], body: bytes) -> None:
    """Check a body; a long one on a thread, so that other requests do not wait."""
    if len(body) <= UNCOUNTED:
        check(body)
    else:
        await anyio.to_thread.run_sync(check, body)


class Deadlines:
    """ASGI middleware that answers 503 and cancels a request whose answer has not begun in time.

    A timer for each request would cost as much as a look-up in a model, so one task looks at all of them.
    """

    def __init__(self, app: ASGIApp, timeout_s: float) -> None:
        self.app = app
        self.timeout_s = timeout_s
        self._running: dict[asyncio.Task[Any], Scope] = {}
        self._late: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer 503 if it is cancelled for being late."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = scope
        try:
            await self.app(scope, receive, send)
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.discard(task)
            task.uncancel()
            with contextlib.suppress(RuntimeError):  # its answer had begun just then
                late = TooSlow(
                    f"The request exceeded {self.timeout_s:g} s and was cancelled; work already started may complete. "
                    "Retry, send fewer rows, or submit a job.",
                    timeout_s=self.timeout_s,
                )
                await send_problem_body(late, scope, send)
        finally:
            del self._running[task]

    async def sweep(self) -> None:
        """Cancel late requests until cancelled itself."""
        while True:
            await asyncio.sleep(min(1.0, self.timeout_s / 4))
            now = time.perf_counter()  # the clock of Telemetry, which has noted the start
            for task, scope in list(self._running.items()):
                is_late = now - scope["fewpass.started"] > self.timeout_s and task not in self._late
                if is_late and not STREAMING.take(scope):
                    self._late.add(task)
                    task.cancel()
