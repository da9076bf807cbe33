"""A workspace with a trained model, and a real server over it, shared by the service's tests."""

import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.jobs.queue import JobQueue
from service.processes.local_server import LocalServer
from service.settings import Settings
from service.workspace import Workspace
from storage.control import api_keys_and_sessions
from storage.control.api_keys_and_sessions import Role
from tests.service.asking import client_of, learn
from tests.service.clocks import Wall, compiled
from tests.service.forks import local_server, started

ADMIN_KEY = "an-administrator-of-tests"


def weather(n_rows, seed):
    """A table with a nominal, a numeric, a boolean and a constant column, missing values, and a class they predict."""
    rng = np.random.default_rng(seed)
    play = rng.random(n_rows) < 0.4
    outlook = np.where(rng.random(n_rows) < 0.7, np.where(play, "sunny", "rain"), "overcast")
    humidity = rng.normal(np.where(play, 55.0, 75.0), 8.0)
    return pa.table(
        {
            "outlook": pa.array(outlook, mask=rng.random(n_rows) < 0.05),
            "humidity": pa.array(humidity, mask=rng.random(n_rows) < 0.05),
            "windy": rng.random(n_rows) < np.where(play, 0.2, 0.6),
            "station": ["north"] * n_rows,
            "class": np.where(play, "yes", "no"),
        }
    )


@dataclass(frozen=True)
class Site:
    """The server under test, a client of it, and the files that it knows."""

    server: LocalServer
    client: httpx.Client
    workspace: Path
    train: Path
    test: Path
    table: pa.Table

    def learn(self, model, learner, target="class", **parameters):
        """A model of the rows of training, learned beside the server."""
        with Workspace(Settings(workspace=self.workspace)) as workspace:
            return learn(workspace, self.train, model, learner=learner, target=target, parameters=parameters)


@pytest.fixture(scope="session")
def weather_files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("weather")
    train, test = directory / "train.parquet", directory / "test.parquet"
    pq.write_table(weather(3000, 1), train, row_group_size=1000)
    pq.write_table(weather(500, 2), test)
    return train, test


@pytest.fixture(scope="session")
def site(tmp_path_factory, weather_files):
    train, test = weather_files
    settings = Settings(
        workspace=tmp_path_factory.mktemp("site") / "workspace",
        max_body_bytes=200_000,
        max_rows=2_000,
        # It lives as long as the tests do: looking twenty times a second took a tenth of a processor beside them.
        generation_poll_s=0.2,
        job_poll_s=0.2,
        progress_s=0.1,
        # A busy machine that has to compile first neither gives up a request nor logs a prediction as slow.
        slow_request_s=600,
        request_timeout_s=600,
        query_s=60,
    )
    with Workspace(settings) as workspace:
        learn(workspace, train)  # m = 1, because a hold-out may choose m = 0, which lets probabilities be zero
    with local_server(settings) as server, client_of(server) as client:
        yield Site(server, client, settings.workspace, train, test, pq.read_table(test))


@pytest.fixture(scope="session")
def circuit(site):
    """A circuit in the site's workspace, without a class."""
    return site.learn("sky", "spn", None, passes=3, states=3)


@dataclass(frozen=True)
class Fortress:
    """A server that requires keys, a client without any, and one key per role."""

    client: httpx.Client
    workspace: Path
    tables: Path
    tokens: dict[str, str]
    log: Path

    @property
    def url(self):
        return str(self.client.base_url).rstrip("/")

    def ask(self, role, method, path, **body):
        return self.ask_with(self.tokens[role], method, path, **body)

    def ask_with(self, token, method, path, **body):
        return self.client.request(method, path, headers={"authorization": f"Bearer {token}"}, **body)


@pytest.fixture(scope="session")
def fortress(tmp_path_factory):
    root = tmp_path_factory.mktemp("fortress")
    tables = root / "tables"
    tables.mkdir()
    pq.write_table(weather(500, 3), tables / "train.parquet")
    limits = {"generation_poll_s": 0.2, "max_body_bytes": 100_000, "max_rows": 100}
    keys = {"require_keys": True, "admin_key": ADMIN_KEY}
    settings = Settings(workspace=root / "workspace", data_roots=(str(tables),), job_workers=0, **keys, **limits)
    with Workspace(settings) as workspace:
        learn(workspace, tables)
        tokens = {str(role): product.create_key(workspace, f"{role}-key", role)[1] for role in Role}
        expired = datetime.now(UTC) - timedelta(seconds=1)
        tokens["expired"] = api_keys_and_sessions.create_api_key(workspace.control, "expired", Role.ADMIN, expired)[1]
    with local_server(settings) as server, client_of(server) as client:
        yield Fortress(client, settings.workspace, tables, tokens, server.log)


class Workers:
    """Worker subprocesses of one workspace."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.processes: list[subprocess.Popen] = []

    def start(self):
        command = [sys.executable, "-m", "tests.service.jobs.queue_worker", str(self.workspace)]
        log = (self.workspace / "worker.log").open("a")
        self.processes.append(started(command, stdout=log, stderr=log))
        return self.processes[-1]

    def stop(self):
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def queue(tmp_path):
    queue = JobQueue(f"sqlite:///{tmp_path}/control.sqlite", poll_s=0.05)
    yield queue
    queue.close()


@pytest.fixture
def workers(tmp_path):
    workers = Workers(tmp_path)
    yield workers
    workers.stop()


@pytest.fixture(scope="session")
def jumping_clock(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("clock"))


@pytest.fixture
def walls(jumping_clock, tmp_path, monkeypatch):
    """The clocks of two servers; each is started with the one that JUMPING_CLOCK names."""
    monkeypatch.setenv("LD_PRELOAD", str(jumping_clock))
    return Wall(tmp_path / "wall-0"), Wall(tmp_path / "wall-1")
