"""The queue and its worker process: progress, cancel, failure, crash recovery, retry, idempotency."""

import logging
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from service.jobs import worker
from service.jobs.queue import JobQueue
from service.jobs.worker import OfDbos
from service.jobs.worker_slots import acquire_worker_slot
from service.processes import supervisor
from service.requests.problems import Conflict, InvalidRequest
from storage.errors import NotFound
from tests import processes
from tests.service.conftest import Workers
from tests.support.jobs import counting, counts, finished, wait_for


@dataclass(frozen=True)
class Shop:
    """A queue, its one worker, and the folder of its workspace, in which jobs that have ended leave a file."""

    queue: JobQueue
    worker: subprocess.Popen
    folder: Path

    def is_cleaned(self, job_id):
        return (self.folder / f"{job_id}.cleaned").exists()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """For all tests after which the worker lives, and nothing runs or waits."""
    folder = tmp_path_factory.mktemp("shop")
    queue, workers = JobQueue(f"sqlite:///{folder}/control.sqlite", poll_s=0.05), Workers(folder)
    yield Shop(queue, workers.start(), folder)
    workers.stop()
    queue.close()


def test_a_job_runs_step_by_step_with_progress_and_a_result(shop, tmp_path):
    queue = shop.queue
    job, is_new = queue.submit("count", counts(tmp_path, 12))
    assert is_new
    job = wait_for(queue, job.id, counting)
    assert job.progress["step"] == "count" and job.progress["rows_total"] == 12
    (tmp_path / "gate").touch()
    job = wait_for(queue, job.id, finished)
    assert (job.state, job.result, job.error, job.attempts) == ("succeeded", {"total": 12}, None, 1)
    assert job.finished_at is not None and shop.is_cleaned(job.id)


def test_failures_are_kept_as_problems_and_can_be_retried(shop):
    queue = shop.queue
    expected, _ = queue.submit("fail", {"expected": True})
    unexpected, _ = queue.submit("fail", {"expected": False})
    job = wait_for(queue, expected.id, finished)
    assert job.state == "failed" and job.result is None
    assert job.error["title"] == "Unknown column" and job.error["column"] == "agee" and job.error["status"] == 422
    job = wait_for(queue, unexpected.id, finished)
    assert "ZeroDivisionError: one over nothing" in job.error["detail"]
    again = queue.retry(expected.id)
    assert again.retry_of == expected.id and again.id != expected.id and again.request == {"expected": True}
    assert wait_for(queue, again.id, finished).state == "failed"
    with pytest.raises(Conflict, match="has already failed"):
        queue.cancel(expected.id)


def test_cancel_stops_a_job_that_would_run_for_ever_and_a_queued_one_at_once(shop, tmp_path):
    queue = shop.queue
    running, _ = queue.submit("count", counts(tmp_path, 3))
    queued, _ = queue.submit("count", {"n": 1, "log": str(tmp_path / "log2")})
    wait_for(queue, running.id, counting)
    assert queue.cancel(queued.id).state == "cancelled"
    after, _ = queue.submit("count", {"n": 1, "log": str(tmp_path / "log3")})
    assert queue.cancel(running.id).state == "cancelled"
    assert queue.cancel(running.id).state == "cancelled"  # twice is not an error
    assert wait_for(queue, after.id, finished).state == "succeeded"  # the slot was free again
    assert queue.get(running.id).state == "cancelled" and not (tmp_path / "log2").exists()
    processes.wait_for(lambda: shop.is_cleaned(running.id))  # at once, or by the next worker
    with pytest.raises(Conflict, match="only failed and cancelled jobs can be retried"):
        queue.retry(after.id)


def test_a_deaf_job_is_ended_and_what_it_left_is_removed(shop, tmp_path):
    queue = shop.queue
    deaf, _ = queue.submit("sleep", {"s": 600, "log": str(tmp_path / "log")})
    after, _ = queue.submit("count", {"n": 1, "log": str(tmp_path / "log2")})
    wait_for(queue, deaf.id, lambda _: (tmp_path / "log").exists())
    assert queue.cancel(deaf.id).state == "cancelled"
    assert wait_for(queue, after.id, finished).state == "succeeded"
    assert shop.worker.poll() is None and queue.get(deaf.id).attempts == 1
    processes.wait_for(lambda: shop.is_cleaned(deaf.id))


def test_what_jobs_have_left_whose_worker_is_gone_is_removed(queue, workers, tmp_path):
    left, _ = queue.submit("count", counts(tmp_path, 3))
    process = workers.start()
    wait_for(queue, left.id, counting)
    (tmp_path / "scratch" / left.id).mkdir()
    process.kill()
    process.wait()
    queue.cancel(left.id)
    assert not (tmp_path / f"{left.id}.cleaned").exists()
    workers.start()
    processes.wait_for(lambda: (tmp_path / f"{left.id}.cleaned").exists())
    assert not (tmp_path / "scratch" / left.id).exists()


def test_a_stopped_worker_leaves_what_its_job_needs_to_go_on(queue, workers, tmp_path):
    job, _ = queue.submit("outlive", {"log": str(tmp_path / "log")})
    process = workers.start()
    wait_for(queue, job.id, lambda _: (tmp_path / "log").exists())
    process.terminate()
    assert process.wait(timeout=240) == 0
    assert queue.get(job.id).state == "running" and not (tmp_path / f"{job.id}.cleaned").exists()
    workers.start()
    assert wait_for(queue, job.id, finished).result == {"total": 1}


