"""The service under what a day brings: batches, training beside serving, many models, a large model, many jobs.

python -m benchmarks.service                 # all; or name some: batches training start memory lists
"""

from __future__ import annotations

import json
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

from benchmarks.measuring import Figure, machine, median_figure, options, report
from benchmarks.serving import ECHO, detail, in_turn, measure, peer, ratios, serving, trained_workspace
from service import product

ARROW = "application/vnd.apache.arrow.stream"
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


def batches(folder: Path, args: Any) -> list[Figure]:
    """1,000 rows as Arrow IPC against an echo, as JSON columns against XGBoost behind FastAPI and pandas."""
    trained_workspace(folder, 40, 20_000)
    rows = pq.read_table(folder / "train.parquet").slice(0, 1000).drop(["class"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    arrow = sink.getvalue().to_pybytes()
    columns = json.dumps({"columns": {name: rows[name].to_pylist() for name in rows.column_names}}).encode()
    predict = "/v1/models/m/predict"
    with (
        serving(folder / "workspace") as ours,
        peer(ECHO, "/echo") as echo,
        peer(SCORING, "/ping", str(folder / "train.parquet")) as xgboost,
    ):
        beside_echo = in_turn(
            args.rounds, args.seconds, fewpass=(ours, predict, arrow, ARROW, 1), echo=(echo, "/raw", arrow, ARROW, 1)
        )
        request = columns, "application/json", 1
        beside_xgboost = in_turn(
            args.rounds, args.seconds, fewpass=(ours, predict, *request), xgboost=(xgboost, "/invocations", *request)
        )
    what = "1,000 rows, JSON columns: CPU ÷ XGBoost behind FastAPI and pandas"
    return [
        median_figure("1,000 rows, Arrow: CPU ÷ echo", ratios(beside_echo, "cpu_us"), "3", "1.5", detail(beside_echo)),
        median_figure(what, ratios(beside_xgboost, "cpu_us"), "0.2", "0.1", detail(beside_xgboost)),
    ]


def training(folder: Path, args: Any) -> list[Figure]:
    """p99 of one row while a job trains on the other core, against p99 without."""
    record = trained_workspace(folder, 40, 20_000)
    table = pq.read_table(folder / "train.parquet")
    data = folder / "large.parquet"
    pq.write_table(pa.concat_tables([table] * 200), data, row_group_size=262_144)  # four million rows
    body = json.dumps({"records": [record]}).encode()
    job = {"kind": "train", "uris": [str(data)], "target": "class", "learner": "kdb", "model": "other", "holdout": 0}
    quiet, busy = [], []
    with (
        serving(folder / "workspace", JOB_WORKERS="1", THREADS="1") as (pid, port),
        httpx.Client(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        ask = (pid, port, "/v1/models/m/predict", body, "application/json", 1, args.seconds)
        measure(*ask)
        for _ in range(args.rounds):
            quiet.append(measure(*ask))
            made = client.post("/v1/jobs", json=job).json()["id"]
            while client.get(f"/v1/jobs/{made}").json()["state"] == "queued":
                time.sleep(0.05)
            time.sleep(0.5)
            busy.append(measure(*ask))
            assert client.get(f"/v1/jobs/{made}").json()["state"] == "running", "the job outlasts the measurement"
            client.post(f"/v1/jobs/{made}/cancel")
            while client.get(f"/v1/jobs/{made}").json()["state"] == "running":
                time.sleep(0.05)
            time.sleep(1.5)
    found = {"training": busy, "quiet": quiet}
    return [median_figure("p99 while training ÷ without", ratios(found, "p99_ms"), "3", "1.5", detail(found))]


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
            product.train_model_version(workspace, request)
    seconds = []
    for number in range(args.rounds + 1):
        started = time.perf_counter()
        with serving(folder / "workspace"):
            if number:
                seconds.append(time.perf_counter() - started)
    return [median_figure("cold start to ready, 100 models, s", seconds, "5", "2", "polled every 0.1 s")]


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
        version = product.train_model_version(workspace, request)
        size = version.arrow_path.stat().st_size
    bodies = [{"records": [{name: int(rng.integers(0, values)) for name in columns}]} for _ in range(500)]
    with serving(folder / "workspace", "--workers", "3") as (pid, port):

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
        processes = [process.memory_full_info() for process in family if process.ppid() != pid]
        others = [process.memory_full_info().uss / 2**20 for process in (psutil.Process(pid), *loaders)]
    resident = ", ".join(f"{info.rss / 2**20:.0f}" for info in processes)
    text = (
        f"model {size / 2**20:.0f} MiB; private memory of each; resident with shared pages: {resident} MiB; private memory of "
        f"the command and of the process that loads: {', '.join(f'{mib:.0f}' for mib in others)} MiB"
    )
    own = [info.uss / 2**20 for info in processes]
    return [median_figure("memory of a further serving process, MiB", own, "150", "100", text)]


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
    seconds: dict[str, list[float]] = {name: [] for name in ("list jobs", "list schedules", "submit a job")}
    with serving(folder / "workspace") as (_, port), httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
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
        Figure(f"{name}: p95, ms", *(1e3 * np.percentile(taken, [95, 0, 100])), "50", "20")
        for name, taken in seconds.items()
    ]


PARTS = {part.__name__: part for part in (batches, training, start, memory, lists)}


def main() -> None:
    parser = options(__doc__, rounds=3, seconds=2.0, jobs=10_000)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="all unless named")
    args = parser.parse_args()
    figures = []
    for name in args.parts or PARTS:
        with tempfile.TemporaryDirectory() as folder:
            figures += PARTS[name](Path(folder), args)
    report("The service", figures, {"machine": machine()}, args.json)


if __name__ == "__main__":
    main()
