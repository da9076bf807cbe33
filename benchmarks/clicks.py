"""The console in a real browser: from a click on a value to the paint of its answer, and from the example to what-if.

python -m benchmarks.clicks --rows 20000
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.measuring import Figure, machine, median_figure, options, report
from benchmarks.real_tables import TARGET, arrow_table
from service import product
from service.processes.local_server import local_server
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

LEARNERS = ("nb", "kdb", "auto")
PAINT_MS, THREE_CLICKS_S = 60, 10
# A paint is done where the task after the next frame begins.
CLICK = """(at) => new Promise((resolve) => {
  const place = document.getElementById("what-if"), before = Number(place.dataset.settled);
  const buttons = [...document.querySelectorAll("#columns details[open] button.value")], began = performance.now();
  let answered = null;
  const painted = (then) => requestAnimationFrame(() => setTimeout(() => then(performance.now() - began), 0));
  const watch = new MutationObserver(() => {
    if (answered === null && Number(place.dataset.number) > before) painted((ms) => (answered = ms));
    if (Number(place.dataset.settled) > before) { watch.disconnect(); painted((ms) => resolve([answered ?? ms, ms])); }
  });
  watch.observe(place, { attributes: true });
  buttons[at % buttons.length].click();
})"""


def clicks(tab: Any, url: str, n: int) -> tuple[list[float], list[float]]:
    """Milliseconds from each of n clicks to the paint of prediction and bars, and to that of everything."""
    tab.goto(url)
    tab.wait_for_selector("#what-if[data-state=settled]")
    places = np.random.default_rng(0).integers(0, 10_000, n + 10)
    seen = [tab.evaluate(CLICK, int(at)) for at in places][10:]
    answered, settled = zip(*seen, strict=True)
    return list(answered), list(settled)


def from_example_to_what_if(tab: Any, url: str) -> float:
    """Seconds from the first of three clicks to the answers of what-if."""
    tab.goto(f"{url}/console/data")
    started = time.perf_counter()
    tab.click("button:has-text('Load the example')")
    tab.wait_for_selector(".histograms svg")
    tab.click("button:has-text('Train a model that predicts')")
    tab.click("text=Ask what if")
    tab.wait_for_selector("#what-if[data-state=settled]")
    return time.perf_counter() - started


def paint(what: str, ms: list[float], at_least: str) -> Figure:
    """The 95th percentile ÷ 60 ms; its spread from quarter to quarter of the clicks."""
    high = [float(np.percentile(part, 95)) / PAINT_MS for part in np.array_split(np.array(ms), 4)]
    middle, last = np.percentile(ms, [50, 95])
    return Figure(what, last / PAINT_MS, min(high), max(high), at_least, "", f"p50 {middle:.0f} ms, p95 {last:.0f} ms")


def main() -> None:
    from playwright.sync_api import sync_playwright

    args = options(__doc__, rows=20_000, clicks=120, rounds=3).parse_args()
    figures, seconds = [], []
    with tempfile.TemporaryDirectory(prefix="fewpass-clicks-") as folder, sync_playwright() as driver:
        table = Path(folder) / "table.parquet"
        pq.write_table(arrow_table(args.rows, np.random.default_rng(0)), table)
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        settings = Settings(workspace=Path(folder) / "workspace", request_timeout_s=600)
        with Workspace(settings) as workspace:
            for learner in LEARNERS:
                product.train_model_version(
                    workspace, TrainRequest(uris=[str(table)], target=TARGET, model=learner, learner=learner)
                )
        with local_server(settings) as server:
            tab = browser.new_page()
            for learner in LEARNERS:
                url = f"{server.url}/console/models/{learner}/what-if"
                answered, settled = clicks(tab, url, args.clicks)
                figures.append(paint(f"{learner}: click to paint ÷ {PAINT_MS} ms", answered, "≤ 1"))
                figures.append(paint(f"{learner}: … of intervals and the completion, too", settled, ""))
        for number in range(args.rounds):
            with local_server(Settings(workspace=Path(folder) / f"example{number}")) as server:
                seconds.append(from_example_to_what_if(browser.new_page(), server.url))
        browser.close()
    shares = [each / THREE_CLICKS_S for each in seconds]
    figures.append(median_figure(f"example, train, what-if ÷ {THREE_CLICKS_S} s", shares, "≤ 1"))
    report("The console in a browser", figures, {"machine": machine(), "rows": args.rows}, args.json)


if __name__ == "__main__":
    main()
