"""The end of the demo: several learners on two small public tables."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx
import numpy as np
import pyarrow.parquet as pq

from learners.passes.source import Source
from service import product
from service.json_values import JSONObject
from service.operations.demo_data import DemoTable
from service.product import pictures
from service.product.scoring import probabilities_of
from service.requests import TrainRequest
from service.settings import Settings
from service.terminal import err, progress_bar, show_table
from service.workspace import Workspace

LEARNERS: tuple[tuple[str, str, JSONObject], ...] = (
    ("NB", "nb", {}),
    ("kDB-2", "kdb", {"k": 2}),
    ("auto", "auto", {}),
    ("XGBoost", "xgboost", {}),
)
MOST_COLUMNS_OF_AUTO = 40  # the 64 pixels of a digit in ten classes take it twenty seconds
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


def learners_of(table: DemoTable) -> list[tuple[str, str, JSONObject]]:
    """Who learns from a table: all, but `auto` from narrow ones only."""
    is_wide = len(pq.read_schema(table.train)) > MOST_COLUMNS_OF_AUTO
    return [one for one in LEARNERS if one[1] != "auto" or not is_wide]


def train_all(settings: Settings, table: DemoTable, json_output: bool) -> list[Outcome]:
    """Train every learner on the table, in this process, evaluated on its test file."""
    outcomes = []
    with Workspace(settings) as workspace:
        for title, learner, parameters in learners_of(table):
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


def ask_over_http(url: str, tables: Sequence[DemoTable], outcomes: Sequence[Outcome]) -> None:
    """Send single rows to each model, and note how long it took."""
    with httpx.Client(base_url=url, timeout=60) as client:
        for table in tables:
            records = pq.ParquetFile(table.test).read_row_group(0).slice(0, N_REQUESTS).to_pylist()
            for record in records:
                record.pop(table.target)
            for outcome in outcomes:
                if outcome.table == table.title:
                    outcome.latency_ms = statistics.median(latencies_ms(client, outcome.model, records))


def latencies_ms(client: httpx.Client, model: str, records: Sequence[JSONObject]) -> list[float]:
    """Milliseconds of requests with one row each."""
    latencies = []
    for record in records:
        started = time.perf_counter()
        answer = client.post(f"/v1/models/{model}/predict", json={"records": [record]})
        latencies.append((time.perf_counter() - started) * 1000)
        answer.raise_for_status()
    return latencies


def draw(settings: Settings, table: DemoTable, outcomes: Sequence[Outcome], output: Path) -> list[Path]:
    """The structure of kDB-2, and the reliability of all of them."""
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
        network = next(outcome for outcome in ours if outcome.learner == "kDB-2")
        structure.write_bytes(product.draw(workspace, network.model))
    pictures.draw_reliability(curves, reliability, f"Reliability on {table.title}")
    return [structure, reliability]


def results_of(tables: Sequence[DemoTable], outcomes: Sequence[Outcome]) -> list[JSONObject]:
    """What results.json says of each table."""
    return [
        {
            "title": table.title,
            "n_train": table.n_train,
            "n_test": table.n_test,
            "models": [vars(outcome) for outcome in outcomes if outcome.table == table.title],
        }
        for table in tables
    ]


def _thousands(number: float) -> str:
    """A number of rows in thousands, with two digits at least."""
    return f"{number / 1000:,.0f} k" if number >= 10_000 else f"{number / 1000:.2g} k"


def show(tables: Sequence[DemoTable], outcomes: Sequence[Outcome]) -> None:
    """Print a table for each."""
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
        show_table(
            f"{table.title}: {table.n_train:,} training rows, {table.n_test:,} test rows",
            ["learner", "error", "RMSE", "log loss", "ECE", "train", "rows/s", "by HTTP"],
            rows,
        )
