"""The story of the demo: a shop learns which parcels are late, from more orders than its memory bound holds."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
import numpy as np
import pyarrow.parquet as pq

from learners.arrays import Floats
from learners.evaluation.metrics import evaluate
from learners.passes.source import Source
from service import product
from service.json_values import JSONObject
from service.operations.demo_orders import TARGET, USER, Orders
from service.operations.demo_peer import boosted
from service.operations.demo_small import N_REQUESTS, latencies_ms
from service.operations.measuring import apart, peak_rss_bytes
from service.product.scoring import probabilities_of
from service.requests import ForgetRequest, TrainRequest
from service.settings import Settings
from service.terminal import progress_bar
from service.workspace import Workspace

MODEL = "orders"
ALIAS = "champion"
OFTEN_UNKNOWN = ("weight_kg", "distance_km", "weather")
CASE: JSONObject = {"city": "Oslo", "carrier": "Postale", "category": "furniture", "weather": "snow"}
LEVEL = 0.9


class Cost(NamedTuple):
    """What a training took, from the start of its process: wall and processor seconds, and its peak resident memory."""

    wall_s: float
    cpu_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Contestant:
    """One learner on the orders."""

    learner: str
    cost: Cost
    metrics: dict[str, float]


def request_of(orders: Orders) -> TrainRequest:
    """What the shop asks for, in the first week and every night after."""
    return TrainRequest(
        uris=[str(orders.train[0].parent / "week-*.parquet")],
        target=TARGET,
        learner="kdb",
        parameters={"k": 2},
        model=MODEL,
        aliases=[ALIAS],
        update=True,
        holdout=0,
    )


def compete(settings: Settings, orders: Orders) -> list[Contestant]:
    """Train our model and XGBoost's from the same files, each in a process of its own, on one thread."""
    request, files = request_of(orders).model_dump(), [str(path) for path in orders.train]
    cost, _ = apart(_trained, settings, request, time.time())
    (their_cost, theirs), _ = apart(_boosted, files, str(orders.test), time.time())
    with Workspace(settings) as workspace:
        model = product.served(workspace, MODEL).model
        ours, labels = probabilities_of(model, Source.open(str(orders.test)))
    return [
        Contestant("kDB-2", cost, vars(evaluate(ours, labels))),
        Contestant("XGBoost", their_cost, vars(evaluate(theirs, labels))),
    ]


def _trained(settings: Settings, request: JSONObject, started: float) -> Cost:
    with Workspace(settings) as workspace:
        product.train(workspace, TrainRequest(**request))
    return Cost(time.time() - started, time.process_time(), peak_rss_bytes())


def _boosted(files: list[str], test: str, started: float) -> tuple[Cost, Floats]:
    costs: list[Cost] = []

    def is_trained() -> None:
        costs.append(Cost(time.time() - started, time.process_time(), peak_rss_bytes()))

    probabilities = boosted(files, test, TARGET, is_trained)
    return costs[0], probabilities


def refresh(settings: Settings, orders: Orders) -> JSONObject:
    """Tomorrow has come: its file is moved beside the others, and only that is read."""
    orders.tomorrow.rename(orders.train[0].parent / "week-6.parquet")
    started = time.perf_counter()
    with Workspace(settings) as workspace:
        version, passes = product.train_with_passes(workspace, request_of(orders))
    return {
        "version": version.version,
        "n_rows": version.n_rows,
        "n_rows_read": max(int(one["n_rows_read"]) for one in passes),
        "n_rows_reused": min(int(one["n_rows_reused"]) for one in passes),
        "seconds": time.perf_counter() - started,
    }


def forget(settings: Settings, orders: Orders, is_shown: bool) -> JSONObject:
    """A customer asks to be deleted: the rows leave the counts and the model, and that is proved."""
    user = pq.ParquetFile(orders.train[0]).read_row_group(0, columns=[USER])[USER][0].as_py()
    where = f"{USER} = '{user}'"
    started = time.perf_counter()
    with Workspace(settings) as workspace, progress_bar(is_shown) as report:
        done = product.forget(workspace, ForgetRequest(model=MODEL, where=where), report)
        seconds = time.perf_counter() - started
        version = done["versions"][0]["version"]
        product.set_alias(workspace, MODEL, ALIAS, version)
        for number in range(1, version):
            product.delete_version(workspace, MODEL, number)
    (proof,) = done["proofs"]
    return {
        "where": where,
        "n_rows": done["n_rows"],
        "version": version,
        "is_equal": proof["is_equal"],
        "n_rows_left": proof["n_rows"],
        "seconds": seconds,
    }


def ask(url: str, orders: Orders) -> JSONObject:
    """Rows without some columns, over HTTP: one with an interval, and many for their latency."""
    batch = pq.ParquetFile(orders.test).read_row_group(0).slice(0, N_REQUESTS)
    missing = {TARGET, *OFTEN_UNKNOWN}
    # As JSON has it: times are text.
    records = [
        {name: value if isinstance(value, str | int | float) else str(value) for name, value in record.items()}
        for record in batch.drop_columns(sorted(missing)).to_pylist()
    ]
    with httpx.Client(base_url=url, timeout=60) as client:
        path = f"/v1/models/{MODEL}/predict"
        answer = client.post(path, params={"interval": LEVEL}, json={"records": [CASE]}).raise_for_status().json()
        late = answer["classes"].index("yes")
        milliseconds = latencies_ms(client, MODEL, records)
    return {
        "case": CASE,
        "probability": answer["probabilities"][0][late],
        "interval": answer["intervals"][0][late],
        "level": LEVEL,
        "missing": sorted(missing - {TARGET}),
        "n_requests": len(milliseconds),
        "median_ms": statistics.median(milliseconds),
        "p99_ms": float(np.quantile(milliseconds, 0.99)),
    }


def least_losses(orders: Orders) -> dict[str, float]:
    """What no model can be expected to beat: the losses of the true probabilities, in expectation."""
    share = orders.late_shares
    return {
        "zero_one_loss": float(np.minimum(share, 1 - share).mean()),
        "rmse": float(np.sqrt((share * (1 - share)).mean())),
        "log_loss": float(-(share * np.log(share) + (1 - share) * np.log1p(-share)).mean()),
        "ece": 0.0,
    }


def tell(settings: Settings, orders: Orders, say: Callable[[str], None], is_shown: bool) -> JSONObject:
    """Everything but the requests; what came of it, as results.json has it."""
    say(f"training kDB-2 and XGBoost on {orders.n_train:,} orders, one after the other, each in its own process")
    contestants = compete(settings, orders)
    say(f"tomorrow's file: {orders.n_tomorrow:,} orders more")
    refreshed = refresh(settings, orders)
    say("a customer asks to be deleted")
    return {
        "n_train": orders.n_train,
        "n_test": orders.n_test,
        "n_columns": len(pq.read_schema(orders.test)),
        "bytes_in_memory": orders.n_bytes,
        "bytes_of_files": sum(Path(path).stat().st_size for path in orders.train),
        "memory": settings.memory,
        "models": [{"learner": one.learner, **one.cost._asdict(), "metrics": one.metrics} for one in contestants],
        "least_losses": least_losses(orders),
        "refresh": refreshed,
        "forget": forget(settings, orders, is_shown),
    }
