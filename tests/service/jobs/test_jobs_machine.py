"""The queue against a model of it that is a dict: any order of calls, workers killed in between, the same answers."""

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule

from service.jobs.queue import FINISHED, Job, JobQueue
from service.requests.problems import Conflict
from storage.errors import NotFound
from tests.machines import memory_folder
from tests.processes import wait_for
from tests.service.conftest import Workers

KEYS = st.sampled_from([None, "a", "b"])
PRIORITIES = st.sampled_from(["high", "normal", "low"])
PAGE = 3


class Queue(RuleBasedStateMachine):
    """Jobs that nobody runs: they wait until they are cancelled.

    `kinds` has what each job was asked to be, in the order in which they came; `ends` the last state of those that ended.
    """

    jobs = Bundle("jobs")

    def __init__(self):
        super().__init__()
        self.temporary = memory_folder()
        self.folder = Path(self.temporary.name)
        self.queue = JobQueue(f"sqlite:///{self.folder}/control.sqlite", poll_s=0.05)
        self.kinds: dict[str, tuple[str, int]] = {}
        self.keys: dict[str, str] = {}
        self.ends: dict[str, str] = {}
        self.cancelled: set[str] = set()

    def teardown(self):
        self.queue.close()
        self.temporary.cleanup()

    def request(self, kind, n):
        log, gate = str(self.folder / "log"), str(self.folder)  # the gate is open
        return {"expected": True, "n": n} if kind == "fail" else {"n": n, "log": log, "gate": gate}

    @initialize(target=jobs)
    def first(self):
        return self.submit("count", 10, None, "normal")

    @rule(target=jobs, kind=st.sampled_from(["count", "fail"]), n=st.integers(1, 8), key=KEYS, priority=PRIORITIES)
    def submit(self, kind, n, key, priority):
        known = self.keys.get(key or "")
        if known is not None and self.kinds[known] != (kind, n):
            with pytest.raises(Conflict, match="another request"):
                self.queue.submit(kind, self.request(kind, n), idempotency_key=key)
            return known
        job, is_new = self.queue.submit(kind, self.request(kind, n), idempotency_key=key, priority=priority)
        assert is_new == (known is None) and job.id == (known or job.id)
        if is_new:
            assert job.priority == priority
            self.kinds[job.id] = kind, n
        if key is not None:
            self.keys[key] = job.id
        return job.id

    @rule(job=jobs)
    def cancel(self, job):
        if job not in self.kinds:
            with pytest.raises(NotFound, match="There is no"):
                self.queue.cancel(job)
            return
        try:
            assert self.queue.cancel(job).state == "cancelled"
        except Conflict as refused:
            assert self.queue.get(job).state == refused.fields["state"]
            assert refused.fields["state"] in {"succeeded", "failed"}
        else:
            self.cancelled.add(job)

    @rule(target=jobs, job=jobs)
    def retry(self, job):
        before = self.queue.get(job).state if job in self.kinds else None
        try:
            again = self.queue.retry(job)
        except (Conflict, NotFound) as refused:
            assert isinstance(refused, NotFound) == (before is None) and before not in {"failed", "cancelled"}
            return job
        assert again.retry_of == job and again.id not in self.kinds
        self.kinds[again.id] = self.kinds[job]
        return again.id

    @precondition(lambda self: self.ends)
    @rule(job=consumes(jobs))
    def forget(self, job):
        if job in self.ends:
            self.queue.delete([job])
            for known in (self.kinds, self.ends):
                del known[job]
            self.keys = {key: its_job for key, its_job in self.keys.items() if its_job != job}

    @invariant()
    def is_as_expected(self):
        listed: list[Job] = []
        page = self.queue.list(limit=PAGE)
        while page.next_cursor is not None:
            listed += page.items
            page = self.queue.list(limit=PAGE, cursor=page.next_cursor)
        listed += page.items
        assert {job.id for job in listed} == self.kinds.keys() and len(listed) == len(self.kinds)
        assert sorted(listed, key=lambda job: job.created_at, reverse=True) == listed
        for job in listed:
            assert self.ends.get(job.id, job.state) == job.state  # what has ended never changes again
            if job.state in FINISHED:
                self.ends[job.id] = job.state
                assert (job.state == "cancelled") == (job.id in self.cancelled)


class Killed(Queue):
    """The same while a worker runs them, and is killed now and then."""

    MOST_KILLS = 2  # with a third, a job may be given up: attempts are 3

    def __init__(self):
        super().__init__()
        self.workers = Workers(self.folder)
        self.n_kills = 0
        self.workers.start()

    @precondition(lambda self: self.n_kills < self.MOST_KILLS)
    @rule(job=Queue.jobs)
    def kill(self, job):
        wait_for(lambda: job not in self.kinds or self.queue.get(job).state != "queued")
        self.workers.stop()
        self.n_kills += 1
        self.workers.start()

    @rule(job=Queue.jobs)
    def wait(self, job):
        wait_for(lambda: job not in self.kinds or self.queue.get(job).is_finished)

    def teardown(self):
        try:
            for job_id, (kind, n) in self.kinds.items():
                job = wait_for(lambda job_id=job_id: job if (job := self.queue.get(job_id)).is_finished else None)
                if job_id in self.cancelled:
                    assert job.state == "cancelled"
                elif kind == "fail":
                    assert job.state == "failed" and job.error["title"] == "Unknown column"
                else:
                    assert job.state == "succeeded" and job.result == {"total": n}
        finally:
            self.workers.stop()
            super().teardown()


TestQueue = Queue.TestCase
TestQueue.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestKilled = pytest.mark.faults(Killed.TestCase)
TestKilled.settings = settings(max_examples=12, stateful_step_count=14, deadline=None)
