"""Spans of requests: within the client's trace, named by their route, sent over OTLP, and nothing of it unless asked for."""

import sys

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse

from service.console.routes import Page
from service.http.middleware import Spans, Telemetry
from service.requests.problems import NotReady
from service.telemetry import TRACEPARENT
from tests.service.asking import run_apart
from tests.web import Quiet, serving

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(Quiet):
    """Takes what an exporter sends."""

    bodies: list[bytes]

    def do_POST(self):
        assert self.path == "/v1/traces"
        self.bodies.append(self.body())
        self.answer(200)


def answer(request):
    return PlainTextResponse(TRACEPARENT.get(), 500 if request.path_params["name"] == "broken" else 200)


def test_spans_are_sent_to_the_collector(monkeypatch):
    Collector.bodies = []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")

    async def asked():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://here") as client:
            traced = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
            unsampled = {"traceparent": f"00-{TRACE}-{SPAN}-00"}
            return [
                await client.get("/things/good", headers=traced),
                await client.get("/things/broken"),
                await client.get("/things/unseen", headers=unsampled),
                await client.get("/healthz"),
            ]

    with serving(Collector) as address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{address}")
        spans = Spans()
        app = Telemetry(Starlette(routes=[Page("/things/{name}", answer)]), 1.0, spans=spans)
        good, broken, _, probe = run_apart(asked())
        spans.close()
    sent = [ExportTraceServiceRequest.FromString(body) for body in Collector.bodies]
    found = [s for each in sent for of in each.resource_spans for scope in of.scope_spans for s in scope.spans]
    first, second = sorted(found, key=lambda span: span.start_time_unix_nano)
    assert (first.trace_id.hex(), first.parent_span_id.hex()) == (TRACE, SPAN)
    told = {each.key: each.value for each in first.attributes}
    assert first.name == "GET /things/{name}" and told["http.response.status_code"].int_value == 200
    assert good.text == good.headers["traceresponse"] == f"00-{TRACE}-{first.span_id.hex()}-01"
    assert second.status.code == 2 and broken.headers["traceresponse"].startswith(f"00-{second.trace_id.hex()}-")
    assert "traceresponse" not in probe.headers


def test_without_the_library_the_start_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(NotReady, match=r"OpenTelemetry is not installed: pip install 'fewpass\[otel\]'"):
        Spans()
