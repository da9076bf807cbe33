"""CPU time per POST predict, one row of 40 attributes, against a bare Starlette JSON echo of the same body.

Both servers run as subprocesses on loopback; the client is a raw asyncio protocol with keep-alive, and the two are
measured alternately in the same run. CPU time of the server process is the figure that the client cannot spoil.

    python -m benchmarks.serving --rounds 5 --seconds 3
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.measuring import machine, median_figure, options, report
from service import product

ECHO = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

async def echo(request):
    return JSONResponse(await request.json())

async def raw(request):
    return Response(await request.body(), media_type="application/octet-stream")

routes = [Route("/echo", echo, methods=["POST"]), Route("/raw", raw, methods=["POST"])]
uvicorn.run(Starlette(routes=routes), host="127.0.0.1", port=int(sys.argv[1]),
            log_level="warning", access_log=False, loop="uvloop", http="httptools")
"""


class Connection(asyncio.Protocol):
    """One keep-alive connection that sends the next request as soon as the answer is complete."""

    def __init__(self, request: bytes, latencies: list[float]):
        self.request, self.latencies = request, latencies
        self.expected = 0
        self.received = b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.send()

    def send(self) -> None:
        self.started = time.perf_counter()
        self.transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        if not separator:
            return
        if not self.expected:
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(self.received.decode())
            self.expected = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        if len(body) >= self.expected:
            self.received, self.expected = b"", 0
            self.latencies.append(time.perf_counter() - self.started)
            self.send()


async def load(port: int, path: str, body: bytes, content_type: str, connections: int, seconds: float) -> list[float]:
    """Latencies of as many requests as the server answers in the given time, closed loop."""
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    latencies: list[float] = []
    loop = asyncio.get_running_loop()
    transports = [
        (await loop.create_connection(lambda: Connection(head.encode() + body, latencies), "127.0.0.1", port))[0]
        for _ in range(connections)
    ]
    await asyncio.sleep(seconds)
    for transport in transports:
        transport.abort()
    return latencies


def measure(pid: int, port: int, path: str, body: bytes, content_type: str, connections: int, seconds: float) -> dict:
    """Requests/s, CPU microseconds per request of the server process, p50 and p99 in milliseconds."""
    import uvloop

    server = psutil.Process(pid)
    before = server.cpu_times()
    latencies = uvloop.run(load(port, path, body, content_type, connections, seconds))
    after = server.cpu_times()
    cpu = after.user + after.system - before.user - before.system
    cuts = statistics.quantiles(latencies, n=100)
    return {
        "requests_per_s": len(latencies) / seconds,
        "cpu_us": cpu / len(latencies) * 1e6,
        "p50_ms": cuts[49] * 1e3,
        "p99_ms": cuts[98] * 1e3,
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def running(command: list[str], port: int, path: str, environment: dict[str, str]) -> Iterator[int]:
    """A server subprocess that answers on its port; its process id."""
    process = subprocess.Popen(command, env=os.environ | environment)
    try:
        for _ in range(3_000):
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"http://127.0.0.1:{port}{path}").status_code in {200, 405}:
                    break
            if process.poll() is not None:
                raise RuntimeError(f"The server ended with code {process.returncode}.")
            time.sleep(0.1)
        else:
            raise RuntimeError("The server was not ready within 300 s.")
        yield process.pid
    finally:
        process.terminate()
        process.wait(timeout=20)


