"""Kills at random moments of two servers on one workspace: what was acknowledged is there, and every job comes to its end.

`make faults` kills two hundred times (FEWPASS_TEST_KILLS). `make test` has single kills in tests/service/processes/test_faults.py.
"""

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable

import httpx
import psutil
import pyarrow.parquet as pq
import pytest

from service import product
from service.operations import backup, doctor
from service.processes.local_server import LocalServer, local_server
from service.requests.problems import NotReady
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import children_of, record, wait_for, whole_lines
from tests.service.asking import client_of, job_at_end, learn
from tests.service.conftest import weather

PLAIN = {"target": "class", "learner": "nb", "parameters": {"m": 1.0}}
PAUSE_S = (0.2, 2.5)  # between two kills
# Which processes of a server a kill ends, and how often. All of them at once costs seconds of starting again.
VICTIMS = {"serving process": 9, "worker": 7, "process that forks": 2, "whole server": 2}
MOST_BACKUPS = 5
BETWEEN = 0.2  # of the kills have a disturbance after them
STARTS = 30  # of a server whose database may be away just then
APART_S = 1.0  # between two of them
MOST_WAITING = 4  # jobs: more are not asked for
FORKING = "service.processes.forking"


class Server:
    """A server with two serving processes and a worker; one that was killed as a whole is started again meanwhile."""

    def __init__(self, settings):
        self.settings = settings
        self.running: LocalServer | None = None
        self.errors: list[BaseException] = []
        self._stack = contextlib.ExitStack()
        self._starting: threading.Thread | None = None
        self.start()

    def start(self):
        self._starting = threading.Thread(target=self._start)
        self._starting.start()

    def _start(self):
        self._stack.close()
        for _ in range(STARTS if self.settings.control_url else 1):
            try:
                self.running = self._stack.enter_context(local_server(self.settings, 600, "tests.faults.hasty"))
            except NotReady as error:
                self.errors.append(error)
                time.sleep(APART_S)
            else:
                return

    def started(self):
        """Waits for its start."""
        assert self._starting is not None
        self._starting.join()
        assert self.running is not None, self.errors
        return self.running

    def victims(self, what):
        """The processes that one kill ends; none if there is no such process just now."""
        assert self.running is not None
        pid = self.running.pid
        if what == "whole server":
            return [psutil.Process(pid), *children_of(pid)]
        if what == "worker":  # that has started: one that still imports would lose nothing
            lines = whole_lines(self.running.log)
            known = {json.loads(line)["pid"] for line in lines if '"worker started"' in line}
            return [process for process in children_of(pid, "worker") if process.pid in known]
        forking = children_of(pid, FORKING)
        of_server = [process for process in forking if process.ppid() == pid]
        return of_server if what == "process that forks" else [one for one in forking if one not in of_server]

    def close(self):
        if self._starting is not None:
            self._starting.join()
        self._stack.close()


class Pair:
    """Two servers on one workspace."""

    def __init__(self, settings):
        self.settings = settings
        self.servers = [Server(settings) for _ in range(2)]
        self.kills: Counter[str] = Counter()
        for server in self.servers:
            server.started()

    def up(self):
        """The servers that were not killed as a whole."""
        return [server.running for server in self.servers if server.running is not None]

    def kill(self, rng):
        server = wait_for(lambda: [one for one in self.servers if one.running is not None], 600)[-1]
        if rng.random() < 0.5 and self.servers[0].running is not None:
            server = self.servers[0]
        (what,) = rng.choices(list(VICTIMS), list(VICTIMS.values()))
        victims: list[psutil.Process] = []
        with contextlib.suppress(psutil.NoSuchProcess):
            victims = server.victims(what)
        if not victims:
            return
        if what == "serving process":
            victims = [rng.choice(victims)]
        is_whole = what == "whole server"
        server.running = None if is_whole else server.running
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.SIGKILL)
        self.kills[what] += 1
        if is_whole:
            server.start()

    def close(self):
        for server in self.servers:
            server.close()