def test_a_killed_worker_s_job_resumes_after_its_last_receipt(queue, workers, tmp_path):
    log = tmp_path / "log"
    job, _ = queue.submit("count", {"n": 3, "log": str(log), "die": 1})
    assert workers.start().wait(timeout=240) == -9
    assert queue.get(job.id).state == "running"
    workers.start()
    job = wait_for(queue, job.id, finished)
    assert job.state == "succeeded" and job.attempts == 2
    assert log.read_text().split() == ["count", "finish", "finish"]  # the first step was not run again


def test_a_worker_whose_workspace_is_removed_ends(queue, workers, tmp_path):
    """Its database can still be written, but nobody will ever read that."""
    job, _ = queue.submit("count", counts(tmp_path, 20))
    process = workers.start()
    wait_for(queue, job.id, counting)
    for path in tmp_path.glob("control.sqlite*"):
        path.unlink()
    assert process.wait(timeout=240) == worker.GONE == supervisor.GONE
    assert "the workspace is gone, so its worker stops" in (tmp_path / "worker.log").read_text()


def test_a_job_that_keeps_killing_its_worker_is_given_up(queue, workers, tmp_path, monkeypatch):
    monkeypatch.setenv("QUEUE_WORKER_ATTEMPTS", "2")
    job, _ = queue.submit("count", {"n": 1, "log": str(tmp_path / "log"), "die": 99})
    for _ in range(2):
        process = workers.start()
        assert process.wait(timeout=240) == -9
    workers.start()
    job = wait_for(queue, job.id, finished)
    assert job.state == "failed" and job.error["title"] == "Worker lost"


def test_lists_keep_their_place_when_jobs_come(queue):
    """Their order and their pages are those of test_jobs_machine."""
    ids = {queue.submit("fail", {"expected": True, "number": number})[0].id for number in range(5)}
    first = queue.list(limit=2)
    queue.submit("fail", {"expected": True, "number": 5})
    rest = queue.list(limit=500, cursor=first.next_cursor)
    assert {job.id for job in (*first.items, *rest.items)} == ids
    assert queue.count("queued") == 6 and queue.list(state="running").items == ()
    with pytest.raises(InvalidRequest, match="cursor"):
        queue.list(cursor="no cursor")
    with pytest.raises(NotFound, match="no job 'job-x'"):
        queue.get("job-x")


def test_jobs_of_higher_priority_start_first(shop, tmp_path):
    queue, log = shop.queue, tmp_path / "order"
    first, _ = queue.submit("count", counts(tmp_path, 3))
    wait_for(queue, first.id, counting)  # it holds the worker until all others wait
    names, asked = ("low", "normal", "high"), {"n": 1, "log": str(log)}
    ids = [queue.submit("count", asked | {"says": name}, priority=name)[0].id for name in names]
    (tmp_path / "gate").touch()
    assert tuple(wait_for(queue, job_id, finished).priority for job_id in ids) == names
    assert log.read_text().split() == ["high", "finish", "normal", "finish", "low", "finish"]


def test_a_job_that_takes_too_long_fails_and_frees_its_slot(queue, workers, tmp_path, monkeypatch):
    monkeypatch.setenv("FEWPASS_JOB_TIMEOUT_S", "0.5")
    long, _ = queue.submit("count", counts(tmp_path, 3))
    after, _ = queue.submit("count", {"n": 1, "log": str(tmp_path / "log2")})
    workers.start()
    job = wait_for(queue, long.id, finished)
    assert job.state == "failed" and "ran longer than 0.5 s" in job.error["detail"]
    assert (tmp_path / f"{long.id}.cleaned").exists()
    wait_for(queue, after.id, finished)  # it may have taken too long, too
    assert (tmp_path / "log2").read_text().startswith("count")


def test_a_job_waits_for_the_control_database_and_can_be_cancelled_meanwhile(shop, tmp_path):
    queue = shop.queue
    short, _ = queue.submit("insist", {"n": 2, "log": str(tmp_path / "log")})
    long, _ = queue.submit("insist", {"n": 10_000, "log": str(tmp_path / "log2")})
    assert wait_for(queue, short.id, finished).state == "succeeded"
    assert (tmp_path / "log").read_text().split() == ["insist"] * 3
    wait_for(queue, long.id, lambda job: "control database" in (job.progress or {}).get("stage", ""))
    queue.cancel(long.id)
    processes.wait_for(lambda: shop.is_cleaned(long.id))


def test_what_dbos_logs_is_said_once_a_minute_in_a_line():
    quiet = OfDbos()
    texts = ["Exception x: a\nb", "Exception x: a", "Exception y: Traceback\n  File z\nE: why\n", "fine"]
    records = [logging.LogRecord("dbos", logging.WARNING, "", 0, text, (), None) for text in texts]
    told = [record.getMessage() for record in records if quiet.filter(record)]
    assert told == ["Exception x: a", "Exception y: E: why", "fine"]


def test_worker_slots_are_stable_and_exclusive(tmp_path):
    (zero, lock), (one, other) = acquire_worker_slot(tmp_path), acquire_worker_slot(tmp_path)
    assert (zero, one) == (0, 1)
    lock.close()
    again, lock = acquire_worker_slot(tmp_path)
    assert again == 0
    for each in (lock, other):
        each.close()