@contextlib.contextmanager
def serving(workspace: Path, *options: str, **settings: str) -> Iterator[tuple[int, int]]:
    """`fewpass serve` over a workspace, without job workers unless the settings ask for some; its process id and port."""
    port = free_port()
    settings = {"WORKSPACE": str(workspace), "JOB_WORKERS": "0", "LOG_LEVEL": "warning"} | settings
    environment = {f"FEWPASS_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "service.cli", "serve", "--port", str(port), *options]
    with running(command, port, "/readyz", environment) as pid:
        yield pid, port


@contextlib.contextmanager
def peer(program: str, path: str, *arguments: str) -> Iterator[tuple[int, int]]:
    """A server of another library, as the text of a program that gets its port; its process id and port."""
    port = free_port()
    with running([sys.executable, "-c", program, str(port), *arguments], port, path, {}) as pid:
        yield pid, port


def in_turn(
    rounds: int, seconds: float, **servers: tuple[tuple[int, int], str, bytes, str, int]
) -> dict[str, list[dict]]:
    """Figures of each server in each round, all in turn; one unmeasured round warms up.

    A server is its process id and port, the path, the body and its type, and how many connections ask it.
    """
    found: dict[str, list[dict]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, ((pid, port), *request) in servers.items():
            figures = measure(pid, port, *request, seconds)
            if number:
                found[name].append(figures)
    return found


def ratios(found: dict[str, list[dict]], key: str) -> list[float]:
    """A figure of the first server ÷ that of the second, round by round."""
    ours, theirs = found.values()
    return [a[key] / b[key] for a, b in zip(ours, theirs, strict=True)]


def detail(found: dict[str, list[dict]]) -> str:
    """The medians of all servers."""
    forms = {
        "requests_per_s": "{:.0f} requests/s",
        "cpu_us": "{:.0f} µs CPU",
        "p50_ms": "p50 {:.2f} ms",
        "p99_ms": "p99 {:.2f} ms",
    }
    texts = []
    for name, figures in found.items():
        medians = [form.format(statistics.median(each[key] for each in figures)) for key, form in forms.items()]
        texts.append(f"{name}: {', '.join(medians)}")
    return "; ".join(texts)


def trained_workspace(root: Path, attributes: int, rows: int, model: str = "m") -> dict[str, str]:
    """A workspace with a kDB-2 model of `attributes` four-valued strings, and one raw record for it."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    from service.requests.requests import TrainRequest
    from service.settings import Settings
    from service.workspace import Workspace

    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, rows)
    names = np.array(["low", "medium", "high", "none"])
    columns = {
        f"attribute_{i}": names[(rng.integers(0, 4, rows) + label * (rng.random(rows) < 0.3)) % 4]
        for i in range(attributes)
    }
    path = root / "train.parquet"
    pq.write_table(pa.table(columns | {"class": names[label]}), path)
    with Workspace(Settings(workspace=root / "workspace")) as workspace:
        request = TrainRequest(
            uris=[str(path)], target="class", learner="kdb", parameters={"k": 2}, model=model, holdout=0
        )
        product.train_model_version(workspace, request)
    return {name: str(values[0]) for name, values in columns.items()}


def main() -> None:
    args = options(__doc__, rounds=5, seconds=3.0, rows=20_000, connections=[1, 16]).parse_args()
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        record = trained_workspace(Path(directory), 40, args.rows)
        body = json.dumps({"records": [record]}).encode()
        ours = stack.enter_context(serving(Path(directory) / "workspace", LOG_LEVEL="info"))
        echo = stack.enter_context(peer(ECHO, "/echo"))
        figures, results = [], {}
        for connections in args.connections:
            request = body, "application/json", connections
            found = in_turn(
                args.rounds,
                args.seconds,
                fewpass=(ours, "/v1/models/m/predict", *request),
                echo=(echo, "/echo", *request),
            )
            name = f"1 row JSON, {connections} connections"
            figures.append(median_figure(f"{name}: requests/s ÷ echo", ratios(found, "requests_per_s"), "0.6", "0.85"))
            figures.append(median_figure(f"{name}: CPU ÷ echo", ratios(found, "cpu_us"), "1.3", "1.12", detail(found)))
            results[name] = found
    report("POST predict against a bare Starlette echo", figures, machine() | {"results": results}, args.json)


if __name__ == "__main__":
    main()
