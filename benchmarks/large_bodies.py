"""How long others wait while one serving process answers a large body: a prediction of one row is asked all the while.

python -m benchmarks.large_bodies --rounds 3
"""

from __future__ import annotations

import http.client
import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measuring import machine, median_figure, options, report
from service import product
from service.processes.local_server import local_server
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

MODELS = {"nb": "nb", "circuit": "spn"}


def trained(folder: Path) -> Settings:
    """A workspace with a classifier and a circuit of two columns and a class."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 5_000)
    table = {"a": np.array(["x", "y", "z"])[(label + rng.integers(0, 2, 5_000)) % 3], "b": rng.integers(0, 9, 5_000)}
    pq.write_table(pa.table(table | {"class": np.array(["n", "y"])[label]}), folder / "train.parquet")
    settings = Settings(
        workspace=folder / "workspace", job_workers=0, workers=1, default_model="nb", max_rows=1_000_000
    )
    with Workspace(settings) as workspace:
        for model, learner in MODELS.items():
            uris = [str(folder / "train.parquet")]
            product.train_model_version(
                workspace, TrainRequest(uris=uris, target="class", learner=learner, model=model, holdout=0)
            )
    return settings


def bodies(n: int) -> dict[str, tuple[str, bytes]]:
    """Path and body of each route, with so many rows or values."""
    records = [{"a": "xyz"[row % 3]} for row in range(n)]
    columns = {"a": ["xyz"[row % 3] for row in range(n)], "b": [row % 9 for row in range(n)]}
    tensors = [
        {"name": "a", "shape": [n], "datatype": "BYTES", "data": columns["a"]},
        {"name": "b", "shape": [n], "datatype": "INT64", "data": columns["b"]},
    ]
    queries = [{"kind": "marginal", "evidence": {"b": row % 9}} for row in range(10_000)]
    labels = [{"id": f"{row:032x}", "label": "y"} for row in range(10_000)]
    split = {"columns": ["a", "b"], "data": [["xyz"[row % 3], row % 9] for row in range(n)]}
    requests: dict[str, tuple[str, object]] = {
        "score, records": ("/v1/models/circuit/score", {"records": records}),
        "score, columns": ("/v1/models/circuit/score", {"columns": columns}),
        "impute, records": ("/v1/models/circuit/impute", {"records": records}),
        "predict, records": ("/v1/models/nb/predict", {"records": records}),
        "predict, columns": ("/v1/models/nb/predict", {"columns": columns}),
        "v2, columns": ("/v2/models/nb/infer", {"inputs": tensors}),
        "invocations, records": ("/invocations", {"dataframe_records": records}),
        "invocations, columns": ("/invocations", {"inputs": columns}),
        "invocations, split": ("/invocations", {"dataframe_split": split}),
        "query, 10,000": ("/v1/models/circuit/query", {"queries": queries}),
        "whatif, a set": ("/v1/models/circuit/whatif", {"evidence": {"b": [row % 9 for row in range(n)]}}),
        "labels, 10,000": ("/v1/models/nb/labels", {"labels": labels}),
        "jobs, names": ("/v1/jobs", {"kind": "train", "model": "m", "uris": ["x"], "columns": ["x"] * n}),
    }
    return {name: (path, json.dumps(body).encode()) for name, (path, body) in requests.items()}


def wait_beside(address: tuple[str, int], path: str, body: bytes) -> tuple[int, float, float]:
    """The status of the answer, its seconds, and the longest wait of a prediction meanwhile, in milliseconds."""
    found: list[int] = []

    def send() -> None:
        found.append(post(http.client.HTTPConnection(*address, timeout=300), path, body))

    small, waits = http.client.HTTPConnection(*address, timeout=300), []
    row = json.dumps({"records": [{"a": "x", "b": 1}]}).encode()
    post(small, "/v1/models/nb/predict", row)
    sender = threading.Thread(target=send)
    begin = time.perf_counter()
    sender.start()
    while sender.is_alive():
        started = time.perf_counter()
        post(small, "/v1/models/nb/predict", row)
        waits.append(time.perf_counter() - started)
        time.sleep(0.002)
    return found[0], time.perf_counter() - begin, 1_000 * max(waits)


def post(client: http.client.HTTPConnection, path: str, body: bytes) -> int:
    """The status of an answer, which is read to its end."""
    client.request("POST", path, body, {"content-type": "application/json"})
    with client.getresponse() as answer:
        answer.read()
        return answer.status


def main() -> None:
    parser = options(__doc__, rounds=3, rows=249_000)
    parser.add_argument("--only", default="", help="bodies whose name begins so")
    args = parser.parse_args()
    figures = []
    with tempfile.TemporaryDirectory() as name, local_server(trained(Path(name))) as server:
        place = urlsplit(server.url)
        address = (str(place.hostname), int(place.port or 0))
        for what, (path, body) in bodies(args.rows).items():
            if not what.startswith(args.only):
                continue
            runs = [wait_beside(address, path, body) for _ in range(args.rounds)]
            waits = [wait for _, _, wait in runs]
            detail = f"{len(body) / 2**20:.1f} MiB, {runs[0][0]}, {statistics.median(s for _, s, _ in runs):.2f} s"
            figures.append(median_figure(what, waits, "100", "50", detail))
    report("A prediction beside a large body: longest wait, ms", figures, {"machine": machine()}, args.json)


if __name__ == "__main__":
    main()
