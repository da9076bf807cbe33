"""The console: bytes of a first load, time until it can be used, click to paint, and what open consoles cost predictions.

python -m benchmarks.console [--columns 40] [--rows 50000] [--clicks 60] [--consoles 20] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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


@contextlib.contextmanager
def consoles(url: str, n: int) -> Iterator[None]:
    """So many open streams."""
    is_over = threading.Event()

    def listen() -> None:
        with httpx.stream("GET", f"{url}/console/events", timeout=None) as answer:
            for _ in answer.iter_bytes():
                if is_over.is_set():
                    return

    threads = [threading.Thread(target=listen, daemon=True) for _ in range(n)]
    for thread in threads:
        thread.start()
    time.sleep(2)
    yield
    is_over.set()


def in_browser(url: str, clicks: int) -> dict[str, float]:
    """By Chromium: until the explorer has answered, and from a click to the paint after its answer."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page()
        tab.set_default_timeout(120_000)
        tab.goto(f"{url}/console/models/wide/what-if")
        tab.wait_for_selector("#what-if[data-state=settled]")
        loads = []
        for _ in range(5):
            tab.goto(f"{url}/console")
            loads.append(tab.evaluate("performance.getEntriesByType('navigation')[0].domInteractive"))
        tab.goto(f"{url}/console/models/wide/what-if")
        tab.wait_for_selector("#what-if[data-state=settled]")
        paints = [tab.evaluate(CLICK, place) for place in range(clicks)]
        browser.close()
    return {
        "interactive_ms": statistics.median(loads),
        "click_to_paint_p50_ms": quantile(paints, 0.5),
        "click_to_paint_p95_ms": quantile(paints, 0.95),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--clicks", type=int, default=60)
    parser.add_argument("--consoles", type=int, default=20)
    parser.add_argument("--requests", type=int, default=3_000)
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
            ratios = []
            for _ in range(3):
                alone = quantile(latencies(client, "POST", PATH, args.requests, json=rows), 0.99)
                with consoles(server.url, args.consoles):
                    watched = quantile(latencies(client, "POST", PATH, args.requests, json=rows), 0.99)
                ratios.append(watched / alone)
            told["predict_p99_with_consoles_ratio"] = statistics.median(ratios)
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