Action = Callable[[httpx.Client, int], httpx.Response | None]


class Client:
    """Asks for everything that changes a workspace, and remembers what was acknowledged."""

    def __init__(self, pair, data, bundle, seed, *, is_disturbed):
        self.pair, self.data, self.bundle, self.is_disturbed = pair, data, bundle, is_disturbed
        self.rng = random.Random(seed)
        self.jobs: list[str] = []
        self.imported: set[int] = set()
        self.removed: set[int] = set()
        self.asked: Counter[str] = Counter()
        self.backups = 0
        self.stop = threading.Event()
        self.errors: list[str] = []

    def run(self):
        actions = [self.refresh, self.forget, self.take, self.delete, self.prune, self.export, self.back_up]
        number = 0
        while not self.stop.is_set():
            number += 1
            action = self.rng.choice(actions)
            try:
                if servers := self.pair.up():
                    self._ask(action, self.rng.choice(servers), number)
            except httpx.HTTPError:
                self.asked["no answer"] += 1
            except Exception as error:  # or this thread would end, and nobody would notice
                self.errors.append(f"{action.__name__}: {error!r}")
            self.stop.wait(0.3)

    def _ask(self, action, server, number):
        with client_of(server) as client:
            response = action(client, number)
        self.asked[action.__name__] += 1
        if response is not None and response.status_code == 503 and self.is_disturbed:
            self.asked["unavailable"] += 1
        elif response is not None and response.status_code >= 500:
            self.errors.append(f"{action.__name__}: {response.text[:500]}")

    def _job(self, client, body):
        if len(client.get("/v1/jobs?state=queued").json().get("items", [])) >= MOST_WAITING:
            return None
        response = client.post("/v1/jobs", json=body)
        if response.status_code == 202:
            self.jobs.append(response.json()["id"])
        return response

    def refresh(self, client, _):
        train = PLAIN | {"kind": "train", "uris": [str(self.data)], "model": "fresh", "holdout": 0.2}
        return self._job(client, {"kind": "refresh", "train": train})

    def forget(self, client, number):
        where = f"humidity BETWEEN {40 + number % 40} AND {40.02 + number % 40}"
        return self._job(client, {"kind": "forget", "model": "kept", "where": where})

    def take(self, client, _):
        response = client.post("/v1/models/in/import", content=self.bundle)
        if response.status_code == 201:
            self.imported.add(response.json()["version"])
        return response

    def delete(self, client, _):
        if not (left := sorted(self.imported - self.removed)):
            return None
        self.removed.add(left[0])  # from now on it may be gone, whatever the answer is
        return client.delete(f"/v1/models/in/versions/{left[0]}")

    def prune(self, client, _):
        self.removed |= set(sorted(self.imported)[:-3])
        return client.post("/v1/models/in/prune?keep=3")

    def export(self, client, _):
        response = client.get("/v1/models/kept@1/export")
        if response.status_code == 200:
            assert response.content == self.bundle
        return response

    def back_up(self, _client, _):
        """In this process, while the servers die: what is in the backup is whole."""
        if self.backups < MOST_BACKUPS and not self.is_disturbed:  # a backup of its own would fail as well
            with Workspace(self.pair.settings) as workspace:
                backup.back_up_workspace(workspace, self.data.parent / f"backup-{self.backups}")
            self.backups += 1


@pytest.fixture
def data(tmp_path):
    pq.write_table(weather(500, 2), tmp_path / "weather.parquet")
    return tmp_path / "weather.parquet"


@pytest.fixture
def settings(tmp_path, data):
    return prepared(tmp_path, data)


def prepared(folder, data, **given):
    """A workspace with a model, and its export beside it."""
    quick = {"job_poll_s": 0.05, "progress_s": 0.1, "generation_poll_s": 0.05, "lease_s": 3, "warm_up": False}
    limits = {"job_attempts": 100, "threads": 1, "workers": 2}
    made = Settings(workspace=folder / "workspace", **quick, **limits, **given)
    with Workspace(made) as workspace:
        learn(workspace, data, "kept", update=True, holdout=0)
        product.write_export(workspace, "kept", folder / "kept.tar")
    return made


