"""The queue of durable jobs: submit, get, list, cancel, retry. DBOS stores them in the control database."""

import base64
import binascii
import hashlib
import secrets
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from dbos import (
    DBOS,
    DBOSClient,
    DBOSPortableJSONSerializer,
    EnqueueOptions,
    WorkflowSerializationFormat,
    WorkflowStatus,
)

from service.requests.json_values import JSONObject
from service.requests.problems import Conflict, InvalidRequest
from service.workspace import Workspace
from storage.control.paging import Page
from storage.control.sqlite import install_secure_delete, install_sqlite_clock
from storage.errors import NotFound

APPLICATION = "fewpass"
# Fixed on purpose: with DBOS' default, a hash of the source, no upgrade could resume the jobs of the version before.
APPLICATION_VERSION = "fewpass-jobs-1"
QUEUE = "fewpass-jobs"
WORKFLOW = "fewpass.job"
PROGRESS = "progress"
RECORDED_AT = "recorded_at"  # within it, for those who ask whether anybody works on a job
MAX_PAGE = 500
NO_CURSOR = "The cursor does not come from this server."
MAX_PLACE = 1 << 40  # of a page in a list

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
STATES: dict[str, State] = {
    "ENQUEUED": "queued",
    "DELAYED": "queued",
    "PENDING": "running",
    "SUCCESS": "succeeded",
    "ERROR": "failed",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
    "CANCELLED": "cancelled",
}
Priority = Literal["high", "normal", "low"]
# Those of before there were priorities have 0, and so come first.
PRIORITIES: dict[Priority, int] = {"high": 1, "normal": 2, "low": 3}
FINISHED: frozenset[State] = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True)
class Job:
    """A durable job as users see it: queued -> running -> succeeded, failed or cancelled."""

    id: str
    kind: str
    state: State
    request: JSONObject
    progress: JSONObject | None
    result: JSONObject | None
    error: JSONObject | None
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    retry_of: str | None
    priority: Priority = "normal"

    @property
    def is_finished(self) -> bool:
        """True if the job has reached a final state."""
        return self.state in FINISHED


