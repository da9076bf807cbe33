"""Kills at random moments of two servers on one workspace: what was acknowledged is there, and every job comes to its end.

`make faults` kills two hundred times (FEWPASS_TEST_KILLS). `make test` has single kills in tests/service/processes/test_faults.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pyarrow.parquet as pq
import pytest

from service import product
from service.operations import doctor
from service.processes.local_server import LocalServer, local_server
from service.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import children_of, wait_for
from tests.service.asking import client_of, job_at_end
from tests.service.conftest import weather

PLAIN = {"target": "class", "learner": "nb", "parameters": {"m": 1.0}}
PAUSE_S = (0.2, 2.5)  # between two kills


class Pair:
    """Two servers, each with a worker, on one workspace; one that was killed is started again."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stacks = [contextlib.ExitStack() for _ in range(2)]
        self.servers: list[LocalServer] = [self._start(stack) for stack in self.stacks]
        self.kills: Counter[str] = Counter()

    def _start(self, stack: contextlib.ExitStack) -> LocalServer:
        return stack.enter_context(local_server(self.settings, timeout_s=600))

    def kill(self, rng: random.Random) -> None:
        which = rng.randrange(2)
        victim, what = psutil.Process(self.servers[which].pid), "server"
        workers = children_of(victim.pid, "worker")
        if workers and rng.random() < 0.6:
            victim, what = workers[0], "worker"
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.SIGKILL)
            victim.wait(60)
        self.kills[what] += 1
        if what == "server":
            self.stacks[which].close()
            self.servers[which] = self._start(self.stacks[which])

    def close(self) -> None:
        for stack in self.stacks:
            stack.close()


class Client:
    """Asks for everything that changes a workspace, and remembers what was acknowledged."""

    def __init__(self, pair: Pair, data: Path, bundle: bytes, seed: int) -> None:
        self.pair, self.data, self.bundle = pair, data, bundle
        self.rng = random.Random(seed)
        self.jobs: list[str] = []
        self.imported: set[int] = set()
        self.removed: set[int] = set()
        self.asked: Counter[str] = Counter()
        self.stop = threading.Event()
        self.errors: list[str] = []

    def run(self) -> None:
        actions = [self.refresh, self.forget, self.take, self.delete, self.prune, self.export]
        number = 0
        while not self.stop.is_set():
            number += 1
            action = self.rng.choice(actions)
            with contextlib.suppress(httpx.HTTPError), client_of(self.rng.choice(self.pair.servers)) as client:
                response = action(client, number)
                self.asked[action.__name__] += 1
                if response is not None and response.status_code >= 500:
                    self.errors.append(f"{action.__name__}: {response.text[:500]}")
            self.stop.wait(0.3)

    def _job(self, client: httpx.Client, body: dict) -> httpx.Response:
        response = client.post("/v1/jobs", json=body)
        if response.status_code == 202:
            self.jobs.append(response.json()["id"])
        return response

    def refresh(self, client: httpx.Client, _: int) -> httpx.Response:
        train = PLAIN | {"kind": "train", "uris": [str(self.data)], "model": "fresh", "holdout": 0.2}
        return self._job(client, {"kind": "refresh", "train": train})

    def forget(self, client: httpx.Client, number: int) -> httpx.Response:
        where = f"humidity BETWEEN {40 + number % 40} AND {40.02 + number % 40}"
        return self._job(client, {"kind": "forget", "model": "kept", "where": where})

    def take(self, client: httpx.Client, _: int) -> httpx.Response:
        response = client.post("/v1/models/in/import", content=self.bundle)
        if response.status_code == 201:
            self.imported.add(response.json()["version"])
        return response

    def delete(self, client: httpx.Client, _: int) -> httpx.Response | None:
        if not (left := sorted(self.imported - self.removed)):
            return None
        self.removed.add(left[0])  # from now on it may be gone, whatever the answer is
        return client.delete(f"/v1/models/in/versions/{left[0]}")

    def prune(self, client: httpx.Client, _: int) -> httpx.Response:
        self.removed |= set(sorted(self.imported)[:-3])
        return client.post("/v1/models/in/prune?keep=3")

    def export(self, client: httpx.Client, _: int) -> httpx.Response:
        response = client.get("/v1/models/kept@1/export")
        if response.status_code == 200:
            assert response.content == self.bundle
        return response


@pytest.fixture
def data(tmp_path: Path) -> Path:
    pq.write_table(weather(500, 2), tmp_path / "weather.parquet")
    return tmp_path / "weather.parquet"


@pytest.fixture
def settings(tmp_path: Path, data: Path) -> Iterator[Settings]:
    made = Settings(
        workspace=tmp_path / "workspace",
        job_poll_s=0.05,
        progress_s=0.1,
        generation_poll_s=0.05,
        job_attempts=100,
        lease_s=3,
        threads=1,
        warm_up=False,
    )
    with Workspace(made) as workspace:
        request = TrainRequest(uris=[str(data)], model="kept", update=True, holdout=0, **PLAIN)
        product.train(workspace, request)
        product.write_export(workspace, "kept", tmp_path / "kept.tar")
    yield made


def survive(settings: Settings, data: Path, n_kills: int, seed: int) -> dict[str, object]:
    """What was asked and killed; raises if a promise was broken."""
    rng, bundle = random.Random(seed), (settings.workspace.parent / "kept.tar").read_bytes()
    pair = Pair(settings)
    client = Client(pair, data, bundle, seed)
    thread = threading.Thread(target=client.run)
    try:
        thread.start()
        for _ in range(n_kills):
            time.sleep(rng.uniform(*PAUSE_S))
            pair.kill(rng)
        client.stop.set()
        thread.join()
        with client_of(pair.servers[0]) as asked:
            ends = Counter()
            for job_id in client.jobs:
                job = job_at_end(asked, job_id)
                ends[job["state"]] += 1
                assert job["state"] == "succeeded", job
                ends["taken over"] += job["attempts"] > 1
            wait_for(lambda: asked.get("/readyz").json()["status"] == "ok")
            found = asked.get("/v1/models/in/versions?limit=500").json().get("items", [])
            versions = {item["version"] for item in found}
            assert client.imported - client.removed <= versions, (client.imported, client.removed, versions)
            for version in versions:
                assert asked.post(f"/v1/models/in@{version}/predict", json={"records": [{}]}).status_code == 200
            assert asked.post("/v1/models/fresh/predict", json={"records": [{}]}).status_code == 200 or not ends
    finally:
        client.stop.set()
        thread.join()
        pair.close()
    assert not client.errors, client.errors
    doctor.examine(settings, is_repairing=True)
    left = [item for item in doctor.examine(settings) if item.state != "ok" and item.check != "disk space"]
    assert not left, left
    return {"kills": dict(pair.kills), "asked": dict(client.asked), "jobs": dict(ends)}


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_many_kills(settings: Settings, data: Path) -> None:
    told = survive(settings, data, int(os.environ.get("FEWPASS_TEST_KILLS", "200")), 1)
    print(json.dumps(told))
    if record := os.environ.get("FEWPASS_TEST_RECORD"):
        with Path(record).open("a") as file:
            file.write(json.dumps(told) + "\n")
