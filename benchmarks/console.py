"""The console: bytes of a first load, time until it can be used, click to paint, and what open consoles cost predictions.

python -m benchmarks.console [--columns 40] [--rows 50000] [--clicks 60] [--consoles 20] [--json FILE]

Limits: 150 kB, 500 ms until it can be used, 100 ms from click to paint (p95), and 1.2 times the p99 of predictions without consoles.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from service import product
from service.processes.local_server import local_server
from service.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

PAGE = {"accept": "text/html", "accept-encoding": "gzip"}
PATH = "/v1/models/wide/predict"
CLICK = """
async (place) => {
  const buttons = [...document.querySelectorAll('#columns details[open] .value[aria-pressed=false]')];
  const root = document.getElementById('what-if');
  const began = performance.now();
  buttons[place % buttons.length].click();
  while (root.dataset.state === 'asking') await new Promise(requestAnimationFrame);
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - began;
}
"""


# When all scripts of the page have run: deferred ones and modules do so before this event.
READY = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
# Of the page and all that it fetched, as they came over the wire.
BYTES = """
[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
  .filter((each) => !each.name.endsWith('/console/events'))
  .reduce((sum, each) => sum + each.transferSize, 0)
"""


def table(n_rows: int, n_columns: int) -> pa.Table:
    """Columns that depend on the class and on the column before."""
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, n_rows)
    before, columns = y, {}
    for i in range(n_columns):
        own = rng.integers(0, 6, n_rows)
        before = np.where(rng.random(n_rows) < 0.3, y * 2, np.where(rng.random(n_rows) < 0.3, before, own))
        columns[f"column{i:02d}"] = pa.array([f"v{code}" for code in before])
    return pa.table({**columns, "y": pa.array(np.where(y == 1, "yes", "no"))})


def quantile(values: list[float], share: float) -> float:
    """The value below which that share lies."""
    return float(np.quantile(values, share))


def bytes_of_first_load(client: httpx.Client, path: str) -> int:
    """Of the page and every file that it names, as they come over the wire."""
    import re

    def size(url: str) -> tuple[int, bytes]:
        with client.stream("GET", url, headers=PAGE) as answer:
            raw = b"".join(answer.iter_raw())
        return len(raw), raw

    total, raw = size(path)
    import gzip

    text = gzip.decompress(raw).decode() if raw[:2] == b"\x1f\x8b" else raw.decode()
    named = set(re.findall(r'(?:src|href)="(/console/static/[^"]+)"', text))
    own = [url for url in named if url.split("?")[0].endswith(".js") and "vendor" not in url]
    imported: set[str] = set()
    while own:
        source = client.get(own.pop(), headers={"accept-encoding": "identity"}).text
        for name in re.findall(r'from "\./([^"]+)"', source):
            url = f"/console/static/{name}"
            if url not in imported:
                imported.add(url)
                own.append(url)
    return total + sum(size(url)[0] for url in named | imported)


def latencies(client: httpx.Client, method: str, path: str, n: int, **more: Any) -> list[float]:
    """Milliseconds of each of n requests."""
    found = []
    for _ in range(n):
        began = time.perf_counter()
        client.request(method, path, **more).raise_for_status()
        found.append((time.perf_counter() - began) * 1e3)
    return found


LISTENERS = """
import socket, sys, select
host, port, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
streams = [socket.create_connection((host, port)) for _ in range(n)]
for each in streams:
    each.sendall(f"GET /console/events HTTP/1.1\\r\\nHost: {host}:{port}\\r\\n\\r\\n".encode())
print("open", flush=True)
while True:
    for each in select.select(streams, [], [])[0]:
        if not each.recv(65536):
            sys.exit("a stream has ended")
"""


@contextlib.contextmanager
def consoles(url: str, n: int) -> Iterator[None]:
    """So many open streams, held by a process of their own: that of the client shall measure only the server."""
    parts = urlsplit(url)
    command = [sys.executable, "-c", LISTENERS, parts.hostname or "", str(parts.port), str(n)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as listening:
        assert listening.stdout is not None
        listening.stdout.readline()
        time.sleep(2)
        yield
        assert listening.poll() is None, "the streams have ended"
        listening.kill()


def p99_with_consoles(
    client: httpx.Client, url: str, n_consoles: int, n_requests: int, rounds: int, **more: Any
) -> float:
    """99th percentile of predictions with open consoles ÷ without, in turns: the median of the rounds."""
    ratios = []
    for _ in range(rounds):
        alone = quantile(latencies(client, "POST", PATH, n_requests, **more), 0.99)
        with consoles(url, n_consoles):
            watched = quantile(latencies(client, "POST", PATH, n_requests, **more), 0.99)
        ratios.append(watched / alone)
    return statistics.median(ratios)


def in_browser(url: str, clicks: int) -> dict[str, float]:
    """By Chromium: bytes of a first load, until a page and the explorer can be used, and from a click to its paint."""
    from playwright.sync_api import sync_playwright

    explorer = f"{url}/console/models/wide/what-if"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        found: dict[str, list[float]] = {}
        for _ in range(5):
            own = browser.new_context()  # with an empty cache
            tab = own.new_page()
            tab.set_default_timeout(120_000)
            tab.goto(explorer)
            found.setdefault("interactive_ms", []).append(tab.evaluate(READY))
            tab.wait_for_selector("#what-if:is([data-state=answered], [data-state=settled])")
            found.setdefault("first_answer_ms", []).append(tab.evaluate("performance.now()"))
            tab.wait_for_selector("#what-if[data-state=settled]")
            found.setdefault("bytes_of_first_load", []).append(tab.evaluate(BYTES))
            own.close()
        tab = browser.new_page()
        tab.set_default_timeout(120_000)
        tab.goto(explorer)
        tab.wait_for_selector("#what-if[data-state=settled]")
        paints = [tab.evaluate(CLICK, place) for place in range(clicks)]
        browser.close()
    medians = {name: statistics.median(values) for name, values in found.items()}
    return medians | {
        "click_to_paint_p50_ms": quantile(paints, 0.5),
        "click_to_paint_p95_ms": quantile(paints, 0.95),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--clicks", type=int, default=60)
    parser.add_argument("--consoles", type=int, default=20)
    parser.add_argument("--requests", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fewpass-bench-") as folder:
        settings = Settings(workspace=Path(folder) / "workspace", job_workers=0, request_timeout_s=600)
        file = Path(folder) / "wide.parquet"
        pq.write_table(table(args.rows, args.columns), file)
        with Workspace(settings) as workspace:
            asked = {"uris": [str(file)], "target": "y", "learner": "kdb", "parameters": {"k": 2}, "model": "wide"}
            product.train(workspace, TrainRequest(**asked))
        with local_server(settings) as server, httpx.Client(base_url=server.url, timeout=600) as client:
            rows = {"records": [{"column00": "v1", "column07": "v2"}]}
            case = {
                "evidence": rows["records"][0],
                "parts": ["prediction", "contributions", "posterior"],
                "columns": [],
            }
            latencies(client, "POST", "/v1/models/wide/whatif", 3, json=case)
            told: dict[str, float] = {
                f"bytes_{name}": bytes_of_first_load(client, path)
                for name, path in (
                    ("overview", "/console"),
                    ("model", "/console/models/wide"),
                    ("what_if", "/console/models/wide/what-if"),
                )
            }
            told["html_p95_ms"] = quantile(latencies(client, "GET", "/console", 40, headers=PAGE), 0.95)
            what_if = latencies(client, "POST", "/v1/models/wide/whatif", 60, json=case)
            told |= {"what_if_p50_ms": quantile(what_if, 0.5), "what_if_p95_ms": quantile(what_if, 0.95)}
            told["predict_p99_with_consoles_ratio"] = p99_with_consoles(
                client, server.url, args.consoles, args.requests, args.rounds, json=rows
            )
            if shutil.which("chromium"):
                told |= in_browser(server.url, args.clicks)
            else:
                print("no Chromium: nothing is measured in a browser (make browser)")
    for name, value in told.items():
        print(f"{name:34} {value:,.2f}")
    if args.json is not None:
        args.json.write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
