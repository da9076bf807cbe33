"""Take the pictures of docs/how-to/console.md: `make screenshots`. It trains a model in a temporary workspace and serves it."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from urllib.parse import quote

import pyarrow.parquet as pq

from service import product
from service.processes.local_server import local_server
from service.product.datasets.example_data import draw_example_customers
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

OUT = Path(__file__).parent / "how-to" / "console"
SIZE = {"width": 1180, "height": 760}
CASE = {"evidence": {"contract": "monthly", "calls": 5}}
PAGES = {
    "model": "/console/models/churn",
    "data": "/console/data/customers",
    "graph": f"/console/models/churn@1/graph?case={quote(json.dumps(CASE))}",
    "what-if": f"/console/models/churn@1/what-if?case={quote(json.dumps(CASE))}",
}
# What is there when a page has got the rest of it.
READY = {**dict.fromkeys(("graph", "what-if"), "#what-if[data-state=settled]"), "data": ".histograms"}


def main() -> None:
    """Train, serve, open each page, take its picture."""
    from playwright.sync_api import sync_playwright

    OUT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fewpass-screenshots-") as folder:
        settings = Settings(workspace=Path(folder) / "workspace", job_workers=0, request_timeout_s=600)
        table = Path(folder) / "customers.parquet"
        with Workspace(settings) as workspace:
            product.register_example_dataset(workspace)
            for version, learner in enumerate(("kdb", "nb", "tan"), start=1):
                pq.write_table(draw_example_customers(4_000 * version, version), table)
                parameters: dict[str, object] = {"estimator": "hdp-map"} | ({"k": 2} if learner == "kdb" else {})
                asked = {"uris": [str(table)], "target": "customer", "model": "churn", "parameters": parameters}
                product.train_model_version(
                    workspace, TrainRequest(**asked, learner=learner, aliases=["champion"] if version == 1 else [])
                )
        with local_server(settings) as server, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            tab = browser.new_page(viewport=SIZE)
            for name, path in PAGES.items():
                tab.goto(server.url + path, wait_until="load")
                if name in READY:
                    tab.wait_for_selector(READY[name], timeout=120_000)
                tab.screenshot(path=OUT / f"{name}.png")
            browser.close()


if __name__ == "__main__":
    main()
