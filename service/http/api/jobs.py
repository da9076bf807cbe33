"""/v1/jobs: durable training and evaluation, with live progress."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from datetime import datetime
from functools import partial
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from pydantic import Field

from service import product
from service.http.api.resources import BodyRoute, File, Opening, Ours, PageShape, Shape, media_type_responses
from service.jobs.queue import Job, Priority, State
from service.requests.json_values import ShownObject
from service.requests.requests import JobRequest
from service.requests.roles import needs_role
from service.serving.application_state import workspace_from_request
from storage.control.api_keys_and_sessions import Role

router = APIRouter(route_class=BodyRoute, prefix="/v1/jobs", tags=["jobs"])
EVENT_POLL_S = 0.25


class JobShape(Shape):
    """A job; `progress` is the latest that its worker recorded, `error` is a problem document."""

    id: str
    kind: str
    state: State
    request: ShownObject
    progress: ShownObject | None = Field(
        examples=[
            {"step": "learn", "pass_number": 2, "n_passes": 3, "rows_done": 400000, "rows_per_s": 9e6, "eta_s": 1}
        ]
    )
    result: ShownObject | None
    error: ShownObject | None
    attempts: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    retry_of: str | None
    priority: Priority


@router.post("", name="submit", status_code=202, summary="Submit a job")
async def submit_job_endpoint(
    request: JobRequest,
    workspace: Ours,
    opening: Opening,
    response: Response,
    priority: Priority = "normal",
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> JobShape:
    """Submit a job that trains, evaluates, refreshes, or infers a schema. The same Idempotency-Key with the same body
    starts nothing new.
    """
    submission = partial(product.submit_job, workspace, request, idempotency_key, is_remote=True, priority=priority)
    job, _ = await opening.of_job(request).run(submission)
    return _accepted(job, response)


@router.get("", name="list_all", summary="List jobs")
def list_jobs_endpoint(
    workspace: Ours,
    state: State | None = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    cursor: str | None = None,
) -> PageShape[JobShape]:
    """List the jobs, newest first."""
    return PageShape[JobShape].model_validate(
        product.job_queue(workspace).list(state=state, limit=limit, cursor=cursor)
    )


@router.get("/{job_id}", name="show", summary="Show a job")
def show_job_endpoint(job_id: str, workspace: Ours) -> JobShape:
    """Show a job: state, pass k of n, rows done, rows/s, ETA, result or error."""
    return JobShape.model_validate(product.job_queue(workspace).get(job_id))


@router.post("/{job_id}/cancel", name="cancel", summary="Cancel a job")
def cancel_job_endpoint(job_id: str, workspace: Ours) -> JobShape:
    """Cancel a job. A queued one never starts; a running one stops between two chunks. Cancelling twice is not an
    error.
    """
    return JobShape.model_validate(product.cancel_job(workspace, job_id))


@router.post("/{job_id}/retry", name="retry", status_code=202, summary="Run a failed or cancelled job again")
def retry_job_endpoint(job_id: str, workspace: Ours, response: Response) -> JobShape:
    """Submit a new job with the same request. Finished passes are taken from the stored statistics of the data set."""
    return _accepted(product.retry_job(workspace, job_id), response)


async def find_job_or_404(job_id: str, request: Request) -> Job:
    """Find the job before its stream begins, so that an unknown id is a 404 and not a broken stream."""
    return await anyio.to_thread.run_sync(product.job_queue(workspace_from_request(request)).get, job_id)


@router.get("/{job_id}/events", name="events", summary="Follow a job", response_class=EventSourceResponse)
async def job_events_endpoint(
    job_id: str,
    request: Request,
    job: Annotated[Job, Depends(find_job_or_404)],
    last_event_id: Annotated[str | None, Header(max_length=64)] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Stream a job as server-sent events: `job` on every change, and `end` with the final job. The event id identifies
    the state of the job, so a client that reconnects with Last-Event-ID gets no event twice and misses no current
    state.
    """
    queue = product.job_queue(workspace_from_request(request))
    previous = last_event_id
    while True:
        shape = JobShape.model_validate(job)
        known = hashlib.sha256(shape.model_dump_json().encode()).hexdigest()[:16]
        if job.is_finished:
            yield ServerSentEvent(data=shape, event="end", id=known)
            return
        if known != previous:
            yield ServerSentEvent(data=shape, event="job", id=known)
        if request.app.state.not_ready is not None:
            return
        previous = known
        await asyncio.sleep(EVENT_POLL_S)
        job = await anyio.to_thread.run_sync(queue.get, job_id)


@router.get(
    "/{job_id}/log",
    name="log",
    summary="Read a job's log",
    response_class=Response,
    responses=media_type_responses("application/x-ndjson"),
)
def job_log_endpoint(job_id: str, workspace: Ours) -> Response:
    """Return the log of the job's worker so far, as JSON lines: steps, passes, warnings, the traceback of a failure."""
    return Response(product.read_job_log(workspace, job_id), media_type="application/x-ndjson")


@needs_role(Role.TRAIN)
@router.get(
    "/{job_id}/output",
    name="output",
    summary="Download the rows that a job has written",
    response_class=File,
    responses=media_type_responses("application/vnd.apache.parquet"),
)
def job_output_endpoint(job_id: str, workspace: Ours) -> File:
    """Download the Parquet file of a score or impute job that has succeeded; it is kept as long as the job is listed."""
    path = product.job_output_path(workspace, job_id)
    return File(path, media_type="application/vnd.apache.parquet", filename=path.name)


def _accepted(job: Job, response: Response) -> JobShape:
    response.headers["location"] = f"/v1/jobs/{job.id}"
    return JobShape.model_validate(job)
