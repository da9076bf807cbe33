"""Schedules: recurring jobs, submitted when due by a thread of every worker.

Any number of workers may do so at once, be killed at any point, or see their clocks jump: the idempotency key of a job is
its schedule and the time it was due, so that the same run never starts twice, and a schedule moves on only after its
run is kept, so that none is forgotten.
"""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic, sleep
from typing import Any

import structlog
from pydantic import TypeAdapter

from service.jobs.cron import Cron
from service.jobs.queue import Job, job_queue
from service.jobs.worker_leases import AWAY
from service.product.audit import delete_old_audit_lines
from service.product.submission.prechecks import check_job_files, check_job_request
from service.product.submission.submitting import delete_old_jobs, submit_job
from service.requests.problems import Conflict, is_expected_error
from service.requests.recorded import current_request
from service.requests.requests import ScheduleChange, ScheduledRequest, ScheduleRequest
from service.workspace import Workspace, bind_control_to_workspace
from storage.control import schedule_records, tables
from storage.control.control import empty_write_ahead_log
from storage.control.schedule_records import Check, Outcome, Run, Schedule
from storage.control.tables import utc_now
from storage.errors import NotFound

TICK_S = 1.0
ON_TIME = timedelta(minutes=1)  # a run that is submitted later than this was missed
FORGET_S = 3600.0
CLOCK_STEP_S = 2.0

Clock = Callable[[], datetime]
REQUESTS: TypeAdapter[Any] = TypeAdapter(ScheduledRequest)
get_schedule = bind_control_to_workspace(schedule_records.get_schedule)
list_schedules = bind_control_to_workspace(schedule_records.list_schedules)
list_schedule_runs = bind_control_to_workspace(schedule_records.list_runs_of_schedule)
delete_schedule = bind_control_to_workspace(schedule_records.delete_schedule)


