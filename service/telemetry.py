"""Logs and metrics: structlog lines with request ids, Prometheus counters, both on a pure ASGI middleware."""

import itertools
import logging
import os
import re
import secrets
import sys
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Protocol

import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest, multiprocess
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.settings import Settings

# Without the values of local variables, which may be an API key or somebody's row.
TRACEBACKS = structlog.tracebacks.ExceptionDictTransformer(show_locals=False, max_frames=30)

REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
# Of a request that belongs to a trace: what whoever we ask gets as `traceparent`; https://www.w3.org/TR/trace-context/
TRACEPARENT: ContextVar[str] = ContextVar("traceparent", default="")
TRACE = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)

REQUESTS = Counter("fewpass_requests", "HTTP requests.", ["route", "method", "status"])
LATENCY = Histogram(
    "fewpass_request_seconds", "Time from the request's head to its last byte.", ["route"], buckets=BUCKETS
)
PREDICTED_ROWS = Counter("fewpass_predicted_rows", "Rows answered.", ["model"])
MAPPED_MODELS = Gauge("fewpass_mapped_models", "Model versions mapped.", multiprocess_mode="livemax")
SWAPS = Counter("fewpass_catalogue_swaps", "Times that serving took over a changed catalogue.")
CONTROL_UP = Gauge(
    "fewpass_control_up", "Whether the control database answered last time.", multiprocess_mode="mostrecent"
)
JOBS = Gauge("fewpass_jobs", "Jobs by state, as of the last look.", ["state"], multiprocess_mode="mostrecent")

PASSES = Gauge("fewpass_running_passes", "Passes over data that jobs are making.", multiprocess_mode="mostrecent")
ROWS_PER_S = Gauge(
    "fewpass_pass_rows_per_second",
    "Rows that these passes read in a second, all together.",
    multiprocess_mode="mostrecent",
)
MODEL_AGE = Gauge(
    "fewpass_model_age_seconds",
    "Age of the version that a model's bare name means.",
    ["model"],
    multiprocess_mode="mostrecent",
)

SERIES = {
    "window_end_timestamp_seconds": "The end of the window that the other series are of.",
    "columns_alerting": "Columns with an alarm.",
    "max_effect_nats": "The largest change of a column given its parents.",
    "unseen_ratio": "The largest share of values that training never saw, over the columns.",
    "missing_ratio": "The largest share of missing values, over the columns.",
    "surprise_nats": "Mean -log P(row) for each known attribute.",
    "estimated_log_loss": "The log loss that the predictions expect of themselves.",
    "realised_log_loss": "The log loss of labelled predictions.",
    "label_coverage_ratio": "The share of predictions with an id or a key that have a label.",
    "label_delay_seconds": "Median time from a prediction to its label.",
}
# One series a model, and none a column: a table of a thousand columns must not make a thousand series.
MONITOR = {
    name: Gauge(f"fewpass_monitor_{name}", words, ["model"], multiprocess_mode="mostrecent")
    for name, words in SERIES.items()
}
MONITORED_ROWS = Counter("fewpass_monitor_rows", "Served rows that were counted.", ["model"])
SAMPLED_OUT_ROWS = Counter("fewpass_monitor_sampled_out_rows", "Served rows that were not counted.", ["model"])


def configure_logs(settings: Settings, process: str) -> None:
    """Send every log line of this process, also those of libraries, to standard error in one format."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _add_request_id,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    finish: list[Any] = (
        [structlog.processors.ExceptionRenderer(TRACEBACKS), structlog.processors.JSONRenderer()]
        if settings.log_format == "json"
        else [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    )
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[settings.log_level.upper()]),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process, pid=os.getpid())
    handler = logging.StreamHandler()
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(settings.log_level.upper())
    for library in ("dbos", "uvicorn", "alembic", "sqlalchemy"):
        adopt_logger(library)


def adopt_logger(library: str) -> None:
    """Let a library's warnings come out in our format, whatever handlers it has given itself."""
    logger = logging.getLogger(library)
    logger.handlers = []
    logger.propagate = True
    logger.setLevel(logging.WARNING)


