"""Jobs are submitted here, and forgotten once they ended long ago."""

from datetime import UTC, datetime, timedelta

from service.jobs.logs import log_path
from service.jobs.notes import NOTES, Notes
from service.jobs.queue import Job, Priority, job_queue
from service.product.prechecks import check_files, check_request
from service.requests import AnyRequest
from service.workspace import Workspace


def submit(
    workspace: Workspace,
    request: AnyRequest,
    idempotency_key: str | None = None,
    *,
    is_remote: bool,
    priority: Priority = "normal",
) -> tuple[Job, bool]:
    """Queue a job after checking what can be checked without reading data; see JobQueue.submit."""
    check_request(workspace, request, is_remote=is_remote)
    check_files(workspace, request)
    asked = request.model_dump(exclude={"kind"})
    return job_queue(workspace).submit(request.kind, asked, idempotency_key=idempotency_key, priority=priority)


def job_log(workspace: Workspace, job_id: str) -> str:
    """What a job has logged so far, a JSON object a line."""
    path = log_path(workspace.layout.root / "logs", job_queue(workspace).get(job_id).id)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def forget_old_jobs(workspace: Workspace) -> int:
    """Remove jobs that ended long ago, and their logs; returns how many."""
    before, n_forgotten = datetime.now(UTC) - timedelta(days=workspace.settings.job_days), 0
    queue, notes = job_queue(workspace), Notes(workspace.layout.root / "workers" / NOTES)
    while job_ids := queue.finished_before(before):
        queue.delete(job_ids)
        for job_id in job_ids:
            log_path(workspace.layout.root / "logs", job_id).unlink(missing_ok=True)
            notes.end(job_id)
        n_forgotten += len(job_ids)
    return n_forgotten
