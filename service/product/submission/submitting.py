"""Submission of jobs, and deletion of jobs that ended long ago."""

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from service.jobs.logs import job_log_path
from service.jobs.queue import Job, Priority
from service.jobs.queue import job_queue as job_queue  # noqa: PLC0414  # a verb of the product, too
from service.product.audit import record_audit_act
from service.product.outputs import Output, check_output_free, output_draft
from service.product.submission.prechecks import check_job_files, check_job_request
from service.requests.abandonment import check_still_asked
from service.requests.problems import Conflict
from service.requests.requests import AnyRequest
from service.workspace import Workspace


def submit_job(
    workspace: Workspace,
    request: AnyRequest,
    idempotency_key: str | None = None,
    *,
    is_remote: bool,
    priority: Priority = "normal",
) -> tuple[Job, bool]:
    """Queue a job after the checks possible without reading data; see JobQueue.submit."""
    check_job_request(workspace, request, is_remote=is_remote)
    check_job_files(workspace, request, is_remote=is_remote)
    fields = request.model_dump(exclude={"kind"})
    check_still_asked()  # what was answered by an error in the meantime is not stored
    job, is_new = job_queue(workspace).submit(request.kind, fields, idempotency_key=idempotency_key, priority=priority)
    if is_new:
        record_audit_act(workspace, "job submitted", job.id, kind=request.kind)
    return job, is_new


def cancel_job(workspace: Workspace, job_id: str) -> Job:
    """Cancel a job; see `JobQueue.cancel`."""
    job = job_queue(workspace).cancel(job_id)
    record_audit_act(workspace, "job cancelled", job.id, kind=job.kind)
    return job


def retry_job(workspace: Workspace, job_id: str) -> Job:
    """Submit the request of a failed or cancelled job again; see `JobQueue.retry`."""
    job = job_queue(workspace).retry(job_id)
    record_audit_act(workspace, "job submitted", job.id, kind=job.kind, retry_of=job_id)
    return job


def read_job_log(workspace: Workspace, job_id: str) -> str:
    """Return the log of a job so far, as JSON lines."""
    path = job_log_path(workspace.layout.root / "logs", job_queue(workspace).get(job_id).id)
    return path.read_text(encoding="utf-8") if path.exists() else ""


def job_output_path(workspace: Workspace, job_id: str) -> Path:
    """Return the Parquet file written by a job; NotFound for an unknown job, Conflict if it has written none."""
    job = job_queue(workspace).get(job_id)
    path = workspace.layout.job_output(job.id)
    if not path.exists():
        raise Conflict(
            f"Job {job.id!r} ({job.kind}, {job.state}) has no rows to download: only succeeded jobs of kind score and impute have.",
            job=job.id,
        )
    return path


def write_job_output(workspace: Workspace, job_id: str, output: Output, *, replace: bool = False) -> None:
    """Copy the rows written by a job to a file; InvalidRequest if it exists, else errors as `job_output_path`."""
    written = job_output_path(workspace, job_id)
    check_output_free(output, replace=replace)
    with output_draft(output, replace=replace) as draft:
        shutil.copyfile(written, draft)


def delete_old_jobs(workspace: Workspace) -> int:
    """Remove jobs that ended long ago with their logs; return how many."""
    before, n_forgotten = datetime.now(UTC) - timedelta(days=workspace.settings.job_days), 0
    queue = job_queue(workspace)
    while job_ids := queue.finished_before(before):
        queue.delete(job_ids)
        for job_id in job_ids:
            job_log_path(workspace.layout.root / "logs", job_id).unlink(missing_ok=True)
            workspace.layout.job_output(job_id).unlink(missing_ok=True)
        n_forgotten += len(job_ids)
    return n_forgotten