def survive(settings, data, n_kills, seed, between=None):
    """What was asked and killed; raises if a promise was broken.

    `between` is called between some kills, and takes away for a moment what servers need: they answer 503 meanwhile.
    """
    rng, bundle = random.Random(seed), (settings.workspace.parent / "kept.tar").read_bytes()
    pair = Pair(settings)
    client = Client(pair, data, bundle, seed, is_disturbed=between is not None)
    thread = threading.Thread(target=client.run)
    try:
        with client_of(pair.up()[0]) as asked:
            train = PLAIN | {"kind": "train", "uris": [str(data)], "model": "scheduled", "holdout": 0.2}
            job = {"kind": "refresh", "train": train}
            made = asked.post("/v1/schedules", json={"name": "minutely", "cron": "* * * * *", "job": job})
            assert made.status_code == 201, made.text
        thread.start()
        while pair.kills.total() < n_kills:
            time.sleep(rng.uniform(*PAUSE_S))
            pair.kill(rng)
            if between is not None and rng.random() < BETWEEN:
                between()
        client.stop.set()
        thread.join()
        for server in pair.servers:
            server.started()
        with client_of(pair.up()[0]) as asked:
            wait_for(lambda: asked.get("/readyz").json()["status"] == "ok")
            ends = ends_of(asked, client)
            check_versions(asked, client)
            assert asked.post("/v1/models/fresh/predict", json={"records": [{}]}).status_code == 200 or not client.jobs
    finally:
        client.stop.set()
        if thread.is_alive():
            thread.join()
        pair.close()
    assert not client.errors, client.errors
    check_whole(settings)
    for number in range(client.backups):
        restored = settings.model_copy(update={"workspace": data.parent / f"restored-{number}"})
        backup.restore_workspace(data.parent / f"backup-{number}", restored.workspace)
        check_whole(restored)
    asked_for = dict(client.asked) | {"backups that were whole": client.backups}
    return {"kills": dict(pair.kills), "asked": asked_for, "jobs": dict(ends)}


def ends_of(asked, client):
    """How the jobs ended that were accepted, and those of the schedule; all must have succeeded."""
    assert asked.post("/v1/schedules/minutely/pause").status_code == 200
    runs = asked.get("/v1/schedules/minutely/runs?limit=500").json()["items"]
    due = [run["due_at"] for run in runs]
    assert len(set(due)) == len(due), "no time is run twice"
    ends = Counter[str]()
    for job_id in [*client.jobs, *(run["job_id"] for run in runs if run["job_id"])]:
        job = job_at_end(asked, job_id)
        ends[job["state"]] += 1
        assert job["state"] == "succeeded", job
        ends["taken over"] += job["attempts"] > 1
    ends["by schedule"] = len(runs)
    return ends


def check_versions(asked, client):
    """All that were acknowledged and not removed are there, and all that are there answer."""
    found = asked.get("/v1/models/in/versions?limit=500").json().get("items", [])
    versions = {item["version"] for item in found}
    assert client.imported - client.removed <= versions, (client.imported, client.removed, versions)
    for version in versions:
        assert asked.post(f"/v1/models/in@{version}/predict", json={"records": [{}]}).status_code == 200


def check_whole(settings):
    """Doctor finds nothing once it has repaired what kills leave."""
    doctor.run_doctor_checks(settings, is_repairing=True)
    ignored = {"disk space", "workers", "jobs"}  # no server runs any more, and a backup holds jobs that ran
    left = [item for item in doctor.run_doctor_checks(settings) if item.state != "ok" and item.check not in ignored]
    assert not left, left


@pytest.mark.faults
@pytest.mark.timeout(7200)
def test_many_kills(settings, data):
    record(survive(settings, data, int(os.environ.get("FEWPASS_TEST_KILLS", "200")), 1))