class JobQueue:
    """Client of the job queue for any process; it runs no jobs.

    The job tables of the control database, a URL for SQLAlchemy, are made or migrated here. A worker runs `concurrency` jobs
    at the same time, and looks every `poll_s` while it is idle.
    """

    def __init__(self, url: str, concurrency: int = 1, poll_s: float = 0.2) -> None:
        install_sqlite_clock()
        install_secure_delete()
        DBOS.migrate(url)
        self.client = DBOSClient(
            system_database_url=url,
            application_name=APPLICATION,
            serializer=DBOSPortableJSONSerializer(),
            retry_connection_errors=False,
        )
        self.client.register_queue(QUEUE, worker_concurrency=concurrency, polling_interval_sec=poll_s)

    def close(self) -> None:
        """Close the database connections."""
        self.client.destroy()

    def submit(
        self,
        kind: str,
        request: JSONObject,
        *,
        idempotency_key: str | None = None,
        retry_of: str | None = None,
        priority: Priority = "normal",
    ) -> tuple[Job, bool]:
        """Add a job to the queue; return it and whether this call created it. Conflict if the key was used with another
        request.

        The request is the parameters of a kind of job, as JSON can say them. A second call with the same key and request
        starts nothing. Jobs of higher priority start first; a running one is not interrupted.
        """
        nonce = secrets.token_hex(8)
        document = {"kind": kind, "request": request, "nonce": nonce, "submitted_at": time.time()}
        document |= {"retry_of": retry_of, "priority": priority}
        options: EnqueueOptions = {
            "workflow_name": WORKFLOW,
            "queue_name": QUEUE,
            "workflow_id": _job_id(idempotency_key),
            "app_version": APPLICATION_VERSION,
            "priority": PRIORITIES[priority],
            "serialization_type": WorkflowSerializationFormat.PORTABLE,
        }
        handle: Any = self.client.enqueue(options, document)
        status = self._status(handle.get_workflow_id())
        stored = _document(status)
        if stored["nonce"] != nonce and (stored["kind"], stored["request"]) != (kind, request):
            raise Conflict(
                "This Idempotency-Key was used with another request. Send a new key, or the same request.",
                job=status.workflow_id,
            )
        return self._job(status), stored["nonce"] == nonce

    def get(self, job_id: str) -> Job:
        """Return a job with its latest progress; raises NotFound for an unknown id."""
        return self._job(self._status(job_id))

    def list(self, *, state: State | None = None, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """List jobs, newest first, with the progress of running ones; a cursor keeps its place while new jobs arrive."""
        limit = min(max(limit, 1), MAX_PAGE)
        # Not "until now": a clock that was set back would hide the jobs of before.
        until, offset = _read_cursor(cursor) if cursor else (None, 0)
        statuses = self.client.list_workflows(
            name=WORKFLOW,
            status=[name for name, its_state in STATES.items() if its_state == state] if state else None,
            end_time=until,
            offset=offset,
            limit=limit + 1,
            sort_desc=True,
        )
        # A look-up per job: worth it only where progress still moves.
        jobs = tuple(self._job(status, with_progress=status.status == "PENDING") for status in statuses[:limit])
        if len(statuses) <= limit:
            return Page(jobs, None)
        newest = until or _time(statuses[0].created_at).isoformat()
        return Page(jobs, base64.urlsafe_b64encode(f"{newest}|{offset + limit}".encode()).decode())

    def unfinished(self) -> Iterator[Job]:
        """Yield the queued and running jobs, without their progress."""
        for status in self._in_states({"queued", "running"}, load_output=False):
            yield self._job(status, with_progress=False)

    def running(self) -> Mapping[str, Sequence[str]]:
        """Return the ids of running jobs by worker."""
        jobs: defaultdict[str, list[str]] = defaultdict(list)
        for status in self._in_states({"running"}, load_input=False, load_output=False):
            jobs[status.executor_id or ""].append(status.workflow_id)
        return jobs

    def silent(self, seconds: float) -> Sequence[str]:
        """Return running jobs without recorded progress for `seconds`: no worker runs them, or progress cannot be
        recorded.
        """
        silent, now = [], time.time()
        for jobs in self.running().values():
            for job_id in jobs:
                progress = self.client.get_event(job_id, PROGRESS, timeout_seconds=0) or {}
                if now - progress.get(RECORDED_AT, now) > seconds:
                    silent.append(job_id)
        return silent

    def count(self, state: State) -> int:
        """Count the jobs in a state that is not final, at most 10,000."""
        return len(self._in_states({state}, load_input=False, load_output=False))

    def cancel(self, job_id: str) -> Job:
        """Cancel a job: at once if it is queued, between two chunks if it runs; Conflict if it has already ended."""
        job = self.get(job_id)
        if job.state in {"queued", "running"}:
            self.client.cancel_workflow(job_id)
            job = self.get(job_id)
        if job.state != "cancelled":
            raise Conflict(f"Job {job_id} has already {job.state}; there is nothing to cancel.", state=job.state)
        return job

    def retry(self, job_id: str) -> Job:
        """Submit the same request as a new job, which reuses finished passes; Conflict unless the job failed or was
        cancelled.
        """
        job = self.get(job_id)
        if job.state not in {"failed", "cancelled"}:
            raise Conflict(
                f"Job {job_id} is {job.state}; only failed and cancelled jobs can be retried.", state=job.state
            )
        return self.submit(job.kind, job.request, retry_of=job_id, priority=job.priority)[0]

    def finished_before(self, moment: datetime) -> tuple[str, ...]:
        """Return the jobs that ended before a moment, oldest first."""
        before = moment.isoformat()
        statuses = self._in_states(
            FINISHED, limit=MAX_PAGE, completed_before=before, load_input=False, load_output=False
        )
        return tuple(status.workflow_id for status in statuses)

    def delete(self, job_ids: Sequence[str]) -> None:
        """Delete finished jobs."""
        self.client.delete_workflows(list(job_ids))

    def _in_states(self, states: Collection[State], *, limit: int = 10_000, **how: Any) -> Sequence[WorkflowStatus]:
        names = [name for name, state in STATES.items() if state in states]
        workflows: Sequence[WorkflowStatus] = self.client.list_workflows(
            name=WORKFLOW, status=names, limit=limit, **how
        )
        return workflows

    def _status(self, job_id: str) -> WorkflowStatus:
        workflows = self.client.list_workflows(workflow_ids=[job_id], name=WORKFLOW)
        if not workflows:
            raise NotFound("job", job_id)
        return workflows[0]

    def _progress(self, job_id: str) -> JSONObject | None:
        progress: JSONObject | None = self.client.get_event(job_id, PROGRESS, timeout_seconds=0)
        return progress and {name: value for name, value in progress.items() if name != RECORDED_AT}

    def _job(self, status: WorkflowStatus, with_progress: bool = True) -> Job:
        document = _document(status)
        state = STATES[status.status]
        with_progress = with_progress and bool(status.recovery_attempts)
        return Job(
            id=status.workflow_id,
            kind=document["kind"],
            state=state,
            request=document["request"],
            progress=self._progress(status.workflow_id) if with_progress else None,
            result=status.output if state == "succeeded" else None,
            error=_error(status) if state == "failed" else None,
            attempts=status.recovery_attempts or 0,
            created_at=datetime.fromtimestamp(document["submitted_at"], UTC),
            started_at=None if status.dequeued_at is None else _time(status.dequeued_at),
            finished_at=_time(status.completed_at) if state in FINISHED and status.completed_at else None,
            retry_of=document["retry_of"],
            priority=document.get("priority", "normal"),
        )


def job_queue(workspace: Workspace) -> JobQueue:
    """Return the queue of a workspace, opened once."""
    settings = workspace.settings

    def opened() -> JobQueue:
        assert workspace.control is not None  # its WAL mode holds for the job tables in the same file
        return JobQueue(workspace.control_url, settings.job_concurrency, settings.job_poll_s)

    queue = workspace.opened("queue", opened)
    workspace.check_there()
    return queue


def _job_id(idempotency_key: str | None) -> str:
    if idempotency_key is None:
        return f"job-{int(time.time() * 1000):011x}{secrets.token_hex(5)}"
    return f"job-{hashlib.sha256(idempotency_key.encode()).hexdigest()[:24]}"


def _document(status: WorkflowStatus) -> JSONObject:
    assert status.input is not None
    document: JSONObject = status.input["args"][0]
    return document


def _error(status: WorkflowStatus) -> JSONObject:
    """Return the problem document recorded by the worker, or one made from the state in DBOS if the worker could not
    record it.
    """
    if status.status == "MAX_RECOVERY_ATTEMPTS_EXCEEDED":
        return {
            "type": "urn:fewpass:problem:worker-lost",
            "title": "Worker lost",
            "status": 500,
            "detail": f"The worker process died {status.recovery_attempts} times while running this job: "
            "it probably needs more memory than the machine has.",
        }
    recorded = getattr(status.error, "data", None)
    if isinstance(recorded, dict):
        return recorded
    return {"type": "urn:fewpass:problem:job-failed", "title": "Job failed", "status": 500, "detail": str(status.error)}


def _time(epoch_ms: float) -> datetime:
    return datetime.fromtimestamp(epoch_ms / 1000, UTC)


def _read_cursor(cursor: str) -> tuple[str, int]:
    try:
        until, offset = base64.urlsafe_b64decode(cursor.encode()).decode().split("|")
        moment, place = datetime.fromisoformat(until).isoformat(), int(offset)
    except (ValueError, binascii.Error) as error:
        raise InvalidRequest(NO_CURSOR, field="cursor") from error
    if not 0 <= place < MAX_PLACE:
        raise InvalidRequest(NO_CURSOR, field="cursor")
    return moment, place
