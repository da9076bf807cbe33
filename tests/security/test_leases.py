"""A state that nobody works on is found by the running server, shown, and ended or taken over without a restart."""

import contextlib
import errno
import os
import signal
import sqlite3
import sys
import time
from dataclasses import replace

import pytest
from sqlalchemy.exc import OperationalError

from service.jobs import workflows
from service.jobs.queue import PROGRESS, RECORDED_AT, JobQueue
from service.jobs.worker_leases import IDLE_LOOKS, Crew, LeaseKeeper
from service.operations import doctor
from service.processes import supervisor
from service.settings import Settings
from storage.control.control import open_control
from storage.errors import ControlUnavailable, LeaseLost, Unwritable
from tests.processes import children_of, ended, wait_for
from tests.service.asking import client_of, job_at_end, job_in
from tests.service.forks import local_server, started


class Queue:
    """What the database says of the jobs that run."""

    def __init__(self, **jobs):
        self.jobs = jobs

    def running(self):
        return self.jobs


@pytest.fixture
def keeper(tmp_path):
    """A keeper of one worker, and the jobs that it has queued again."""
    again: list[str] = []
    active: set[str] = set()
    control = open_control(f"sqlite:///{tmp_path}/control.sqlite")
    queue = Queue()
    own = LeaseKeeper(
        control,
        queue,
        tmp_path / "locks",
        0,
        lease_s=30,
        recover=lambda workers: None,
        lost=lambda error: None,
        active=lambda: active,
        requeue=again.append,
    )
    queue.jobs[own.worker] = ["lost", "running"]
    active.add("running")
    yield own, queue, active, again
    control.close()


def test_a_job_whose_end_was_not_recorded_is_queued_again_by_its_own_worker(keeper):
    own, _, _, again = keeper
    for look in range(IDLE_LOOKS):
        assert again == [], look
        own.look()
    assert again == ["lost"]


def test_a_job_that_begins_or_ends_between_two_looks_is_left_alone(keeper):
    own, queue, active, again = keeper
    for look in range(4 * IDLE_LOOKS):
        (active.add if look % IDLE_LOOKS == 0 else active.discard)("lost")
        own.look()
    queue.jobs[own.worker] = ["running"]
    own.look()
    assert again == []


def full(*_):
    raise OperationalError("UPDATE", {}, sqlite3.OperationalError("database or disk is full"))


def test_a_job_waits_with_its_end_until_the_database_takes_it(monkeypatch):
    tries = []
    errors = [full, Unwritable("x", "full."), ControlUnavailable("away"), OSError(28, "No space left on device"), None]

    def write():
        error = errors[len(tries)]
        tries.append(1)
        if callable(error):
            error()
        if error is not None:
            raise error

    monkeypatch.setattr(workflows, "AWAY_S", 0.0)
    workflows._wait_until_writable(write)
    assert len(tries) == len(errors)


def test_a_worker_that_lost_its_lease_meanwhile_starts_anew(monkeypatch):
    monkeypatch.setattr(workflows, "restart_worker_process", lambda: (_ for _ in ()).throw(SystemExit("anew")))

    def write():
        raise LeaseLost("worker-0")

    with pytest.raises(SystemExit, match="anew"):
        workflows._wait_until_writable(write)


def test_the_error_of_a_full_database_is_told_in_words_of_ours():
    try:
        full()
    except OperationalError as error:
        recorded = workflows._recorded(error)
    assert "sqlalche" not in str(recorded).lower() and "UPDATE" not in str(recorded)
    assert "Free the disk" in str(recorded) or "free" in str(recorded).lower()
    assert recorded.data["status"] == 507 and recorded.data["title"] == "Workspace cannot be written"


@pytest.mark.parametrize(
    ("age", "is_silent"), [(1.0, False), (29.0, False), (31.0, True), (3600.0, True), (None, False)]
)
def test_a_job_that_records_nothing_for_longer_than_a_lease_is_found(age, is_silent):
    class Client:
        def get_event(self, job_id, key, timeout_seconds):
            assert (job_id, key, timeout_seconds) == ("job-1", PROGRESS, 0)
            return {"step": "learn"} | ({} if age is None else {RECORDED_AT: time.time() - age})

    queue = JobQueue.__new__(JobQueue)
    queue.client = Client()
    queue.running = lambda: {"worker-0": ["job-1"]}
    assert list(queue.silent(30.0)) == (["job-1"] if is_silent else [])
    assert queue._progress("job-1") == {"step": "learn"}, "users see no times of ours"


