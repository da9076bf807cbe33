"""`fewpass demo`: learn from data, serve, ask over HTTP, and show what came out."""

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq

from learners.passes.source import Source
from service import product
from service.http.warm_up import compile_all
from service.json_values import JSONObject
from service.operations.demo_data import DemoTable, write_real, write_synthetic
from service.processes.local_server import local_server
from service.product import pictures
from service.product.scoring import probabilities_of
from service.requests import TrainRequest
from service.settings import Settings
from service.terminal import COMPILING, err, out, progress_bar, show_json, show_table
from service.workspace import Workspace

LEARNERS: tuple[tuple[str, str, JSONObject], ...] = (
    ("NB", "nb", {}),
    ("TAN", "tan", {}),
    ("XGBoost", "xgboost", {}),
    ("kDB-2", "kdb", {"k": 2}),
    ("kDB-2 HDP", "kdb", {"k": 2, "estimator": "hdp-map"}),
)
N_REQUESTS = 200
SHOWN_DECIMALS = 3  # more would not fit into 80 columns
METRICS = ("zero_one_loss", "rmse", "log_loss", "ece")


@dataclass
class Outcome:
    """One row of the demo's table."""

    table: str
    learner: str
    model: str
    metrics: dict[str, float]
    train_s: float
    rows_per_s: float
    latency_ms: float | None = None


def run_demo(rows: int | None, output: Path, seed: int, json_output: bool) -> None:
    """Run the whole demo; everything it starts has ended when it returns.

    Parameters
    ----------
    rows : int, optional
        Rows of a synthetic table from a known network; real data unless given.
    output : Path
        Folder for the pictures and results.json.
    seed : int
        Of the split, or of the network.
    json_output : bool
        Print results.json instead of tables.
    """
    output.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="fewpass-demo-") as directory:
        root = Path(directory)
        if not json_output:
            err.print(COMPILING)
        compile_all()  # so that the times below are those of training
        tables = write_real(root, seed) if rows is None else [write_synthetic(root, rows, seed)]
        settings = Settings(workspace=root / "workspace", job_workers=0, log_level="warning")
        outcomes = [outcome for table in tables for outcome in _train_all(settings, table, json_output)]
        _ask_over_http(settings, tables, outcomes, json_output)
        written = [path for table in tables for path in _draw(settings, table, outcomes, output)]
    results = _results(tables, outcomes, written, time.perf_counter() - started)
    written.append(output / "results.json")
    _write_json(written[-1], results)
    if json_output:
        show_json(results)
        return
    _show(tables, outcomes)
    out.print("ECE: expected calibration error; by HTTP: median time of a request with one row.", highlight=False)
    out.print("Pictures and numbers: " + ", ".join(str(path) for path in written), soft_wrap=True, highlight=False)


def _train_all(settings: Settings, table: DemoTable, json_output: bool) -> list[Outcome]:
    """Train every learner on the table, in this process, evaluated on its test file."""
    outcomes = []
    with Workspace(settings) as workspace:
        for title, learner, parameters in LEARNERS:
            model = f"{table.title} {title}".replace(" ", "-").lower()
            request = TrainRequest(
                uris=[str(table.train)],
                target=table.target,
                learner=learner,
                parameters=parameters,
                model=model,
                test_uris=[str(table.test)],
            )
            if not json_output:
                err.print(f"[dim]training {title} on {table.title}, {table.n_train:,} rows[/]")
            with progress_bar(not json_output) as report:
                version = product.train(workspace, request, report)
            metrics = dict(version.metrics)
            seconds = float(metrics["train_s"])
            outcomes.append(Outcome(table.title, title, model, metrics, seconds, metrics["rows_per_s"]))
    return outcomes


def _ask_over_http(
    settings: Settings, tables: Sequence[DemoTable], outcomes: Sequence[Outcome], json_output: bool
) -> None:
    """Start a server, send single rows to each model, and check a few answers against this process."""
    if not json_output:
        err.print("[dim]starting a server on a free loopback port[/]")
    with local_server(settings) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        for table in tables:
            records = pq.ParquetFile(table.test).read_row_group(0).slice(0, N_REQUESTS).to_pylist()
            for record in records:
                record.pop(table.target)
            for outcome in outcomes:
                if outcome.table == table.title:
                    outcome.latency_ms = _median_latency_ms(client, outcome.model, records)


def _median_latency_ms(client: httpx.Client, model: str, records: Sequence[JSONObject]) -> float:
    latencies = []
    for record in records:
        started = time.perf_counter()
        answer = client.post(f"/v1/models/{model}/predict", json={"records": [record]})
        latencies.append((time.perf_counter() - started) * 1000)
        answer.raise_for_status()
    return statistics.median(latencies)


def _draw(settings: Settings, table: DemoTable, outcomes: Sequence[Outcome], output: Path) -> list[Path]:
    """The structure of the last learner, and the reliability of all of them."""
    ours = [outcome for outcome in outcomes if outcome.table == table.title]
    name = table.title.replace(" ", "-")
    structure, reliability = output / f"{name}-structure.svg", output / f"{name}-reliability.svg"
    curves = []
    with Workspace(settings) as workspace:
        for outcome in ours:
            probabilities, labels = probabilities_of(
                product.served(workspace, outcome.model).model, Source.open(str(table.test))
            )
            is_right = (probabilities.argmax(axis=1) == labels).astype(np.float64)
            curves.append((outcome.learner, probabilities.max(axis=1), is_right))
        last = ours[-1]
        structure.write_bytes(product.draw(workspace, last.model))
    pictures.draw_reliability(curves, reliability, f"Reliability on {table.title}")
    return [structure, reliability]


def _results(
    tables: Sequence[DemoTable], outcomes: Sequence[Outcome], written: Sequence[Path], seconds: float
) -> JSONObject:
    return {
        "tables": [
            {
                "title": table.title,
                "n_train": table.n_train,
                "n_test": table.n_test,
                "bayes_error": table.bayes_error,
                "models": [vars(outcome) for outcome in outcomes if outcome.table == table.title],
            }
            for table in tables
        ],
        "files": [str(path) for path in written],
        "seconds": seconds,
    }


def _thousands(number: float) -> str:
    """A number of rows in thousands, with two digits at least."""
    return f"{number / 1000:,.0f} k" if number >= 10_000 else f"{number / 1000:.2g} k"


def _write_json(path: Path, value: Any) -> None:
    import json

    path.write_text(json.dumps(value, indent=2) + "\n")


def _show(tables: Sequence[DemoTable], outcomes: Sequence[Outcome]) -> None:
    for table in tables:
        rows = [
            [
                outcome.learner,
                *(round(outcome.metrics[name], SHOWN_DECIMALS) for name in METRICS),
                f"{outcome.train_s:.2f} s",
                _thousands(outcome.rows_per_s),
                f"{outcome.latency_ms:.2f} ms",
            ]
            for outcome in outcomes
            if outcome.table == table.title
        ]
        if table.bayes_error is not None:
            rows.append(["Bayes rate", round(table.bayes_error, SHOWN_DECIMALS), *[None] * 6])
        show_table(
            f"{table.title}: {table.n_train:,} training rows, {table.n_test:,} test rows",
            ["learner", "error", "RMSE", "log loss", "ECE", "train", "rows/s", "by HTTP"],
            rows,
        )
