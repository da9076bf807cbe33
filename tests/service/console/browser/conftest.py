"""One browser for all tests, and a server with a workspace of several kinds of models."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.processes.local_server import LocalServer
from service.requests.requests import DatasetRequest, ScheduleRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import wait_for
from tests.service.asking import client_of, learn
from tests.service.conftest import weather
from tests.service.console.browser.driving import launched, visit
from tests.service.forks import local_server

HOSTILE = '<img src=x onerror="window.hacked=1">\'&\u202e{{7*7}}'


@dataclass(frozen=True)
class House:
    """A server, a client of it, its settings and the files that it knows."""

    server: LocalServer
    client: httpx.Client
    settings: Settings
    train: Path


def hostile_table():
    rng = np.random.default_rng(3)
    y = rng.random(400) < 0.5
    value = np.where(rng.random(400) < 0.8, np.where(y, HOSTILE, "plain"), "other")
    return pa.table({HOSTILE: value, "x": rng.normal(y * 2.0, 1.0), "y": np.where(y, HOSTILE, "no")})


def serve_drifted(client):
    """Rows in another unit, and labels of half of them."""
    rows = weather(1200, 5)
    truth = rows["class"].to_pylist()
    rows = rows.set_column(1, "humidity", pa.array(np.array(rows["humidity"].to_pylist(), float) * 10))
    records = rows.drop_columns(["class", "station"]).to_pylist()
    clean = [{name: None if value != value else value for name, value in row.items()} for row in records]
    sent = client.post("/v1/models/rain/predict", json={"records": clean}, headers={"x-prediction-key": "day"})
    assert sent.status_code == 200, sent.text
    labels = [{"key": f"day/{row}", "label": truth[row]} for row in range(600)]
    wait_for(lambda: client.get("/v1/models/rain/monitoring").json().get("rows", {}).get("served") == len(clean))
    answer = client.post("/v1/models/rain/labels", json={"labels": labels}).json()
    assert answer == {"accepted": 600, "matched": 600, "pending": 0}
    wait_for(lambda: "rain" in client.get("/console", headers={"accept": "application/json"}).json()["states"])


@pytest.fixture(scope="session")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("house")
    train, hostile = folder / "train.parquet", folder / "hostile.parquet"
    pq.write_table(weather(2000, 1), train)
    pq.write_table(hostile_table(), hostile)
    quick = {"generation_poll_s": 0.05, "job_poll_s": 0.05, "progress_s": 0.1}
    quick |= {"monitoring_fold_s": 0.05, "monitoring_flush_s": 0.1, "monitoring_look_s": 0.5}
    settings = Settings(workspace=folder / "workspace", request_timeout_s=600, slow_request_s=600, **quick)
    with Workspace(settings) as workspace:
        product.register_dataset(workspace, DatasetRequest(name="weather", uris=[str(train)], target="class"))
        kdb: dict[str, Any] = {"k": 2, "estimator": "hdp-map"}
        first = TrainRequest(dataset="weather", learner="kdb", parameters=kdb, model="rain", aliases=["champion"])
        product.train_model_version(workspace, first)
        second = TrainRequest(dataset="weather", learner="nb", parameters={"m": 1.0}, model="rain")
        product.train_model_version(workspace, second)
        learn(workspace, train, "sky", target=None, learner="spn", parameters={"passes": 2, "states": 2})
        learn(workspace, hostile, "hostile", target="y", learner="tan")
        nightly = {"name": "nightly", "cron": "0 3 * * *", "job": {**first.model_dump(), "aliases": []}}
        product.create_schedule(workspace, ScheduleRequest(**nightly))
    with local_server(settings) as server, client_of(server) as client:
        serve_drifted(client)
        yield House(server, client, settings, train)


@pytest.fixture(scope="session")
def browser():
    with launched() as found:
        yield found


@pytest.fixture
def visiting(browser, house):
    """Open a tab on the house's server."""
    return partial(visit, browser, house.server.url)


@pytest.fixture
def tab(visiting):
    """A tab of its own on the house's server."""
    with visiting() as tab:
        yield tab
