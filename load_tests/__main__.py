"""Load a server of its own on loopback with one profile; leave an HTML and a JSON report with p50, p95 and p99.

python -m load_tests smoke
"""

import argparse
import contextlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx
import numpy as np
import psutil

from benchmarks.serving import trained_workspace
from load_tests.profiles import FIXED_RATE, PROFILES
from service.processes.local_server import local_server
from service.settings import Settings

QUANTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m load_tests", description=__doc__.splitlines()[0])
    parser.add_argument("profile", choices=PROFILES)
    parser.add_argument("--reports", type=Path, default=Path("build/load"))
    parser.add_argument("--workers", type=int, default=1, help="serving processes")
    parser.add_argument("--seconds", type=int, help="when the last stage ends; that of the profile unless given")
    parser.add_argument("--rate", type=float, default=200.0, help=f"requests a second of {FIXED_RATE}")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the training table")
    args = parser.parse_args(arguments)
    args.reports.mkdir(parents=True, exist_ok=True)
    html, report = args.reports / f"{args.profile}.html", args.reports / f"{args.profile}.json"
    is_training = args.profile == "train-while-serving"
    with tempfile.TemporaryDirectory(prefix="fewpass-load-") as directory:
        root = Path(directory)
        record = trained_workspace(root, 40, args.rows, model="load")
        records = [record, record | {"attribute_0": "never seen"}, {name: record[name] for name in list(record)[::2]}]
        (root / "records.json").write_text(json.dumps(records))
        settings = Settings(
            workspace=root / "workspace", workers=args.workers, job_workers=int(is_training), threads=1, job_poll_s=0.1
        )
        started = time.monotonic()
        with local_server(settings) as server:
            trainer = training(server.url, root / "train.parquet") if is_training else contextlib.nullcontext({})
            with trainer as jobs, memory_of(server.pid) as memory:
                code = swarm(args.profile, server.url, root, html, args.seconds, args.rate)
            found = json.loads((root / "figures.json").read_text())
            times = json.loads((root / "times.json").read_text())
    summary = {
        "profile": args.profile,
        "seconds": round(time.monotonic() - started, 1),
        "machine": {"python": platform.python_version(), "cores": os.cpu_count()},
        "serving_processes": args.workers,
        "requests": [figures(entry, times[entry["name"]]) for entry in found],
        "jobs": jobs,
        "server_memory_mb": memory,
    }
    report.write_text(json.dumps(summary, indent=2) + "\n")
    for entry in summary["requests"]:
        times = "  ".join(f"{name[:3]} {entry[name]:g} ms" for name in QUANTILES)
        print(f"{entry['name']:18} {entry['requests']:7} requests {entry['failures']:3} failures  {times}")
    if jobs:
        print(f"{jobs['succeeded']} trainings succeeded meanwhile, {jobs['failed']} failed")
    print(f"The server held {memory[0]['rss']:g} MB at the start, {memory[-1]['rss']:g} MB at the end.")
    print(f"Reports: {html}, {report}")
    return 1 if code or jobs.get("failed") else 0


@contextlib.contextmanager
def memory_of(pid):
    """What the server and its processes hold, every ten seconds and at the end, in MB: all, and their own."""
    found: list[dict[str, float]] = []
    stop, started = threading.Event(), time.monotonic()

    def look():
        processes = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        held = [process.memory_full_info() for process in processes]
        own = {name: round(sum(getattr(each, name) for each in held) / 2**20, 1) for name in ("rss", "uss")}
        found.append({"second": round(time.monotonic() - started, 1)} | own)

    def run():
        while not stop.wait(10):
            look()

    look()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()
        look()


def swarm(profile, url, root, html, seconds, rate):
    """Run locust until the profile has ended; 0 if no request failed."""
    here = Path(__file__).parent
    command = [sys.executable, "-m", "locust", "-f", str(here / "locustfile.py"), "--headless", "--only-summary"]
    command.append("Metronome" if profile == FIXED_RATE else "Client")
    command += ["--host", url, "--html", str(html), "--json-file", str(root / "figures")]
    environment = {"FEWPASS_LOAD_PROFILE": profile, "FEWPASS_LOAD_RECORDS": str(root / "records.json")}
    environment["FEWPASS_LOAD_RATE"] = str(rate)
    environment |= {"FEWPASS_LOAD_TIMES": str(root / "times.json"), "PYTHONPATH": str(here.parent)}
    if seconds is not None:
        environment["FEWPASS_LOAD_SECONDS"] = str(seconds)
    ended = subprocess.run(command, env=os.environ | environment, check=False, capture_output=True, text=True)
    if ended.returncode:
        print(ended.stderr[-3000:], file=sys.stderr)
    return ended.returncode


@contextlib.contextmanager
def training(url, path):
    """Trainings one after another, each with another seed so that nothing is found ready; yields their numbers."""
    counted = {"succeeded": 0, "failed": 0}
    stop = threading.Event()

    def train():
        seed = 0
        with httpx.Client(base_url=url, timeout=30) as client:
            while not stop.is_set():
                seed += 1
                body = {"kind": "train", "uris": [str(path)], "target": "class", "learner": "kdb", "model": "trained"}
                job = client.post("/v1/jobs", json=body | {"parameters": {"k": 3}, "seed": seed}).json()
                while job["state"] in {"queued", "running"} and not stop.wait(0.1):
                    job = client.get(f"/v1/jobs/{job['id']}").json()
                if job["state"] in counted:
                    counted[job["state"]] += 1

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield counted
    finally:
        stop.set()
        thread.join()


def figures(entry, times_ms):
    """What a report says of one kind of request."""
    seconds = max(entry["last_request_timestamp"] - entry["start_time"], 1e-9)
    return {
        "name": entry["name"],
        "requests": entry["num_requests"],
        "failures": entry["num_failures"],
        "requests_per_s": round(entry["num_requests"] / seconds, 1),
        # Nearest ranks: times that were measured.
        **{
            name: round(float(np.quantile(times_ms, share, method="inverted_cdf")), 3)
            for name, share in QUANTILES.items()
        },
    }


if __name__ == "__main__":
    sys.exit(main())
