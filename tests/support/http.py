"""Requests of predictions and queries, and what answers have to be."""

import pyarrow as pa

from tests.web import Quiet

PATH = "/v1/models/weather/predict"
RECORD = {"outlook": "sunny", "humidity": 52.0, "windy": False}


def problem(response, status):
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert {"type", "title", "status", "detail"} <= body.keys() and body["status"] == status
    assert "Traceback" not in response.text
    return body


def stream_of(*parts, **options):
    """Tables or batches as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, parts[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        for part in parts:
            writer.write(part)
    return sink.getvalue().to_pybytes()


def answer_of(connection):
    answer = b""
    while not answer.endswith(b"}") and (piece := connection.recv(65_536)):
        answer += piece
    return answer


def is_answered(connection, request):
    connection.sendall(request)
    return answer_of(connection).startswith(b"HTTP/1.1 200")


def ask(client, model, *queries, code=200):
    response = client.post(f"/v1/models/{model}/query", json={"queries": list(queries)})
    assert response.status_code == code, response.text
    return response.json() if code != 200 else response.json()["answers"]


ALERT = {"id": "0123456789abcdef", "model": "play", "version": 1, "subject": "unseen outlook", "kind": "unseen"}
ALERT |= {"columns": ["outlook"], "words": "outlook has unseen values", "effect": 9.0, "unit": "points"}
ALERT |= {"against": "training", "window": "24h", "is_muted": False, "fired_at": "2026-01-01T00:00:00+00:00"}
ALERT |= {"acknowledged_at": None, "resolved_at": None}
CIRCUIT = {"iterations": 20, "draws": 10}


class Receiver(Quiet):
    """Takes the events of a webhook."""

    def do_POST(self):
        self.body()
        self.answer(204)
