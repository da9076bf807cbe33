"""Schedules: jobs that are submitted again and again. The scheduler of a worker submits what is due."""

from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from service.jobs.cron import Cron
from service.jobs.queue import Job
from service.product.submission.prechecks import check_request
from service.product.submission.submitting import submit
from service.requests.requests import ScheduleChange, ScheduledRequest, ScheduleRequest
from service.workspace import Workspace, on_control
from storage.control import schedules
from storage.control.schedules import Run, Schedule
from storage.control.tables import now

REQUESTS: TypeAdapter[Any] = TypeAdapter(ScheduledRequest)

get_schedule = on_control(schedules.get_schedule)
list_schedules = on_control(schedules.list_schedules)
list_schedule_runs = on_control(schedules.list_runs)
delete_schedule = on_control(schedules.delete_schedule)


def create_schedule(workspace: Workspace, request: ScheduleRequest, *, is_remote: bool = False) -> Schedule:
    """Store a schedule after checking its jobs; InvalidRequest, NotFound, InvalidParameter, OutsideRoots or Conflict."""
    cron = Cron(request.cron, request.timezone)
    check_request(workspace, request.job, is_remote=is_remote)
    schedule = Schedule(
        name=request.name,
        cron=request.cron,
        timezone=request.timezone,
        missed=request.missed,
        job=request.job.model_dump(mode="json"),
        next_due_at=cron.after(now()),
    )
    return schedules.create_schedule(workspace.control, schedule)


def change_schedule(workspace: Workspace, name: str, change: ScheduleChange, *, is_remote: bool = False) -> Schedule:
    """Replace parts of a schedule; it is next due by its new times, and nothing counts as missed."""
    before = get_schedule(workspace, name)
    given = {field: value for field, value in change.model_dump(mode="json").items() if value is not None}
    if change.job is not None:
        check_request(workspace, change.job, is_remote=is_remote)
    after = replace(before, **given)
    cron = Cron(after.cron, after.timezone)
    after = replace(after, next_due_at=None if after.is_paused else cron.after(now()))
    return schedules.change_schedule(workspace.control, before, after)


def pause_schedule(workspace: Workspace, name: str) -> Schedule:
    """Stop being due; pausing twice is no error."""
    return _set_paused(workspace, name, True)


def resume_schedule(workspace: Workspace, name: str) -> Schedule:
    """Be due again from now on; what passed in the pause was not missed."""
    return _set_paused(workspace, name, False)


def _set_paused(workspace: Workspace, name: str, is_paused: bool) -> Schedule:
    before = get_schedule(workspace, name)
    if before.is_paused == is_paused:
        return before
    due = None if is_paused else Cron(before.cron, before.timezone).after(now())
    after = replace(before, is_paused=is_paused, next_due_at=due)
    return schedules.change_schedule(workspace.control, before, after)


def run_schedule(workspace: Workspace, name: str, idempotency_key: str | None = None) -> Job:
    """Submit the job of a schedule at once, also of a paused one; its times stay as they are."""
    schedule, moment = get_schedule(workspace, name), now()
    key = f"schedule {schedule.id} asked {idempotency_key or moment.isoformat()}"
    job, is_new = submit_scheduled(workspace, schedule, key)
    if is_new:
        run = Run(moment, "asked", job.id, "somebody asked for it")
        schedules.record_run(workspace.control, schedule, run)
    return job


def submit_scheduled(workspace: Workspace, schedule: Schedule, idempotency_key: str) -> tuple[Job, bool]:
    """Queue the job of a schedule; within the data roots, as it may have come over REST."""
    request = REQUESTS.validate_python(dict(schedule.job))
    return submit(workspace, request, idempotency_key, is_remote=True)
