"""The service under what a day brings: batches, training beside serving, many models, a large model, many jobs.

python -m benchmarks.service                 # all; or name some: batches training start memory lists
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, machine, report
from benchmarks.serving import free_port, measure, running, trained_workspace
from service import product

ARROW = "application/vnd.apache.arrow.stream"
RAW_ECHO = """
import sys
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

async def echo(request):
    return Response(await request.body(), media_type="application/octet-stream")

uvicorn.run(Starlette(routes=[Route("/echo", echo, methods=["POST"])]), host="127.0.0.1", port=int(sys.argv[1]),
            log_level="warning", access_log=False, loop="uvloop", http="httptools")
"""
# As `mlflow models serve` does it: JSON to a data frame, categories as in training, predict, JSON.
SCORING = """
import sys
import pandas as pd
import uvicorn
import xgboost
from fastapi import FastAPI, Request

frame = pd.read_parquet(sys.argv[2])
label = (frame.pop("class") == "high").astype(int)
kinds = {name: pd.CategoricalDtype(sorted(frame[name].unique())) for name in frame}
model = xgboost.XGBClassifier(n_estimators=100, max_depth=6, enable_categorical=True, n_jobs=1)
model.fit(frame.astype(kinds), label)
app = FastAPI()

@app.post("/invocations")
async def invocations(request: Request):
    split = await request.json()
    rows = pd.DataFrame(split["columns"]).astype(kinds)
    return {"predictions": model.predict_proba(rows).tolist()}