def _add_request_id(_logger: Any, _method: str, event: Any) -> Any:
    if (request_id := REQUEST_ID.get()) and "request_id" not in event:
        event["request_id"] = request_id
    if traceparent := TRACEPARENT.get():
        _, event["trace_id"], event["span_id"], _ = traceparent.split("-")
    return event


def metrics_text() -> bytes:
    """Every metric in Prometheus' text format, summed over the serving processes when there are several."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return generate_latest()
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry)


class Spans(Protocol):
    """What makes spans of requests for OpenTelemetry."""

    def start(self, method: str, path: str, traceparent: str) -> Any:
        """The span of a request; None if it gets none."""

    def traceparent(self, span: Any) -> str:
        """The header by which others go on with its trace."""

    def end(self, span: Any, method: str, route: str, status: int) -> None:
        """Say what came of the request."""


class Telemetry:
    """ASGI middleware: gives each request an id, counts it, times it, and logs it unless it is a quick prediction.

    Parameters
    ----------
    app : ASGI application
    slow_request_s : float
        Predictions that take longer are logged one by one.
    headers_of : callable
        What every answer says besides, by the path of its request.
    spans : Spans, optional
        Without them a trace that a client names is told in logs and to webhooks alone.
    """

    def __init__(
        self,
        app: ASGIApp,
        slow_request_s: float,
        headers_of: Callable[[str], list[tuple[bytes, bytes]]] = lambda _: [],
        spans: Spans | None = None,
    ) -> None:
        self.app, self.spans = app, spans
        self.headers_of = headers_of
        self.slow_request_s = slow_request_s
        self.log = structlog.get_logger("access")
        self.prefix = secrets.token_hex(4)
        self.numbers = itertools.count(1)
        # prometheus-client's labels() costs as much as a whole prediction, so its results are kept.
        self._finished: dict[tuple[str, str, int], Callable[[float], None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with its id in the response and in every log line made meanwhile."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = scope["fewpass.started"] = time.perf_counter()
        # Made once for all who look: a walk over the raw headers costs as much as this.
        scope["fewpass.headers"] = dict(scope["headers"])
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
                message["headers"] += [*headers, *self.headers_of(scope["path"])]
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
        key = (route, scope["method"], status)
        finished = self._finished.get(key)
        if finished is None:
            finished = self._finished[key] = _recorder(*key)
        finished(seconds)
        is_quick = scope.get("fewpass.quick", False) and status < 400 and seconds < self.slow_request_s
        if not is_quick and route not in {"/healthz", "/readyz", "/metrics"}:
            who = {"key": scope["fewpass.key"]} if "fewpass.key" in scope else {}
            self.log.info(
                "request", **who, method=scope["method"], path=scope["path"], status=status, ms=round(seconds * 1000, 2)
            )


def _recorder(route: str, method: str, status: int) -> Callable[[float], None]:
    count = REQUESTS.labels(route, method, str(status)).inc
    observe = LATENCY.labels(route).observe

    def record(seconds: float) -> None:
        count()
        observe(seconds)

    return record


def _route_of(scope: Scope) -> str:
    """The route's template: a path would make one time series for each model and job."""
    quick = scope.get("fewpass.route")
    if quick is not None:
        return str(quick)
    route = scope.get("route")
    return getattr(route, "path", "unmatched")


def _traceparent(given: bytes | None) -> str:
    """The trace that a client's header names, with a span of our own; empty without one, or of a header that is none."""
    found = None if given is None else TRACE.fullmatch(str(given[:128], "latin-1"))
    # Version 00 has no fifth part; of later versions the first four parts are as we know them.
    if found is None or (found[0].startswith("00") and found[4]):
        return ""
    return f"00-{found[1]}-{secrets.token_hex(8)}-{found[3]}"


def _given_id(scope: Scope) -> str | None:
    """The client's own request id, if it sent one that is safe to log."""
    value = scope["fewpass.headers"].get(b"x-request-id")
    if value is None:
        return None
    text = str(value[:64], "latin-1")
    return text if text.replace("-", "").replace("_", "").isalnum() else None