class Scheduler:
    """Submits due jobs and deletes old ones; `clock` returns the current timezone-aware time."""

    def __init__(self, workspace: Workspace, clock: Clock = tables.utc_now) -> None:
        self.workspace, self.clock = workspace, clock
        self.log = structlog.get_logger("schedules")
        self._ahead: float | None = None
        self._stepped_at = self._forgot_at = float("-inf")

    def start(self) -> threading.Thread:
        """Run `tick` on a separate thread for the life of the process."""
        thread = threading.Thread(target=self._run, name="schedules", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        is_away = False
        while True:
            try:
                self.tick()
                self.forget_old_jobs()
                is_away = False
            except AWAY as error:  # the next tick finds everything still due
                if not is_away:
                    self.log.warning("schedules cannot be read", reason=str(error))
                is_away = True
            except Exception:
                self.log.exception("schedules cannot be read")
            sleep(TICK_S)

    def tick(self) -> None:
        """Submit all jobs that are due now."""
        now = self.clock()
        if self._is_set_back(now):
            self._realign(now)
        for schedule in schedule_records.due_schedules(self.workspace.control, now):
            try:
                self._fire(schedule, now)
            except AWAY as error:
                self.log.warning("a schedule waits and stays due", schedule=schedule.name, reason=str(error))
                return
            except Exception:
                self.log.exception("a schedule could not be run and stays due", schedule=schedule.name)

    def forget_old_jobs(self) -> None:
        """Remove old jobs and audit lines once an hour, but not within an hour of the start or of a clock change: a machine
        may start with a wrong clock, and a change may be reverted.
        """
        if monotonic() - max(self._forgot_at, self._stepped_at) < FORGET_S:
            return
        self._forgot_at = monotonic()
        delete_old_audit_lines(self.workspace)
        if n_forgotten := delete_old_jobs(self.workspace):
            self.log.info("old jobs forgotten", jobs=n_forgotten)
        empty_write_ahead_log(self.workspace.control)  # in which jobs and schemas that are gone still stand

    def _is_set_back(self, now: datetime) -> bool:
        """Compare the clock with the monotonic clock; the first tick counts as set back, since nothing is known."""
        before, self._ahead = self._ahead, now.timestamp() - monotonic()
        if before is None:
            self._stepped_at = monotonic()
            return True
        step_s = self._ahead - before
        if abs(step_s) > CLOCK_STEP_S:
            self._stepped_at = monotonic()
            self.log.warning("the clock was set", by_s=round(step_s))
        return step_s < -CLOCK_STEP_S

    def _realign(self, now: datetime) -> None:
        """Recompute due times that only a wrong clock or old time zone rules put too far in the future."""
        for schedule in schedule_records.active_schedules(self.workspace.control):
            after = Cron(schedule.cron, schedule.timezone).after(now)
            if schedule.next_due_at is not None and schedule.next_due_at > after:
                self.log.warning("the clock was set back, or a time zone changed", schedule=schedule.name)
                schedule_records.set_schedule_next_due(self.workspace.control, schedule, after)

    def _fire(self, schedule: Schedule, now: datetime) -> None:
        assert schedule.next_due_at is not None
        cron = Cron(schedule.cron, schedule.timezone)
        due = max(cron.latest(now), schedule.next_due_at)
        if not schedule_records.has_schedule_run(self.workspace.control, schedule, due):
            run = self._run_of(schedule, due, now)
            if run is None:
                return
            schedule_records.record_schedule_run(self.workspace.control, schedule, run)
            self.log.info("schedule was due", schedule=schedule.name, due=str(due), outcome=run.outcome, job=run.job_id)
        schedule_records.set_schedule_next_due(self.workspace.control, schedule, cron.after(now))

    def _run_of(self, schedule: Schedule, due: datetime, now: datetime) -> Run | None:
        """Submit or skip a due run; None if it must wait for the previous run."""
        late = now - due
        if self._is_busy(schedule):
            if schedule.missed == "catch_up":
                return None
            return Run(due, "skipped", None, "the previous run was still running")
        outcome: Outcome = "on_time" if late <= ON_TIME else "caught_up"
        if outcome == "caught_up" and schedule.missed == "skip":
            return Run(due, "skipped", None, f"missed by {timedelta(seconds=int(late.total_seconds()))}")
        try:
            job, _ = submit_scheduled(self.workspace, schedule, f"schedule {schedule.id} due {due.isoformat()}")
        except Conflict as error:  # submitted by a worker that died before it could say so, and changed since
            return Run(due, outcome, str(error.fields["job"]), "")
        except AWAY:
            raise
        except Exception as error:
            if not is_expected_error(error):
                raise
            return Run(due, "refused", None, str(error))
        reason = "" if outcome == "on_time" else f"late by {timedelta(seconds=int(late.total_seconds()))}"
        return Run(due, outcome, job.id, reason)

    def _is_busy(self, schedule: Schedule) -> bool:
        """Return whether the newest job of the schedule is unfinished."""
        job_id = schedule_records.last_scheduled_job(self.workspace.control, schedule)
        try:
            return job_id is not None and not job_queue(self.workspace).get(job_id).is_finished
        except NotFound:
            return False


def create_schedule(
    workspace: Workspace, request: ScheduleRequest, *, is_remote: bool = False, check: Check | None = None
) -> Schedule:
    """Store a schedule after checking its jobs.

    Raises InvalidRequest, NotFound, InvalidParameter, OutsideRoots, SourceError or Conflict, and what `check` raises.
    """
    cron = Cron(request.cron, request.timezone)
    check_job_request(workspace, request.job, is_remote=is_remote)
    check_job_files(workspace, request.job, is_remote=is_remote)
    schedule = Schedule(
        name=request.name,
        cron=request.cron,
        timezone=request.timezone,
        missed=request.missed,
        job=request.job.model_dump(mode="json"),
        next_due_at=cron.after(utc_now()),
    )
    return schedule_records.create_schedule(workspace.control, schedule, check)


def change_schedule(
    workspace: Workspace, name: str, change: ScheduleChange, *, is_remote: bool = False, check: Check | None = None
) -> Schedule:
    """Change parts of a schedule; it is next due by its new times, and nothing counts as missed."""
    before = get_schedule(workspace, name)
    changes = {field: value for field, value in change.model_dump(mode="json").items() if value is not None}
    if change.job is not None:
        check_job_request(workspace, change.job, is_remote=is_remote)
        check_job_files(workspace, change.job, is_remote=is_remote)
    after = replace(before, **changes)
    cron = Cron(after.cron, after.timezone)
    after = replace(after, next_due_at=None if after.is_paused else cron.after(utc_now()))
    return schedule_records.change_schedule(workspace.control, before, after, check)


def pause_schedule(workspace: Workspace, name: str, check: Check | None = None) -> Schedule:
    """Pause a schedule; pausing twice is not an error."""
    return _set_paused(workspace, name, True, check)


def resume_schedule(workspace: Workspace, name: str, check: Check | None = None) -> Schedule:
    """Be due again from now on; times that passed in the pause were not missed."""
    return _set_paused(workspace, name, False, check)


def _set_paused(workspace: Workspace, name: str, is_paused: bool, check: Check | None) -> Schedule:
    before = get_schedule(workspace, name)
    if before.is_paused == is_paused:
        if check is not None:
            check(before)
        return before
    due = None if is_paused else Cron(before.cron, before.timezone).after(utc_now())
    after = replace(before, is_paused=is_paused, next_due_at=due)
    return schedule_records.change_schedule(workspace.control, before, after, check)


def run_schedule(workspace: Workspace, name: str, idempotency_key: str | None = None) -> Job:
    """Submit the job of a schedule at once, even if it is paused; its times do not change."""
    schedule, moment = get_schedule(workspace, name), utc_now()
    key = f"schedule {schedule.id} asked {idempotency_key or moment.isoformat()}"
    job, is_new = submit_scheduled(workspace, schedule, key)
    if is_new:
        run = Run(moment, "asked", job.id, "requested manually")
        schedule_records.record_schedule_run(workspace.control, schedule, run)
    return job


def submit_scheduled(workspace: Workspace, schedule: Schedule, idempotency_key: str) -> tuple[Job, bool]:
    """Queue the job of a schedule; limited to the data roots, since it may have come over REST."""
    request = REQUESTS.validate_python(current_request(schedule.job))
    return submit_job(workspace, request, idempotency_key, is_remote=True)