def test_readiness_doctor_and_metrics_have_words_for_each_state():
    well = Crew(("worker",), (), 3, ())
    assert well.complaint is None
    assert "1 job recorded nothing for longer than a lease, such as job-1" in replace(well, silent=("job-1",)).complaint
    assert "1 job lost the worker, such as job-2" in replace(well, stranded=("job-2",)).complaint
    assert "No worker runs: 3 jobs waiting" in replace(well, alive=()).complaint


# A worker that dies


class Dying:
    """A process that has ended as soon as it is started; how many were, and how long nobody started another."""

    returncode = 70

    def __init__(self, n_starts):
        self.n_starts, self.starts, self.pauses = n_starts, 0, []

    def __call__(self, *_, **__):
        self.starts += 1
        return self

    def poll(self):
        return self.returncode

    def is_set(self):
        return self.starts >= self.n_starts

    def wait(self, seconds):
        self.pauses.append(seconds)
        return False


@pytest.mark.parametrize("n_looks", [0, 1, 40])
def test_a_worker_starts_as_soon_as_a_full_disk_has_space_again(monkeypatch, tmp_path, n_looks):
    """Its pauses grow while it dies for another reason: half a minute of them stood between space and a job."""
    dying, looks = Dying(8), []

    def is_full(_folder):
        looks.append(1)
        return len(looks) <= n_looks

    monkeypatch.setattr(supervisor, "takes_no_bytes", is_full)
    monkeypatch.setattr(supervisor.subprocess, "Popen", dying)
    supervisor._keep_worker(Settings(workspace=tmp_path), dying)
    assert dying.starts == 8
    waited = max(0, n_looks - 1)
    assert dying.pauses[:waited] == [supervisor.RESTART_S] * waited, "it looks every second, however long that lasts"
    grown = [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]
    assert dying.pauses[waited:] == (grown if not n_looks else [2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0])


@pytest.mark.parametrize(
    ("number", "is_full"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EROFS, True), (errno.EACCES, False)]
)
def test_a_disk_is_full_if_it_refuses_a_write(monkeypatch, tmp_path, number, is_full):
    assert not supervisor.takes_no_bytes(tmp_path) and not supervisor.takes_no_bytes(tmp_path / "gone")

    def refuse(_descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", refuse)
    assert supervisor.takes_no_bytes(tmp_path) == is_full
    assert list(tmp_path.iterdir()) == []


def stranded(client):
    text = client.get("/metrics").text
    return float(next(line for line in text.splitlines() if 'fewpass_jobs{state="stranded"}' in line).split()[-1])


def test_the_job_of_a_killed_worker_is_shown_and_taken_over_without_a_restart(tmp_path, weather_files):
    settings = Settings(
        workspace=tmp_path / "workspace",
        job_workers=0,
        lease_s=1,
        job_poll_s=0.05,
        progress_s=0.1,
        generation_poll_s=0.05,
    )
    command = [sys.executable, "-m", "service.cli", "worker", "-w", str(settings.workspace)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("FEWPASS_")}
    environment |= settings.environment()
    body = {"kind": "train", "uris": [str(weather_files[0])], "target": "class", "learner": "kdb", "model": "long"}
    body |= {"parameters": {"k": 2, "estimator": "hdp", "iterations": 2_000}}
    with (
        (tmp_path / "worker.log").open("a") as log,
        contextlib.ExitStack() as ends,
        local_server(settings) as server,
        client_of(server) as client,
    ):

        def worker():
            process = started(command, env=environment, stdout=log, stderr=log)
            ends.callback(process.kill)
            return process

        first = worker()
        job = client.post("/v1/jobs", json=body).json()["id"]
        wait_for(lambda: (client.get(f"/v1/jobs/{job}").json()["progress"] or {}).get("stage"))
        assert client.get("/readyz").json()["status"] == "ok" and stranded(client) == 0
        left = children_of(first.pid)
        first.send_signal(signal.SIGKILL)
        first.wait()
        wait_for(lambda: stranded(client) == 1)
        reason = wait_for(lambda: client.get("/readyz").json().get("reason"))
        assert "1 without a worker. Start fewpass serve or fewpass worker" in reason
        assert client.get("/readyz").status_code == 200, "predictions go on"
        findings = [each.detail for each in doctor.run_doctor_checks(settings) if each.state != "ok"]
        assert any("without a worker" in text for text in findings), findings
        assert job_in(client, job, "running")["attempts"] == 1
        wait_for(lambda: ended(process.pid for process in left))
        second = worker()
        job = job_at_end(client, job)
        assert (job["state"], job["attempts"]) == ("succeeded", 2), job["error"]
        assert stranded(client) == 0
        wait_for(lambda: client.get("/readyz").json()["status"] == "ok")
        second.terminate()
        second.wait()
