"""CPU time per POST predict, one row of 40 attributes, against a bare Starlette JSON echo of the same body.

Both servers run as subprocesses on loopback; the client is a raw asyncio protocol with keep-alive, and the two are
measured alternately in the same run. CPU time of the server process is the figure that the client cannot spoil.

    python -m benchmarks.serving --rounds 5 --seconds 3
"""

from __future__ import annotations

import argparse
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

from benchmarks.measuring import Figure, machine, report
from service import product

ECHO = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def echo(request):
    return JSONResponse(await request.json())

uvicorn.run(Starlette(routes=[Route("/echo", echo, methods=["POST"])]), host="127.0.0.1", port=int(sys.argv[1]),
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


def compare(
    ours: tuple[int, int, str], echo: tuple[int, int, str], body: bytes, content_type: str, connections: int, args: Any
) -> dict[str, Any]:
    """Alternate the two servers and report medians over the rounds, and ratios of medians."""
    rounds: dict[str, list[dict]] = {"fewpass": [], "echo": []}
    for number in range(args.rounds + 1):
        for name, (pid, port, path) in (("fewpass", ours), ("echo", echo)):
            figures = measure(pid, port, path, body, content_type, connections, args.seconds)
            if number:  # the first round warms up both
                rounds[name].append(figures)
    medians = {
        name: {key: statistics.median(figures[key] for figures in all_figures) for key in all_figures[0]}
        for name, all_figures in rounds.items()
    }
    pairs = list(zip(rounds["fewpass"], rounds["echo"], strict=True))
    return medians | {
        "requests_ratios": [ours["requests_per_s"] / echo["requests_per_s"] for ours, echo in pairs],
        "cpu_ratios": [ours["cpu_us"] / echo["cpu_us"] for ours, echo in pairs],
    }


def as_figures(name: str, result: dict[str, Any]) -> list[Figure]:
    """Requests per second and CPU time of a comparison as ratios."""
    ours, echo = result["fewpass"], result["echo"]
    rates, cpu = result["requests_ratios"], result["cpu_ratios"]
    latency = f"p50 {ours['p50_ms']:.3g}/{echo['p50_ms']:.3g} ms, p99 {ours['p99_ms']:.3g}/{echo['p99_ms']:.3g} ms"
    return [
        Figure(
            f"{name}: requests/s ÷ echo",
            statistics.median(rates),
            min(rates),
            max(rates),
            "0.6",
            "0.85",
            f"{ours['requests_per_s']:.0f} / {echo['requests_per_s']:.0f}, {latency}",
        ),
        Figure(
            f"{name}: CPU ÷ echo",
            statistics.median(cpu),
            min(cpu),
            max(cpu),
            "1.3",
            "1.12",
            f"{ours['cpu_us']:.0f} / {echo['cpu_us']:.0f} µs a request",
        ),
    ]


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
        product.train(workspace, request)
    return {name: str(values[0]) for name, values in columns.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 16])
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as stack:
        record = trained_workspace(Path(directory), 40, args.rows)
        body = json.dumps({"records": [record]}).encode()
        our_port, echo_port = free_port(), free_port()
        environment = {"FEWPASS_WORKSPACE": f"{directory}/workspace", "FEWPASS_JOB_WORKERS": "0"}
        serve = [sys.executable, "-m", "service.cli", "serve", "--port", str(our_port)]
        our_pid = stack.enter_context(running(serve, our_port, "/readyz", environment))
        echo_pid = stack.enter_context(running([sys.executable, "-c", ECHO, str(echo_port)], echo_port, "/echo", {}))
        results = {}
        for connections in args.connections:
            results[f"1 row JSON, {connections} connections"] = compare(
                (our_pid, our_port, "/v1/models/m/predict"),
                (echo_pid, echo_port, "/echo"),
                body,
                "application/json",
                connections,
                args,
            )
    figures = [entry for name, result in results.items() for entry in as_figures(name, result)]
    report("POST predict against a bare Starlette echo", figures, machine() | {"results": results}, args.json)


if __name__ == "__main__":
    main()
