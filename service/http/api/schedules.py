"""/v1/schedules: jobs that are submitted again and again."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Response
from pydantic import Field

from service import product
from service.http.api.jobs import JobShape
from service.http.api.resources import Limit, Opening, Ours, PageShape, Shape
from service.requests.json_values import ShownObject
from service.requests.requests import Missed, ScheduleChange, ScheduleRequest

router = APIRouter(prefix="/v1/schedules", tags=["schedules"])


class RunShape(Shape):
    """What came of one time that a schedule was due."""

    due_at: datetime
    outcome: Literal["on_time", "caught_up", "skipped", "refused", "asked"]
    job_id: str | None
    reason: str
    decided_at: datetime | None


class ScheduleShape(Shape):
    """A schedule; `next_due_at` is null while it is paused."""

    name: str
    cron: str = Field(examples=["30 2 * * *"])
    timezone: str = Field(examples=["Europe/Berlin"])
    missed: Missed
    job: ShownObject
    is_paused: bool
    next_due_at: datetime | None
    last_run: RunShape | None
    created_at: datetime
    changed_at: datetime


@router.post("", name="create", status_code=201, summary="Create a schedule")
def create_schedule_endpoint(request: ScheduleRequest, workspace: Ours, response: Response) -> ScheduleShape:
    """Repeating the same definition changes nothing."""
    schedule = product.create_schedule(workspace, request, is_remote=True)
    response.headers["location"] = f"/v1/schedules/{schedule.name}"
    return ScheduleShape.model_validate(schedule)


@router.get("", name="list_all", summary="List schedules")
def list_schedules_endpoint(workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[ScheduleShape]:
    """By name, each with its newest run."""
    return PageShape[ScheduleShape].model_validate(product.list_schedules(workspace, limit, cursor))


@router.get("/{name}", name="show", summary="Show a schedule")
def show_schedule_endpoint(name: str, workspace: Ours) -> ScheduleShape:
    """When it is due next, and what came of it last."""
    return ScheduleShape.model_validate(product.get_schedule(workspace, name))


@router.patch("/{name}", name="change", summary="Change a schedule")
def change_schedule_endpoint(name: str, request: ScheduleChange, workspace: Ours) -> ScheduleShape:
    """What is not given stays. It is next due by its new times; nothing counts as missed."""
    return ScheduleShape.model_validate(product.change_schedule(workspace, name, request, is_remote=True))


@router.delete("/{name}", name="delete", status_code=204, summary="Delete a schedule")
def delete_schedule_endpoint(name: str, workspace: Ours) -> None:
    """Its jobs and models stay."""
    product.delete_schedule(workspace, name)


@router.get("/{name}/runs", name="runs", summary="List the runs of a schedule")
def list_schedule_runs_endpoint(
    name: str, workspace: Ours, limit: Limit = 100, cursor: str | None = None
) -> PageShape[RunShape]:
    """Newest first, also those that were skipped or refused; the newest 1,000 are kept."""
    return PageShape[RunShape].model_validate(product.list_schedule_runs(workspace, name, limit, cursor))


@router.post("/{name}/pause", name="pause", summary="Pause a schedule")
def pause_schedule_endpoint(name: str, workspace: Ours) -> ScheduleShape:
    """A job that is queued or running goes on. Pausing twice is no error."""
    return ScheduleShape.model_validate(product.pause_schedule(workspace, name))


@router.post("/{name}/resume", name="resume", summary="Resume a schedule")
def resume_schedule_endpoint(name: str, workspace: Ours) -> ScheduleShape:
    """What passed in the pause was not missed."""
    return ScheduleShape.model_validate(product.resume_schedule(workspace, name))


@router.post("/{name}/run", name="run", status_code=202, summary="Run a schedule now")
async def run_schedule_endpoint(
    name: str,
    workspace: Ours,
    opening: Opening,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> JobShape:
    """Also a paused one; its times stay as they are. The same Idempotency-Key starts nothing new."""
    job = await opening.here.run(product.run_schedule, workspace, name, idempotency_key)
    response.headers["location"] = f"/v1/jobs/{job.id}"
    return JobShape.model_validate(job)
