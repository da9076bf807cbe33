"""An hour of everything at once, after which memory, descriptors and threads of every process must be where they were.

python -m load_tests.soak --seconds 3600

One server with two serving processes and a worker answers predictions at a fixed rate, while models are trained again, promoted,
asked and pruned. The slope of each process is that of a least-squares line through the last two thirds of the run; a process
that was replaced on purpose counts from its own beginning.
"""

import argparse
import contextlib
import json
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import psutil

from benchmarks.serving import trained_workspace
from service.processes.local_server import local_server
from service.settings import Settings

SAMPLE_S = 5.0
PER_CONNECTION = 500  # predictions
TIMEOUT_S = 60.0
WARM = 1 / 3  # of the run, which does not count: caches fill
# What an hour may add to one process. The allocator keeps what it once had, so memory is not exactly flat.
PER_HOUR = {"megabytes": 32.0, "descriptors": 4.0, "threads": 4.0}


class Soak:
    """The traffic of a soak, and what was counted."""

    def __init__(self, url, record, data, rate, pause_s):
        self.url, self.record, self.data, self.rate, self.pause_s = url, record, data, rate, pause_s
        self.asked: Counter[str] = Counter()
        self.errors: list[str] = []
        self.stop = threading.Event()

    def client(self):
        return httpx.Client(base_url=self.url, timeout=TIMEOUT_S)

    def ask(self, what, call):
        try:
            response = call()
        except httpx.HTTPError as error:
            self.errors.append(f"{what}: {error!r}")
            return None
        self.asked[what] += 1
        if response.status_code >= 400:
            self.errors.append(f"{what}: {response.status_code} {response.text[:300]}")
        return response

    def predict(self):
        """One prediction every 1 / rate seconds; a new connection now and then, so that each serving process has its share."""
        due = time.monotonic()
        while not self.stop.is_set():
            with self.client() as client:
                for _ in range(PER_CONNECTION):
                    self.ask(
                        "predict", partial(client.post, "/v1/models/load/predict", json={"records": [self.record]})
                    )
                    due = max(due + 1 / self.rate, time.monotonic() - 1)
                    if self.stop.wait(max(0.0, due - time.monotonic())):
                        return

    def change(self):
        """Train again and decide, query, prune; one after the other."""
        train = {"kind": "train", "uris": [str(self.data)], "target": "class", "learner": "nb", "model": "load"}
        refresh = {"kind": "refresh", "train": train | {"holdout": 0.1}, "promotion": {"beats_prior": False}}
        question = {"queries": [{"kind": "marginal", "evidence": {}}]}
        with self.client() as client:
            while not self.stop.wait(self.pause_s):
                made = self.ask("refresh", lambda: client.post("/v1/jobs", json=refresh))
                if made is not None and made.status_code == 202:
                    self.finish(client, made.json()["id"])
                self.ask("query", lambda: client.post("/v1/models/load/query", json=question))
                self.ask("prune", lambda: client.post("/v1/models/load/prune?keep=3"))
                self.ask("metrics", lambda: client.get("/metrics"))

    def finish(self, client, job_id):
        while not self.stop.is_set():
            job = client.get(f"/v1/jobs/{job_id}").json()
            if job["state"] not in {"queued", "running"}:
                self.asked[job["state"]] += 1
                if job["state"] != "succeeded":
                    self.errors.append(f"job: {job['error']}")
                return
            self.stop.wait(0.5)


def usage_of(pid):
    """What each process of a server holds now, by its process id and when it was started."""
    found = {}
    parent = psutil.Process(pid)
    for process in [parent, *parent.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
            words = process.cmdline()
            role = "worker" if "worker" in words else "forked" if "service.processes.forking" in words else "command"
            held = {
                "megabytes": (process.memory_info().rss - process.memory_info().shared) / 2**20,
                "descriptors": float(process.num_fds()),
                "threads": float(process.num_threads()),
            }
            found[f"{process.pid}-{process.create_time():.0f}"] = role, held
    return found


def slopes(samples):
    """By process: its role, what it held at first and at last, and how much an hour adds to it."""
    of_process: dict[str, list[tuple[float, str, dict[str, float]]]] = defaultdict(list)
    begin = samples[0][0] + WARM * (samples[-1][0] - samples[0][0])
    for moment, found in samples:
        for name, (role, held) in found.items():
            if moment >= begin:
                of_process[name].append((moment, role, held))
    told = []
    for name, seen in of_process.items():
        if len(seen) < 5:  # of a trial or the like, which lives for seconds
            continue
        hours = np.array([moment for moment, _, _ in seen]) / 3600
        of_kind: dict[str, dict[str, object]] = {
            kind: {
                "first": round(seen[0][2][kind], 1),
                "last": round(seen[-1][2][kind], 1),
                "per_hour": round(float(np.polyfit(hours, [held[kind] for _, _, held in seen], 1)[0]), 2),
            }
            for kind in PER_HOUR
        }
        minutes = seen[:: max(1, round(60 / SAMPLE_S))]  # a step looks other than a slope
        of_kind["megabytes"]["by_minute"] = [round(held["megabytes"], 1) for _, _, held in minutes]
        told.append({"process": name, "role": seen[0][1], "samples": len(seen)} | of_kind)
    return told


def soak(seconds, rate, n_rows, pause_s):
    """Run it; what was asked, what failed, and the slopes."""
    with tempfile.TemporaryDirectory(prefix="fewpass-soak-") as directory:
        root = Path(directory)
        record = trained_workspace(root, 10, n_rows, model="load")
        settings = Settings(workspace=root / "workspace", workers=2, job_workers=1, threads=1)
        samples = []
        with local_server(settings) as server:
            traffic = Soak(server.url, record, root / "train.parquet", rate, pause_s)
            threads = [threading.Thread(target=work) for work in (traffic.predict, traffic.change)]
            for thread in threads:
                thread.start()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                samples.append((time.monotonic(), usage_of(server.pid)))
                time.sleep(SAMPLE_S)
            traffic.stop.set()
            for thread in threads:
                thread.join()
    found = slopes(samples)
    steep = [
        f"{one['role']} {one['process']}: {kind} grows by {one[kind]['per_hour']} an hour, and {most} are allowed"
        for one in found
        for kind, most in PER_HOUR.items()
        if one[kind]["per_hour"] > most
    ]
    asked = dict(traffic.asked)
    return {"seconds": seconds, "asked": asked, "errors": traffic.errors, "processes": found, "steep": steep}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m load_tests.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=50.0, help="predictions a second")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the training table")
    parser.add_argument("--pause", type=float, default=15.0, help="seconds between a refresh and the next")
    parser.add_argument("--report", type=Path, default=Path("build/load/soak.json"))
    args = parser.parse_args(arguments)
    told = soak(args.seconds, args.rate, args.rows, args.pause)
    args.report.parent.mkdir(parents=True, exist_ok=True)
    args.report.write_text(json.dumps(told, indent=1))
    print(json.dumps(told, indent=1))
    # In less than a quarter of an hour a line through a few steps of the allocator says nothing of hours.
    return 1 if told["errors"] or (told["steep"] and args.seconds >= 900) else 0


if __name__ == "__main__":
    sys.exit(main())
