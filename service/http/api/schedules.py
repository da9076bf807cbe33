"""/v1/schedules: recurring jobs."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Header, Response
from pydantic import Field

from service import product
from service.http.api.jobs import JobShape
from service.http.api.preconditions import OnlyIf, Preconditions, schedule_tag
from service.http.api.resources import BodyRoute, Limit, Opening, Ours, PageShape, Shape
from service.requests.json_values import ShownObject
from service.requests.requests import Missed, ScheduleChange, ScheduleRequest
from storage.control.schedule_records import Schedule

router = APIRouter(route_class=BodyRoute, prefix="/v1/schedules", tags=["schedules"])


class RunShape(Shape):
    """Outcome of one due time of a schedule."""

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
async def create_schedule_endpoint(
    request: ScheduleRequest, workspace: Ours, opening: Opening, only_if: OnlyIf, response: Response
) -> ScheduleShape:
    """Create a schedule. Repeating the same definition changes nothing."""
    check = _check(only_if, request.name)
    create = partial(product.create_schedule, workspace, request, is_remote=True, check=check)
    schedule = await opening.of_job(request.job).run(create)
    response.headers["location"] = f"/v1/schedules/{schedule.name}"
    return _shown(schedule, response)


def _check(only_if: Preconditions, name: str) -> Callable[[Schedule | None], None]:
    def check(schedule: Schedule | None) -> None:
        only_if.check_is_new(f"Schedule {name!r}", exists=schedule is not None)
        only_if.check_matches(f"Schedule {name!r}", None if schedule is None else schedule_tag(schedule))

    return check


def _shown(schedule: Schedule, response: Response) -> ScheduleShape:
    response.headers["etag"] = schedule_tag(schedule)
    return ScheduleShape.model_validate(schedule)


@router.get("", name="list_all", summary="List schedules")
def list_schedules_endpoint(workspace: Ours, limit: Limit = 100, cursor: str | None = None) -> PageShape[ScheduleShape]:
    """List the schedules by name, each with its newest run."""
    return PageShape[ScheduleShape].model_validate(product.list_schedules(workspace, limit, cursor))


@router.get("/{name}", name="show", summary="Show a schedule")
def show_schedule_endpoint(name: str, workspace: Ours, response: Response) -> ScheduleShape:
    """Show when it is due next, and how its last run ended. The `ETag` changes with the definition, not with a run."""
    return _shown(product.get_schedule(workspace, name), response)


@router.patch("/{name}", name="change", summary="Change a schedule")
async def change_schedule_endpoint(
    name: str, request: ScheduleChange, workspace: Ours, opening: Opening, only_if: OnlyIf, response: Response
) -> ScheduleShape:
    """Fields that you leave out stay. It is next due by its new times; nothing counts as missed."""
    change = partial(product.change_schedule, workspace, name, request, is_remote=True, check=_check(only_if, name))
    return _shown(await opening.of_job(request.job).run(change), response)


@router.delete("/{name}", name="delete", status_code=204, summary="Delete a schedule")
def delete_schedule_endpoint(name: str, workspace: Ours, only_if: OnlyIf) -> None:
    """Delete a schedule. Its jobs and models stay."""
    product.delete_schedule(workspace, name, _check(only_if, name))


@router.get("/{name}/runs", name="runs", summary="List the runs of a schedule")
def list_schedule_runs_endpoint(
    name: str, workspace: Ours, limit: Limit = 100, cursor: str | None = None
) -> PageShape[RunShape]:
    """List the runs of a schedule, newest first, including skipped and refused ones; the newest 1,000 are kept."""
    return PageShape[RunShape].model_validate(product.list_schedule_runs(workspace, name, limit, cursor))


@router.post("/{name}/pause", name="pause", summary="Pause a schedule")
def pause_schedule_endpoint(name: str, workspace: Ours, only_if: OnlyIf, response: Response) -> ScheduleShape:
    """Pause a schedule. A queued or running job continues. Pausing twice is not an error."""
    return _shown(product.pause_schedule(workspace, name, _check(only_if, name)), response)


@router.post("/{name}/resume", name="resume", summary="Resume a schedule")
def resume_schedule_endpoint(name: str, workspace: Ours, only_if: OnlyIf, response: Response) -> ScheduleShape:
    """Times that passed in the pause were not missed."""
    return _shown(product.resume_schedule(workspace, name, _check(only_if, name)), response)


@router.post("/{name}/run", name="run", status_code=202, summary="Run a schedule now")
async def run_schedule_endpoint(
    name: str,
    workspace: Ours,
    opening: Opening,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> JobShape:
    """Submit the job of a schedule now, even if it is paused; its times do not change. The same Idempotency-Key starts
    nothing new.
    """
    job = await opening.here.run(product.run_schedule, workspace, name, idempotency_key)
    response.headers["location"] = f"/v1/jobs/{job.id}"
    return JobShape.model_validate(job)
