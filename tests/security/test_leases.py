"""A state that nobody works on is found by the running server, shown, and ended or taken over without a restart."""

import sqlite3
import time
from dataclasses import replace

import pytest
from sqlalchemy.exc import OperationalError

from service.jobs import workflows
from service.jobs.queue import PROGRESS, RECORDED_AT, JobQueue
from service.jobs.worker_leases import IDLE_LOOKS, Crew, LeaseKeeper
from storage.control.control import open_control
from storage.errors import ControlUnavailable, LeaseLost, Unwritable


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
    assert "have recorded nothing for longer than a lease, such as job-1" in replace(well, silent=("job-1",)).complaint
    assert "have lost their worker, such as job-2" in replace(well, stranded=("job-2",)).complaint
    assert "no worker runs" in replace(well, alive=()).complaint
