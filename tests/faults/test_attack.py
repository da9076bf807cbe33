"""Hostile files and models, sent to a real server while it is asked for predictions at a steady rate.

`make test` sends ten, of all kinds, `make faults` 200 (FEWPASS_TEST_ATTACKS). A prediction may wait 100 ms, as much longer as this
process was kept waiting for a processor itself, and FEWPASS_TEST_ALLOWANCE_MS: the machine may do much else, and then every process
waits for its turn. What was measured is printed (`pytest -s`).
"""

import os
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import httpx
import psutil
import pyarrow.parquet as pq
import pytest

from service.jobs.job_limits import process_memory_bytes
from service.processes.local_server import local_server
from service.settings import Settings
from service.workspace import Workspace
from tests.faults.attack_inputs import hostile_inputs
from tests.processes import children_of, wait_for, whole_lines
from tests.service.asking import ENDS, client_of, learn
from tests.service.conftest import weather

SEED = int(os.environ.get("FEWPASS_TEST_SEED", "0"))
WAIT_MS = 100 + float(os.environ.get("FEWPASS_TEST_ALLOWANCE_MS", "1000"))
PER_SECOND, N_CLIENTS = 50, 5
GROWTH_MB = 128  # of a process that serves or keeps others
JOB_MEMORY_MB = 384
OVERSHOOT_MB = 64  # what a process of a job may take between two looks at it
FORK_SERVER = "multiprocessing.forkserver"
MOST_WAITING = 8  # jobs in the queue
ROWS = {"records": [{"outlook": "rain", "humidity": 71.5}]}


class Steady:
    """Asks for predictions at a steady rate, from as many threads as are needed; one more looks how long this process waits for its turn."""

    def __init__(self, server):
        self.server, self.stop = server, threading.Event()
        self.waits: list[float] = []
        self.own: list[float] = []
        self.wrong: list[str] = []
        self.pool = ThreadPoolExecutor(N_CLIENTS + 1)

    def _ask(self, number):
        period = N_CLIENTS / PER_SECOND
        due = time.monotonic() + number / PER_SECOND
        with client_of(self.server) as client:
            while not self.stop.wait(max(0.0, due - time.monotonic())):
                begin = time.monotonic()
                try:
                    answer = client.post("/v1/models/kept/predict", json=ROWS)
                    if answer.status_code != 200:
                        self.wrong.append(answer.text[:300])
                except httpx.HTTPError as error:
                    self.wrong.append(repr(error))
                self.waits.append(time.monotonic() - begin)
                due = max(due + period, time.monotonic())

    def _look(self):
        while not self.stop.is_set():
            begin = time.monotonic()
            time.sleep(0.005)
            self.own.append(time.monotonic() - begin - 0.005)

    def __enter__(self):
        self.pool.submit(self._look)
        self.pool.map(self._ask, range(N_CLIENTS))
        return self

    def __exit__(self, *_):
        self.stop.set()
        self.pool.shutdown()

    def told(self):
        waits = sorted(self.waits)
        places = {f"{share:.1%}": waits[min(len(waits) - 1, int(share * len(waits)))] for share in (0.5, 0.99, 0.999)}
        told = ", ".join(f"{name} {1000 * wait:.0f} ms" for name, wait in places.items())
        return f"{len(waits)} predictions: {told}, longest {1000 * waits[-1]:.0f} ms; own wait {1000 * max(self.own):.0f} ms"


class Watch:
    """What becomes of the processes of a server: which end, how much each grows."""

    def __init__(self, server):
        kept = [psutil.Process(server.pid), *children_of(server.pid)]
        named = [(process, _name(process)) for process in kept]
        forks = {process.pid for process, name in named if name == FORK_SERVER}
        # What a process of a job has before it reads: all of the process that forks it.
        self.own_mb = max(process_memory_bytes(pid) for pid in forks) / 2**20
        # Whose parent is the fork server waits for a job.
        own = [(process, name) for process, name in named if process.ppid() not in forks]
        self.first = {process.pid: (process, process.memory_info().rss, name) for process, name in own}
        self.server = server
        self.largest: Counter[int] = Counter()
        self.job_mb = 0.0
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self):
        while not self.stop.wait(0.1):
            with suppress(psutil.NoSuchProcess):
                for process in [psutil.Process(self.server.pid), *children_of(self.server.pid)]:
                    with suppress(psutil.NoSuchProcess):
                        memory = process.memory_info()
                        if process.pid in self.first:
                            self.largest[process.pid] = max(self.largest[process.pid], memory.rss)
                        else:
                            self.job_mb = max(self.job_mb, process_memory_bytes(process.pid) / 2**20)

    def at_work(self):
        """Processes that have come since and take a processor."""
        found = []
        for process in children_of(self.server.pid):
            with suppress(psutil.NoSuchProcess):
                if process.pid not in self.first and process.cpu_percent(0.2) > 20:
                    found.append(process)
        return found

    def end(self):
        """The processes that have ended, and how much the others have grown, in MB."""
        self.stop.set()
        self.thread.join()
        ended = [name for process, _, name in self.first.values() if not process.is_running()]
        seen = [(pid, rss, name) for pid, (_, rss, name) in self.first.items() if self.largest[pid]]
        return ended, {f"{name} {pid}": (self.largest[pid] - rss) / 2**20 for pid, rss, name in seen}


