"""Workers that come and go: the jobs of one that is gone go on elsewhere, and one that was stopped too long does nothing."""

import contextlib
import signal
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.jobs.queue import job_queue
from service.jobs.worker_leases import CrewWatch, Silence, lease_host_name, worker_crew_status
from service.settings import Settings
from service.workspace import Workspace
from storage.control.leases import Lease, end_lease, list_worker_leases, take_lease
from storage.models import model_versions
from tests.processes import wait_for
from tests.support.jobs import counts, finished
from tests.support.jobs import wait_for as wait_for_job


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("QUEUE_WORKER_LEASE_S", "1")
    with Workspace(Settings(workspace=tmp_path, job_poll_s=0.05, lease_s=1)) as workspace:
        yield workspace


def begun(queue, job_id, attempts=1):
    def look():
        job = queue.get(job_id)
        return job if job.attempts >= attempts and (job.progress or {}).get("rows_done", 0) >= 2 else None

    return wait_for(look)


def stop_between_writes(process, database):
    """Stop it where it holds no lock of SQLite: one that is stopped within a write holds up all others until it goes on."""
    threads = Path(f"/proc/{process.pid}/task")

    def is_stopped():
        try:
            return all(stat.read_text().rpartition(")")[2].split()[0] == "T" for stat in threads.glob("*/stat"))
        except OSError:  # a thread has ended between two looks
            return False

    def is_free():
        process.send_signal(signal.SIGSTOP)
        wait_for(is_stopped)
        with contextlib.closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                process.send_signal(signal.SIGCONT)
                return False
        return True

    wait_for(is_free)


def at_end(queue, job_id):
    return wait_for_job(queue, job_id, finished)


def begin(queue, workers, folder):
    """A job that stops at a gate, the worker that has begun it, and the name of that one's lease."""
    process = workers.start()
    job, _ = queue.submit("reserve", counts(folder, 4))
    begun(queue, job.id)
    (lease,) = queue.running()
    return job, process, lease


def kill(process):
    process.kill()
    process.wait()


def lease_ids(workspace):
    return {lease.id for lease in list_worker_leases(workspace.control)}


def test_a_living_worker_takes_over_the_job_of_a_killed_one(workspace, workers, tmp_path):
    """Nobody takes the slot of the killed one again: that was a job that ran for ever."""
    queue = job_queue(workspace)
    job, first, victim = begin(queue, workers, tmp_path)
    workers.start()
    wait_for(lambda: len(lease_ids(workspace)) == 2)
    kill(first)
    begun(queue, job.id, attempts=2)
    assert victim not in queue.running() and victim not in lease_ids(workspace)
    (tmp_path / "gate").touch()
    job = at_end(queue, job.id)
    assert (job.state, job.result, job.attempts) == ("succeeded", {"version": 1}, 2)


def test_a_worker_that_was_stopped_past_its_lease_writes_nothing(workspace, workers, tmp_path):
    queue = job_queue(workspace)
    job, first, stopped = begin(queue, workers, tmp_path)
    stop_between_writes(first, workspace.layout.control_path)
    workers.start()
    begun(queue, job.id, attempts=2)
    assert stopped not in lease_ids(workspace)
    (tmp_path / "gate").touch()
    job = at_end(queue, job.id)
    assert job.result == {"version": 1}
    first.send_signal(signal.SIGCONT)
    log = tmp_path / "worker.log"
    wait_for(lambda: "taken for dead" in log.read_text() or "taken over by another" in log.read_text())
    wait_for(lambda: len(lease_ids(workspace)) == 2)  # it has started anew, under another name
    assert stopped not in lease_ids(workspace) and first.poll() is None and queue.get(job.id) == job
    assert model_versions.reserve_version(workspace.control, "m") == 2


def test_jobs_without_any_worker_are_reported_and_resumed_by_the_next(workspace, workers, tmp_path):
    queue, watch = job_queue(workspace), CrewWatch(workspace)
    assert worker_crew_status(workspace).complaint is None and watch.look() is None
    job, process, _ = begin(queue, workers, tmp_path)
    assert worker_crew_status(workspace).stranded == () and len(worker_crew_status(workspace).alive) == 1
    kill(process)
    crew = worker_crew_status(workspace)
    assert crew.stranded == (job.id,) and not crew.alive and len(crew.gone) == 1
    assert "No worker runs: 0 jobs waiting, 1 without a worker. Start fewpass serve" in (crew.complaint or "")
    assert wait_for(watch.look) == crew.complaint  # once it has lasted as long as a lease
    (tmp_path / "gate").touch()
    workers.start()
    assert at_end(queue, job.id).result == {"version": 1}
    assert (tmp_path / "log").read_text().split() == ["count", "count"]  # the step that was under way began again
    assert worker_crew_status(workspace).complaint is None and watch.look() is None


def test_a_job_of_a_worker_that_never_had_a_lease_is_taken_over(workspace, workers, tmp_path):
    """As the workers of earlier releases have none, and one may die between the end of a lease and the taking over."""
    queue = job_queue(workspace)
    job, process, lease = begin(queue, workers, tmp_path)
    kill(process)
    end_lease(workspace.control, lease)
    (tmp_path / "gate").touch()
    workers.start()
    assert at_end(queue, job.id).attempts == 2


def test_a_worker_that_stops_in_order_gives_its_lease_back(workspace, workers, tmp_path):
    process = workers.start()
    wait_for(lambda: lease_ids(workspace))
    process.terminate()
    process.wait()
    assert lease_ids(workspace) == set()


def test_a_lease_on_this_machine_with_a_free_slot_is_that_of_a_dead_worker(workspace):
    take_lease(workspace.control, "w", lease_host_name(), 7, 30)
    assert [lease.id for lease in worker_crew_status(workspace).gone] == ["w"]
    take_lease(workspace.control, "v", "elsewhere", 7, 30)
    assert [lease.id for lease in worker_crew_status(workspace).alive] == ["v"]


def beat(n):
    return [Lease("w", "elsewhere", 0, n, 30, datetime.now(UTC))]


@given(st.lists(st.tuples(st.floats(0, 100), st.booleans()), max_size=20))
def test_silence_is_what_was_looked_at(looks):
    """A naive twin: silence is the sum of the waits since the last beat, none longer than two beats."""
    silence, now, beats, expected = Silence(5), 0.0, 0, 0.0
    assert silence.look(beat(beats), now) == {"w": 0.0}
    for waited, is_beating in looks:
        now += waited
        beats += is_beating
        expected = 0.0 if is_beating else expected + min(waited, 10)
        assert silence.look(beat(beats), now)["w"] == pytest.approx(expected)
    assert silence.look([], now) == {} and silence.look(beat(beats), now + 5) == {"w": 0.0}, "it comes back"