@app.get("/ping")
def ping():
    return {}

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False, loop="uvloop")
"""


def serve(port: int, *more: str) -> list[str]:
    return [sys.executable, "-m", "service.cli", "serve", "--port", str(port), *more]


def alternated(rounds: int, seconds: float, **servers: tuple[int, int, str, bytes, str, int]) -> dict[str, list[dict]]:
    """Figures of each server in each round, all in turn; one unmeasured round warms up."""
    found: dict[str, list[dict]] = {name: [] for name in servers}
    for number in range(rounds + 1):
        for name, (pid, port, path, body, content_type, connections) in servers.items():
            figures = measure(pid, port, path, body, content_type, connections, seconds)
            if number:
                found[name].append(figures)
    return found


def ratio_of(found: dict[str, list[dict]], ours: str, peer: str, key: str) -> tuple[float, float, float]:
    ratios = [a[key] / b[key] for a, b in zip(found[ours], found[peer], strict=True)]
    return statistics.median(ratios), min(ratios), max(ratios)


def detail_of(found: dict[str, list[dict]]) -> str:
    return "; ".join(
        f"{name}: {statistics.median(f['cpu_us'] for f in figures):.0f} µs CPU, p50 {statistics.median(f['p50_ms'] for f in figures):.2f} ms, "
        f"p99 {statistics.median(f['p99_ms'] for f in figures):.2f} ms"
        for name, figures in found.items()
    )


def batches(folder: Path, args: Any) -> list[Figure]:
    """1,000 rows as Arrow IPC against an echo, as JSON columns against XGBoost behind FastAPI and pandas."""
    trained_workspace(folder, 40, 20_000)
    rows = pq.read_table(folder / "train.parquet").slice(0, 1000).drop(["class"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    arrow = sink.getvalue().to_pybytes()
    columns = json.dumps({"columns": {name: rows[name].to_pylist() for name in rows.column_names}}).encode()
    ports = [free_port() for _ in range(3)]
    environment = {
        "FEWPASS_WORKSPACE": str(folder / "workspace"),
        "FEWPASS_JOB_WORKERS": "0",
        "FEWPASS_LOG_LEVEL": "warning",
    }
    scoring = [sys.executable, "-c", SCORING, str(ports[2]), str(folder / "train.parquet")]
    with contextlib.ExitStack() as stack:
        ours = stack.enter_context(running(serve(ports[0]), ports[0], "/readyz", environment))
        echo = stack.enter_context(running([sys.executable, "-c", RAW_ECHO, str(ports[1])], ports[1], "/echo", {}))
        peer = stack.enter_context(running(scoring, ports[2], "/ping", {}))
        predict = "/v1/models/m/predict"
        found = alternated(
            args.rounds,
            args.seconds,
            fewpass=(ours, ports[0], predict, arrow, ARROW, 1),
            echo=(echo, ports[1], "/echo", arrow, ARROW, 1),
        )
        with_columns = alternated(
            args.rounds,
            args.seconds,
            fewpass=(ours, ports[0], predict, columns, "application/json", 1),
            xgboost=(peer, ports[2], "/invocations", columns, "application/json", 1),
        )
    return [
        Figure(
            "1,000 rows, Arrow: CPU ÷ echo", *ratio_of(found, "fewpass", "echo", "cpu_us"), "3", "1.5", detail_of(found)
        ),
        Figure(
            "1,000 rows, JSON columns: CPU ÷ XGBoost behind FastAPI and pandas",
            *ratio_of(with_columns, "fewpass", "xgboost", "cpu_us"),
            "0.2",
            "0.1",
            detail_of(with_columns),
        ),
    ]


def training(folder: Path, args: Any) -> list[Figure]:
    """p99 of one row while a job trains on the other core, against p99 without."""
    record = trained_workspace(folder, 40, 20_000)
    table = pq.read_table(folder / "train.parquet")
    data = folder / "large.parquet"
    pq.write_table(pa.concat_tables([table] * 200), data, row_group_size=262_144)  # four million rows
    body, port = json.dumps({"records": [record]}).encode(), free_port()
    environment = {
        "FEWPASS_WORKSPACE": str(folder / "workspace"),
        "FEWPASS_THREADS": "1",
        "FEWPASS_LOG_LEVEL": "warning",
    }
    job = {"kind": "train", "uris": [str(data)], "target": "class", "learner": "kdb", "model": "other", "holdout": 0}
    quiet, busy = [], []
    with (
        running(serve(port), port, "/readyz", environment) as pid,
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        ask = (pid, port, "/v1/models/m/predict", body, "application/json", 1, args.seconds)
        measure(*ask)
        for _ in range(args.rounds):
            quiet.append(measure(*ask))
            job_id = client.post("/v1/jobs", json=job).json()["id"]
            while client.get(f"/v1/jobs/{job_id}").json()["state"] == "queued":
                time.sleep(0.05)
            time.sleep(0.5)
            busy.append(measure(*ask))
            assert client.get(f"/v1/jobs/{job_id}").json()["state"] == "running", "the job outlasts the measurement"
            client.post(f"/v1/jobs/{job_id}/cancel")
            while client.get(f"/v1/jobs/{job_id}").json()["state"] == "running":
                time.sleep(0.05)
            time.sleep(1.5)
    found = {"training": busy, "quiet": quiet}
    return [
        Figure(
            "p99 while training ÷ without",
            *ratio_of(found, "training", "quiet", "p99_ms"),
            "3",
            "1.5",
            detail_of(found),
        )
    ]


def start(folder: Path, args: Any) -> list[Figure]:
    """Seconds from the command to ready, with 100 models of which one has an alias asked for."""
    from service.requests.requests import TrainRequest
    from service.settings import Settings
    from service.workspace import Workspace

    trained_workspace(folder, 40, 2_000)
    with Workspace(Settings(workspace=folder / "workspace")) as workspace:
        for number in range(99):
            request = TrainRequest(
                uris=[str(folder / "train.parquet")], target="class", learner="nb", model=f"m{number}", holdout=0
            )
            product.train(workspace, request)
    seconds = []
    for number in range(args.rounds + 1):
        port = free_port()
        environment = {
            "FEWPASS_WORKSPACE": str(folder / "workspace"),
            "FEWPASS_JOB_WORKERS": "0",
            "FEWPASS_LOG_LEVEL": "warning",
        }
        started = time.perf_counter()
        with running(serve(port), port, "/readyz", environment):
            if number:
                seconds.append(time.perf_counter() - started)
    low, high = min(seconds), max(seconds)
    return [
        Figure(
            "cold start to ready, 100 models, s", statistics.median(seconds), low, high, "5", "2", "polled every 0.1 s"
        )
    ]


def memory(folder: Path, args: Any) -> list[Figure]:
    """Memory of serving processes over one large mapped model."""
    from service.requests.requests import TrainRequest
    from service.settings import Settings
    from service.workspace import Workspace

    rng = np.random.default_rng(0)
    n, values = 220_000, 100
    y = rng.integers(0, 2, n)
    columns = {f"x{i:02d}": ((rng.integers(0, values, n) + y) % values).astype(np.uint8) for i in range(16)}
    pq.write_table(pa.table(columns | {"class": y.astype(np.uint8)}), folder / "wide.parquet")
    with Workspace(Settings(workspace=folder / "workspace")) as workspace:
        request = TrainRequest(
            uris=[str(folder / "wide.parquet")], target="class", learner="kdb", parameters={"k": 3, "m": 1.0}, model="large",
            holdout=0,
        )  # fmt: skip
        version = product.train(workspace, request)
        size = version.arrow_path.stat().st_size
    port = free_port()
    environment = {
        "FEWPASS_WORKSPACE": str(folder / "workspace"),
        "FEWPASS_JOB_WORKERS": "0",
        "FEWPASS_LOG_LEVEL": "warning",
    }
    bodies = [{"records": [{name: int(rng.integers(0, values)) for name in columns}]} for _ in range(500)]
    with running(serve(port, "--workers", "3"), port, "/readyz", environment) as pid:

        def ask() -> None:
            with httpx.Client() as client:
                for body in bodies:
                    client.post(f"http://127.0.0.1:{port}/v1/models/large/predict", json=body).raise_for_status()

        threads = [threading.Thread(target=ask) for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        family = psutil.Process(pid).children(recursive=True)
        loaders = [process for process in family if process.ppid() == pid]
        serving = [process.memory_full_info() for process in family if process.ppid() != pid]
        others = [process.memory_full_info().uss / 2**20 for process in (psutil.Process(pid), *loaders)]
    own = sorted(info.uss / 2**20 for info in serving)
    resident = ", ".join(f"{info.rss / 2**20:.0f}" for info in serving)
    detail = (
        f"model {size / 2**20:.0f} MiB; private memory of each; resident with shared pages: {resident} MiB; private memory of "
        f"the command and of the process that loads: {', '.join(f'{mib:.0f}' for mib in others)} MiB"
    )
    return [
        Figure(
            "memory of a further serving process, MiB", statistics.median(own), own[0], own[-1], "150", "100", detail
        )
    ]


def lists(folder: Path, args: Any) -> list[Figure]:
    """Listing and submitting with 300 schedules and 10,000 finished jobs."""
    from service.settings import Settings
    from service.workspace import Workspace

    trained_workspace(folder, 4, 1_000)
    settings = Settings(workspace=folder / "workspace")
    with Workspace(settings) as workspace:
        for _ in range(args.jobs):
            job, _ = product.job_queue(workspace).submit(
                "evaluate", {"model": "m", "uris": [str(folder / "train.parquet")]}
            )
            product.job_queue(workspace).cancel(job.id)
    port = free_port()
    environment = {
        "FEWPASS_WORKSPACE": str(folder / "workspace"),
        "FEWPASS_JOB_WORKERS": "0",
        "FEWPASS_LOG_LEVEL": "warning",
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("list jobs", "list schedules", "submit a job")}
    with (
        running(serve(port), port, "/readyz", environment),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        job = {"kind": "evaluate", "model": "m", "uris": [str(folder / "train.parquet")]}
        for number in range(300):
            schedule = {"name": f"s{number}", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "job": job}
            client.post("/v1/schedules", json=schedule).raise_for_status()
        calls: dict[str, Callable[[], Any]] = {
            "list jobs": lambda: client.get("/v1/jobs"),
            "list schedules": lambda: client.get("/v1/schedules"),
            "submit a job": lambda: client.post("/v1/jobs", json=job),
        }
        for _ in range(100):
            for name, call in calls.items():
                started = time.perf_counter()
                call().raise_for_status()
                seconds[name].append(time.perf_counter() - started)
    return [
        Figure(
            f"{name}: p95, ms",
            statistics.quantiles(times, n=20)[-1] * 1e3,
            min(times) * 1e3,
            max(times) * 1e3,
            "50",
            "20",
            "",
        )
        for name, times in seconds.items()
    ]


PARTS = {part.__name__: part for part in (batches, training, start, memory, lists)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all unless named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    figures = []
    for name in args.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            figures += PARTS[name](Path(folder), args)
    report("The service", figures, {"machine": machine()}, args.json)


if __name__ == "__main__":
    main()