def _name(process):
    words = process.cmdline()
    if any(FORK_SERVER in word for word in words):
        return FORK_SERVER
    named = [word for word in words if word in ("serve", "worker") or word.startswith("service.")]
    return named[-1] if named else process.name()


def send(client, hostile, number):
    """How an input ended: with a job, or with an answer."""
    if hostile.is_model:
        tar = {"content-type": "application/x-tar"}
        answer = client.post("/v1/models/taken/import", content=hostile.path.read_bytes(), headers=tar)
    else:
        asked = {"uris": [str(hostile.path)], "target": "class", "columns": hostile.columns}
        if number % 7 == 4:
            answer = client.post("/v1/datasets", json=asked | {"name": f"d{number}"})
        else:
            asked |= {"kind": "train", "learner": "nb", "model": "m", "holdout": 0}
            answer = client.post("/v1/jobs", json=asked)
    if answer.status_code != 202:  # no job
        return ("taken" if answer.status_code == 201 else f"refused {answer.status_code}"), answer.json()
    place = f"/v1/jobs/{answer.json()['id']}"
    job = wait_for(lambda: job if (job := client.get(place).json())["state"] in ENDS else None, 600)
    return job["state"], job["error"] or {}


@contextmanager
def prepared(folder, n):
    data = folder / "weather.parquet"
    pq.write_table(weather(500, 2), data)
    limits = {"job_memory": f"{JOB_MEMORY_MB}MiB", "job_timeout_s": 4, "request_timeout_s": 15}
    processes = {"job_concurrency": 2, "threads": 1, "workers": 2}
    settings = Settings(workspace=folder / "workspace", job_poll_s=0.05, progress_s=0.1, **limits, **processes)
    with Workspace(settings.model_copy(update={"job_timeout_s": None})) as workspace:
        learn(workspace, data, "kept", parameters={}, holdout=0)
        inputs = hostile_inputs(folder, workspace, n, SEED)
    # A short path, for there are sockets in it.
    with tempfile.TemporaryDirectory() as temporary, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", temporary)
        with local_server(settings, 600) as server:
            yield server, inputs
        assert not os.listdir(temporary), "what a server has in there it removes"


def attack(folder, n):
    """Raises if a promise was broken; prints what was measured."""
    with prepared(folder, n) as (server, inputs), client_of(server) as client:
        wait_for(lambda: client.get("/readyz").json().get("status") == "ok")
        with Steady(server) as before:
            time.sleep(1)
        watch = Watch(server)

        def outcome(number, hostile):
            try:
                with client_of(server) as own:
                    return send(own, hostile, number)
            except Exception as error:
                return "no answer", {"detail": repr(error)}

        begin = time.monotonic()
        with Steady(server) as steady, ThreadPoolExecutor(MOST_WAITING) as pool:
            outcomes = list(pool.map(outcome, range(n), inputs))
        seconds = time.monotonic() - begin
        wait_for(lambda: not watch.at_work(), 60)  # also what a request was answered for that took too long
        ended, grown = watch.end()
        ends = Counter(how for how, _ in outcomes)
        log = [line for line in whole_lines(server.log) if '"level": "error"' in line or "Traceback" in line]
        print(
            f"\n{n} hostile inputs in {seconds:.0f} s: {dict(ends)}; before: {before.told()}; meanwhile: {steady.told()}"
        )
        print(
            f"grown, MB: { {name: round(mb) for name, mb in grown.items()} }; a job at most {watch.job_mb:.0f} MB, {watch.own_mb:.0f} of them its own; server log: {log[:5]}"
        )
        assert client.get("/readyz").status_code == 200 and client.get("/v1/jobs").status_code == 200
    bare = [
        f"{hostile.kind} ({hostile.path.name}): {how} {str(answer)[:500]}"
        for hostile, (how, answer) in zip(inputs, outcomes, strict=True)
        if not is_sentence(how, answer)
    ]
    assert not bare, bare
    assert not ended
    assert not steady.wrong, steady.wrong[:5]
    assert max(grown.values()) < GROWTH_MB, grown
    assert watch.job_mb < JOB_MEMORY_MB + watch.own_mb + OVERSHOOT_MB
    assert 1000 * (max(steady.waits) - max(steady.own)) < WAIT_MS, steady.told()


def is_sentence(how, told):
    """Whether an input ended as it may: it did no harm, or one sentence says what is wrong with it."""
    if how in ("taken", "succeeded"):
        return True
    detail = told.get("detail", "")
    return how in ("failed", "refused 422", "refused 503") and detail.endswith(".") and "Traceback" not in detail


N_ATTACKS = int(os.environ.get("FEWPASS_TEST_ATTACKS", "200"))


@pytest.mark.parametrize("n", [10, pytest.param(N_ATTACKS, marks=pytest.mark.faults)])
def test_hostile_inputs_harm_nobody(tmp_path, n):
    attack(tmp_path, n)
