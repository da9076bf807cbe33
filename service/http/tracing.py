"""Spans of requests for OpenTelemetry, where an operator asks for them; its library is not loaded otherwise."""

from __future__ import annotations

import os
from http import HTTPStatus
from typing import TYPE_CHECKING

from service.requests.problems import NotReady
from service.version import VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import Span

UNTRACED = frozenset({"/healthz", "/readyz", "/metrics"})


class Spans:
    """Starts and ends the span of each request, and sends them in batches.

    OpenTelemetry's own variables say where to and how many: `OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`.

    Parameters
    ----------
    exporter : SpanExporter, optional
        By default one of OTLP over HTTP.

    Raises
    ------
    NotReady
        If OpenTelemetry is not installed.

    References
    ----------
    Semantic conventions: https://opentelemetry.io/docs/specs/semconv/http/http-spans/
    """

    def __init__(self, exporter: SpanExporter | None = None) -> None:
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
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("fewpass", VERSION)
        self._context = TraceContextTextMapPropagator()

    def start(self, method: str, path: str, traceparent: str) -> Span | None:
        """The span of a request that has come, within the trace that its header names; none of a probe."""
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
        """The header by which others go on with a trace."""
        of = span.get_span_context()
        return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"

    @staticmethod
    def end(span: Span, method: str, route: str, status: int) -> None:
        """Say what came of a request."""
        from opentelemetry.trace import StatusCode

        span.update_name(f"{method} {route}")
        span.set_attributes({"http.route": route, "http.response.status_code": status})
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            span.set_status(StatusCode.ERROR)
        span.end()

    def close(self) -> None:
        """Send what is left."""
        self._provider.shutdown()
