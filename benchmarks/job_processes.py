"""One job = one forked process, beside jobs on threads of a worker as they are: throughput, memory, cancelling, overshoot.

The processes are a prototype: Python's forkserver, which has loaded the product, forks one for each job; the parent looks at
its memory and ends it with SIGKILL. Both ways train by the same verb on the same workspace.

python -m benchmarks.job_processes
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, alternated, figure, machine, report
from service import product
from service.jobs.limits import Limits
from service.jobs.watch import Allowance, Watch
from service.processes.local_server import local_server
from service.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

STEP_BYTES = 8 << 20  # that the greedy job allocates at once
LIMIT = 128 << 20
LOOK_S = 0.1  # as the watch of the threads does
FORKED = multiprocessing.get_context("forkserver")


def table(n_rows: int, n_columns: int) -> pa.Table:
    """Columns of 40 values that depend on a class of four."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 4, n_rows)
    columns = {f"x{i}": (label * (i + 1) + rng.integers(0, 37, n_rows)) % 40 for i in range(n_columns)}
    return pa.table(
        {name: pa.array(codes.astype(str)) for name, codes in columns.items()} | {"class": label.astype(str)}
    )


def request_of(path: Path, learner: str) -> TrainRequest:
    """A training on one file."""
    return TrainRequest(uris=[str(path)], target="class", learner=learner, model=f"m-{learner}")


def train(settings: Settings, path: Path, learner: str) -> None:
    """A job: the workspace is opened by whoever runs it."""
    with Workspace(settings) as workspace:
        product.train(workspace, request_of(path, learner))


def in_thread(work: Callable[[], None]) -> None:
    """A thread that works, to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def forked(work: Callable[[], None]) -> ForkServerProcess:
    """A process that works."""
    process = FORKED.Process(target=work, daemon=True)
    process.start()
    return process


def in_process(work: Callable[[], None]) -> None:
    """A process that works, to its end."""
    process = forked(work)
    process.join()
    if process.exitcode:
        raise RuntimeError(f"the forked job ended with {process.exitcode}")


def own_bytes(pid: int) -> int:
    """Memory that is the process's own."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("RssAnon:", "RssShmem:")))


def idle_bytes(settings: Settings) -> int:
    """Memory that it shares with nobody, of a forked process which has opened the workspace and does nothing."""
    process = forked(partial(open_and_wait, settings))
    time.sleep(3)
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    found = sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))
    process.kill()
    process.join()
    return found


def open_and_wait(settings: Settings) -> None:
    """An idle job."""
    with Workspace(settings):
        time.sleep(60)


def greedy(seconds: float) -> None:
    """A job that takes 80 MB a second and never says a word."""
    held = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        held.append(np.ones(STEP_BYTES, np.uint8))
        time.sleep(0.1)


def overshoot_of_process() -> float:
    """MiB beyond the limit that a greedy process holds when it is ended."""
    process = forked(partial(greedy, 30))
    time.sleep(1)
    at_rest = own_bytes(process.pid or 0)
    most = 0
    while process.is_alive():
        most = max(most, own_bytes(process.pid or 0) - at_rest)
        if most > LIMIT:
            process.kill()
            break
        time.sleep(LOOK_S)
    process.join()
    return (most - LIMIT) / 2**20


def overshoot_of_thread() -> float:
    """MiB beyond the limit when the watch ends the worker of a greedy thread."""
    ended, worked = threading.Event(), threading.Thread(target=greedy, args=(8.0,), daemon=True)
    peaks = []

    def end(job: Allowance) -> None:
        peaks.append(job.peak)
        ended.set()

    watch = Watch(end).start()
    allowance = watch.allowance("greedy", Limits(LIMIT, None))
    allowance.begin(lambda: None)
    worked.start()
    ended.wait(10)
    watch.stop()
    worked.join()
    return (peaks[0] - LIMIT) / 2**20


def cancel_process(settings: Settings, large: Path, small: Path) -> float:
    """Seconds from ending a long training until the next, small one is done: a forked process each."""
    process = forked(partial(train, settings, large, "skdb"))
    time.sleep(2)
    started = time.perf_counter()
    process.kill()
    process.join()
    in_process(partial(train, settings, small, "nb"))
    return time.perf_counter() - started


def cancel_thread(settings: Settings, large: Path, small: Path) -> float:
    """The same of the product: two jobs of one worker, the first is cancelled while it trains."""
    with local_server(settings) as server, httpx.Client(base_url=f"{server.url}/v1", timeout=60) as client:
        seconds_of_job(client, small)
        long = client.post("/jobs", json=body_of(large, "skdb")).json()["id"]
        while client.get(f"/jobs/{long}").json()["state"] != "running":
            time.sleep(0.05)
        time.sleep(2)
        started = time.perf_counter()
        client.post(f"/jobs/{long}/cancel").raise_for_status()
        seconds_of_job(client, small)
        return time.perf_counter() - started


def seconds_of_job(client: httpx.Client, path: Path) -> float:
    """Seconds of a small training by a job, from its submission to its end."""
    started = time.perf_counter()
    job = client.post("/jobs", json=body_of(path, "nb")).json()["id"]
    while (state := client.get(f"/jobs/{job}").json()["state"]) in ("queued", "running"):
        time.sleep(0.02)
    if state != "succeeded":
        raise RuntimeError(f"the job of the benchmark is {state}")
    return time.perf_counter() - started


def body_of(path: Path, learner: str) -> dict[str, object]:
    """A training as a request."""
    return {"kind": "train", **request_of(path, learner).model_dump(mode="json", exclude_unset=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of the training that is cancelled")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    FORKED.set_forkserver_preload(["service.processes.preloaded"])
    with tempfile.TemporaryDirectory(prefix="fewpass-bench-") as folder:
        small, large = Path(folder) / "small.parquet", Path(folder) / "large.parquet"
        pq.write_table(table(500, 5), small)
        pq.write_table(table(args.rows, 12), large)
        settings = Settings(
            workspace=Path(folder) / "workspace", data_roots=(folder,), job_workers=1, job_poll_s=0.05, progress_s=0.1
        )
        os.environ.setdefault("NUMBA_NUM_THREADS", "1")
        work = partial(train, settings, small, "nb")
        seconds = alternated(args.rounds, thread=partial(in_thread, work), process=partial(in_process, work))
        overshoot = [(overshoot_of_process(), overshoot_of_thread()) for _ in range(3)]
        idle = idle_bytes(settings) / 2**20
        cancelled = [(cancel_process(settings, large, small), cancel_thread(settings, large, small)) for _ in range(2)]
    of_process, of_thread = (statistics.median(values) for values in zip(*overshoot, strict=True))
    ended_process, ended_thread = (statistics.median(values) for values in zip(*cancelled, strict=True))
    figures = [
        figure("a small training, forked process ÷ thread", seconds["process"], seconds["thread"], "", ""),
        Figure("MiB of its own that an idle forked job takes", idle, idle, idle, "", "", ""),
        Figure(
            "s from cancelling a training until the next small one is done, process ÷ thread",
            ended_process / ended_thread,
            min(a / b for a, b in cancelled),
            max(a / b for a, b in cancelled),
            "",
            "",
            f"{ended_process:.2f} s / {ended_thread:.2f} s",
        ),
        Figure(
            "MiB beyond the limit when ended, process",
            of_process,
            min(over for over, _ in overshoot),
            max(over for over, _ in overshoot),
            "",
            "",
            f"thread {of_thread:.0f} MiB; 80 MiB a second",
        ),
    ]
    report("Jobs as forked processes and as threads", figures, machine(), args.json)


if __name__ == "__main__":
    main()
