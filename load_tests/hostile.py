"""What hostile requests take from a server and from the others who use it: one table, from a server of its own on loopback.

python -m load_tests.hostile --layouts 200 --fillings 20

Each row is a promise of docs/how-to/security.md or docs/reference/request-limits.md. The disk of the last row is a tmpfs, which only root may mount.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.serving import trained_workspace
from service.processes.local_server import local_server
from service.settings import Settings

ADMIN_KEY = "an-administrator-of-load"
N_ROWS = 60_000  # of a training that a full disk meets at any of its steps
SECRET = "line-of-another-folder"
N_HOSTILE, SHUTDOWN_S = 8, 5.0
LONGEST_S = 240.0  # that a job is waited for once its disk has space
HEADERS = {"authorization": f"Bearer {ADMIN_KEY}"}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m load_tests.hostile", description=__doc__.splitlines()[0])
    parser.add_argument("--layouts", type=int, default=200, help="generated layouts of links")
    parser.add_argument("--fillings", type=int, default=20, help="times that a disk is filled while a job runs")
    parser.add_argument(
        "--free-after", type=float, nargs=2, default=(5.0, 60.0), help="seconds until the disk is freed"
    )
    parser.add_argument("--only", nargs="*", default=(), help="first words of the rows to measure")
    args = parser.parse_args(arguments)
    rows = [
        ("links", "bytes of files outside the roots in answers, logs and jobs", "none", lambda: links(args.layouts)),
        ("wait", "seconds that an honest submission waits longer than alone", "<= 2", waits),
        ("cpu", "CPU s spent after the clients of hostile requests left", "<= 2", cpu_after_leaving),
        ("sigterm", "s from SIGTERM until the server has ended", f"<= {SHUTDOWN_S + 2:g}", ends),
        ("memory", "MB taken by 110 connections without a key", "<= 50", memory),
        ("lists", "answers and items of lists after 500 hostile submissions", "200, all", lists),
        (
            "disk",
            "jobs that went on or ended within 60 s of the space, and ended",
            "all",
            lambda: fillings(args.fillings, args.free_after),
        ),
    ]
    for name, what, least, measure in rows:
        if not args.only or name in args.only:
            print(f"{name:8} {what:62} {least:10} {measure()}", flush=True)


@contextlib.contextmanager
def served(**more):
    """A server with keys, roots and a model, and its folder."""
    with tempfile.TemporaryDirectory(prefix="fewpass-hostile-") as directory:
        root = Path(directory)
        (root / "data").mkdir()
        trained_workspace(root, 30, 3_000)
        shutil.copy(root / "train.parquet", root / "data" / "train.parquet")
        options = {
            "require_keys": True,
            "admin_key": ADMIN_KEY,
            "job_workers": 0,
            "shutdown_s": SHUTDOWN_S,
            "warm_up": False,
        }
        settings = Settings(workspace=root / "workspace", data_roots=(str(root / "data"),), **options | more)
        with (
            local_server(settings) as server,
            httpx.Client(base_url=server.url, headers=HEADERS, timeout=120) as client,
        ):
            yield server, client, root / "data"


def train_job(uri, **more):
    return {"kind": "train", "uris": [uri], "learner": "nb", "target": "class", "model": "m2"} | more


def links(n_layouts):
    """Links out of the root, files and folders, chains and loops, asked for by every kind of URI."""
    rng = random.Random(0)
    with served() as (server, client, data):
        outside = data.parent / "outside"
        outside.mkdir()
        for kind in ("csv", "jsonl", "parquet"):
            (outside / f"z.{kind}").write_text(f"{SECRET}/1\n1/2/{SECRET}/3\n" * 4)
        texts = []
        for number in range(n_layouts):
            folder, kind = data / f"layout-{number}", rng.choice(["csv", "jsonl", "parquet"])
            folder.mkdir()
            how = rng.choice(["file", "folder", "chain", "loop"])
            (folder / ("within" if how == "folder" else f"z.{kind}")).symlink_to(
                outside / ("" if how == "folder" else f"z.{kind}")
            )
            if how == "loop":
                (folder / "again").symlink_to(folder)
            below = "within/" if how == "folder" else ""
            uri = f"{folder}/" + rng.choice(
                [f"{below}z.*", f"{below}z.{kind}", "**", "" if how != "folder" else "within"]
            )
            columns = {"*": {"delimiter": rng.choice("/:,")}}
            texts += [client.post("/v1/datasets", json={"name": f"d{number}", "uris": [uri], "columns": columns}).text]
            texts += [client.post("/v1/jobs", json=train_job(uri, columns=columns)).text]
        texts += [
            client.get("/v1/jobs?limit=500").text,
            client.get("/v1/datasets?limit=500").text,
            server.log.read_text(),
        ]
        return sum(text.count(SECRET) * len(SECRET) for text in texts)


def hostile_calls(data):
    """Eight of each: patterns, what-ifs, lakes; as (path, body)."""
    for a in range(60):
        (data / "wide" / f"{a}").mkdir(parents=True)
        for b in range(60):
            (data / "wide" / f"{a}" / f"to{b}").symlink_to(data / "wide" / f"{b}")
    log = data / "lake" / "_delta_log"
    log.mkdir(parents=True)
    line = json.dumps(
        {"add": {"path": "x.parquet", "size": 1, "partitionValues": {}, "modificationTime": 1, "dataChange": True}}
    )
    for version in range(2_000):
        (log / f"{version:020}.json").write_text(f"{line}\n" * 40)
    names = [f"attribute_{i}" for i in range(30)]
    for number in range(N_HOSTILE):
        yield "/v1/jobs", train_job(f"{data}/wide/{'*/' * 12}nofile{number}")
        yield "/v1/jobs", train_job(f"{data}/lake/{'*/../' * 14}nofile{number}")
        yield (
            "/v1/models/m/whatif",
            {"time_limit_s": 60, "best": 20, "parts": ["completion", "posterior"], "likely": {names[0]: {"low": 1.0}}},
        )
        yield "/v1/datasets", {"name": f"lake{number}", "uris": [f"{data}/lake"]}


def ask_quietly(url, path, body, timeout):
    with contextlib.suppress(httpx.HTTPError):
        httpx.post(url + path, json=body, headers=HEADERS, timeout=timeout)


def attacked(server, data, timeout=60):
    """Threads of clients that ask all hostile things at once."""
    calls = list(hostile_calls(data))
    threads = [threading.Thread(target=ask_quietly, args=(server.url, *call, timeout), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    return threads


def seconds_of(call):
    started = time.monotonic()
    response = call()
    assert response.status_code < 300, response.text
    return time.monotonic() - started


def waits():
    with served() as (server, client, data):

        def submit():
            return client.post("/v1/jobs", json=train_job(f"{data}/train.parquet"))

        def slowest():
            return max(seconds_of(submit) for _ in range(5))

        before, load = slowest(), os.getloadavg()[0]
        threads = attacked(server, data)
        time.sleep(0.5)
        during = slowest()
        n_left = sum(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
        after = slowest()  # what else the machine does counts in the usual time as well
        usual = max(before, after)
        return (
            f"{during - usual:.2f} ({during:.2f}; usual {before:.2f} before, {after:.2f} after; "
            f"{n_left} of {len(threads)} still ran; load {load:.0f} before)"
        )


def cpu_of(pid):
    """CPU s of a process and its children so far."""
    total = 0.0
    for process in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def cpu_after_leaving():
    with served() as (server, _, data):
        for thread in attacked(server, data, timeout=1.5):
            thread.join()
        before = cpu_of(server.pid)
        time.sleep(15)
        return f"{max(0.0, cpu_of(server.pid) - before):.2f}"


def ends():
    with served(job_workers=1) as (server, _, data):
        attacked(server, data)
        time.sleep(1)
        process = psutil.Process(server.pid)
        started = time.monotonic()
        process.terminate()
        with contextlib.suppress(psutil.Error):
            while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.05)
        return f"{time.monotonic() - started:.2f}"


def memory():
    with served() as (server, _, _data):
        url, process = httpx.URL(server.url), psutil.Process(server.pid)
        before, most = process.memory_info().rss, 0
        start = b"POST /console/session HTTP/1.1\r\nhost: localhost\r\n"
        kinds = [
            (start + b"content-length: 33000000\r\n\r\n", b"x" * 1_000_000, 31),
            (start + b"transfer-encoding: chunked\r\n\r\n0\r\n", b"a:\r\n" * 250_000, 31),  # trailers
            (start, b"a:\r\n" * 60_000, 1),  # a head that does not end
            (b"", b"GET /healthz HTTP/1.1\r\n\r\n" * 10_000, 4),  # requests sent ahead
        ]

        def send(number):
            head, piece, n = kinds[number % len(kinds)]
            with contextlib.suppress(OSError), socket.create_connection((url.host, url.port), timeout=30) as connection:
                connection.sendall(head)
                for _ in range(n):
                    connection.sendall(piece)
                connection.recv(100)

        with ThreadPoolExecutor(110) as pool:
            done = [pool.submit(send, number) for number in range(110)]
            while not all(one.done() for one in done):
                most = max(most, process.memory_info().rss - before)
                time.sleep(0.02)
        return f"{most / 1e6:.0f}"


def lists():
    def nested(depth):
        value: object = 1
        for _ in range(depth):
            value = {"a": value}
        return value

    with served() as (_, client, data):
        for number in range(500):
            columns = (
                {"a": nested(number)} if number % 2 else {f"c{i}": {"kind": "numeric"} for i in range(number * 10)}
            )
            client.post("/v1/jobs", json=train_job(f"{data}/train.parquet", columns=columns))
        kept, cursor, status, shown = set(), None, set(), 0
        while True:
            answer = client.get("/v1/jobs", params={"limit": 100} | ({"cursor": cursor} if cursor else {}))
            status.add(answer.status_code)
            if answer.status_code != 200:
                break
            kept |= {item["id"] for item in answer.json()["items"]}
            shown += len(answer.json()["items"])
            if (cursor := answer.json()["next_cursor"]) is None:
                break
        return f"{sorted(status)}, {shown} shown, {len(kept)} different"


def fillings(n_runs, free_after):
    """A workspace on a small disk that is filled while a job runs, and freed."""
    rng = np.random.default_rng(0)
    n_well, slowest, latest = 0, 0.0, 0.0
    for number in range(n_runs):
        with tempfile.TemporaryDirectory(prefix="fewpass-disk-") as directory:
            disk = Path(directory) / "disk"
            disk.mkdir()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=30m", "none", str(disk)], check=True)
            try:
                went_on_s, ended_s, state = filled(
                    disk, Path(directory), float(rng.uniform(*free_after)), float(rng.uniform(0.2, 3))
                )
            finally:
                subprocess.run(["umount", "-l", str(disk)], check=False)
        n_well += went_on_s <= 60 and ended_s < LONGEST_S
        slowest, latest = max(slowest, went_on_s), max(latest, ended_s)
        times = f"went on {went_on_s:.1f} s and ended {ended_s:.1f} s after the space"
        print(f"  filling {number + 1}: {times}, {state}", flush=True)
    return f"{n_well} of {n_runs}; the slowest went on after {slowest:.1f} s, the last ended after {latest:.1f} s"


def filled(disk, beside, free_after_s, fill_after_s):
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, N_ROWS)
    table = pa.table({f"x{i}": rng.integers(0, 9, y.size) + y for i in range(12)} | {"class": y.astype(str)})
    pq.write_table(table, beside / "rows.parquet", row_group_size=20_000)
    settings = Settings(workspace=disk / "workspace", job_workers=1, threads=1, warm_up=False)
    with local_server(settings) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        body = {
            "kind": "train",
            "uris": [str(beside / "rows.parquet")],
            "target": "class",
            "learner": "kdb",
            "model": "m",
        }
        job = client.post("/v1/jobs", json=body).json()["id"]
        time.sleep(fill_after_s)
        with contextlib.suppress(OSError), (disk / "filler").open("wb") as filler:
            while True:
                filler.write(b"\0" * 4096)
                filler.flush()
        time.sleep(free_after_s)
        (disk / "filler").unlink()
        started, went_on_s, ended_s, own, before = time.monotonic(), LONGEST_S, LONGEST_S, {}, None
        while (seconds := time.monotonic() - started) < LONGEST_S:
            with contextlib.suppress(httpx.HTTPError, ValueError):
                own = client.get(f"/v1/jobs/{job}").json()
                before = before or own
                is_over = own["state"] in ("succeeded", "failed")
                if is_over or any(own[name] != before[name] for name in ("progress", "attempts")):
                    went_on_s = min(went_on_s, seconds)
                if is_over:
                    ended_s = seconds
                    break
            time.sleep(0.25)
        error = own.get("error") or {}
        title = error.get("detail") if error.get("status") == 500 else error.get("title")
        return went_on_s, ended_s, " ".join([own["state"], *([title] if title else []), f"(attempt {own['attempts']})"])


if __name__ == "__main__":
    main()
