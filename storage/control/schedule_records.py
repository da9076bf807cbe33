"""Schedules: the job of each, its cron times, its next due time, and its runs."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.control.audit import record_act
from storage.control.control import Control
from storage.control.paging import DEFAULT_LIMIT, Page, page_of_rows
from storage.errors import Conflict, NotFound
from storage.files.workspace_layout import checked_resource_name, require_valid_name

_SCHEDULES, _RUNS = tables.schedules, tables.runs
KEPT_RUNS = 1000  # of each schedule; the jobs themselves are kept apart

Missed = Literal["catch_up", "skip"]
Outcome = Literal["on_time", "caught_up", "skipped", "refused", "asked"]


@dataclass(frozen=True)
class Run:
    """Outcome of one due time of a schedule, or of a run by request."""

    due_at: datetime  # aware, UTC; with the schedule it identifies the run
    outcome: Outcome  # submitted on time, later, or by request; left out as told; or refused when it was submitted
    job_id: str | None
    reason: str
    decided_at: datetime | None = None  # aware, UTC; set by `record_schedule_run`


@dataclass(frozen=True)
class Schedule:
    """A job (kind and parameters) to submit repeatedly."""

    name: str
    cron: str  # when, in the time zone; storage knows nothing of their meaning
    timezone: str
    missed: Missed  # whether times that passed unseen are caught up (once) or skipped
    job: Mapping[str, object]
    is_paused: bool = False
    next_due_at: datetime | None = None  # aware, UTC; None while paused
    id: str = ""  # of this schedule and no later one of its name; set when it is created
    created_at: datetime | None = None  # aware, UTC; set here
    changed_at: datetime | None = None
    last_run: Run | None = None


Check = Callable[["Schedule | None"], None]
"""Inspects the stored schedule, or None, within the transaction, and raises if nothing may change."""


def create_schedule(control: Control, schedule: Schedule, check: Check | None = None) -> Schedule:
    """Store a schedule, and return it as stored; repeated, nothing changes.

    Raises InvalidName, Conflict with another definition, and what `check` raises.
    """
    checked_resource_name("schedule", schedule.name)
    now = tables.utc_now()
    values = _values(schedule) | {"id": secrets.token_hex(8), "created_at": now, "changed_at": now}
    with control.writing() as connection:
        row = _row_of(connection, schedule.name)
        if check is not None:
            check(None if row is None else _schedule(row, {}))
        if row is None:
            connection.execute(sa.insert(_SCHEDULES).values(**values))
            record_act(connection, "schedule created", schedule.name)
            return _existing(connection, schedule.name)
        stored = _schedule(row, _last_runs(connection, [row.id]))
    if _definition(stored) != _definition(schedule):
        reason = "already exists with another definition. Change it, or use a new name."
        raise Conflict("schedule", schedule.name, reason)
    return stored


def get_schedule(control: Control, name: str) -> Schedule:
    """Return the schedule of a name; NotFound if it does not exist."""
    with control.reading() as connection:
        return _existing(connection, name)


def list_schedules(control: Control, limit: int = DEFAULT_LIMIT, cursor: str | None = None) -> Page[Schedule]:
    """Return a page of schedules by name; InvalidCursor if the cursor is from another list."""
    with control.reading() as connection:
        rows = page_of_rows(connection, sa.select(_SCHEDULES), _SCHEDULES.c.name, limit, cursor)
        last = _last_runs(connection, [row.id for row in rows.items])
    return rows.of(lambda row: _schedule(row, last))


def active_schedules(control: Control) -> tuple[Schedule, ...]:
    """Return all schedules that are not paused, by name."""
    query = sa.select(_SCHEDULES).where(_SCHEDULES.c.next_due_at.is_not(None)).order_by(_SCHEDULES.c.name)
    return _several(control, query)


def due_schedules(control: Control, now: datetime) -> tuple[Schedule, ...]:
    """Return the schedules that are due, the longest waiting first."""
    query = sa.select(_SCHEDULES).where(_SCHEDULES.c.next_due_at <= now).order_by(_SCHEDULES.c.next_due_at)
    return _several(control, query)


def change_schedule(control: Control, before: Schedule, after: Schedule, check: Check | None = None) -> Schedule:
    """Replace the definition of a schedule; its identity and its runs stay.

    Raises NotFound, Conflict if it changed since `before`, and what `check` raises.
    """
    with control.writing() as connection:
        stored = _existing(connection, before.name)
        if check is not None:
            check(stored)
        if (stored.id, stored.changed_at) != (before.id, before.changed_at):
            reason = "was changed by someone else in the meantime. Read it again, then repeat the change."
            raise Conflict("schedule", before.name, reason)
        values = _values(after) | {"name": before.name, "changed_at": tables.utc_now()}
        connection.execute(sa.update(_SCHEDULES).where(_SCHEDULES.c.name == before.name).values(**values))
        record_act(connection, "schedule changed", before.name, is_paused=after.is_paused)
        return _existing(connection, before.name)


def delete_schedule(control: Control, name: str, check: Check | None = None) -> Schedule:
    """Delete a schedule and its runs; jobs and models stay. Raises NotFound, and what `check` raises."""
    with control.writing() as connection:
        schedule = _existing(connection, name)
        if check is not None:
            check(schedule)
        connection.execute(sa.delete(_RUNS).where(_RUNS.c.schedule == schedule.id))
        connection.execute(sa.delete(_SCHEDULES).where(_SCHEDULES.c.id == schedule.id))
        record_act(connection, "schedule deleted", name)
    return schedule


def has_schedule_run(control: Control, schedule: Schedule, due_at: datetime) -> bool:
    """Return whether the outcome of that due time is already recorded."""
    query = sa.select(_RUNS.c.id).where(_RUNS.c.schedule == schedule.id, _RUNS.c.due_at == due_at)
    with control.reading() as connection:
        return connection.execute(query).one_or_none() is not None


def last_scheduled_job(control: Control, schedule: Schedule) -> str | None:
    """Return the newest job that a schedule has submitted, or None."""
    submitted = sa.select(_RUNS.c.job_id).where(_RUNS.c.schedule == schedule.id, _RUNS.c.job_id.is_not(None))
    with control.reading() as connection:
        job_id: str | None = connection.execute(submitted.order_by(_RUNS.c.id.desc()).limit(1)).scalar_one_or_none()
    return job_id


def record_schedule_run(control: Control, schedule: Schedule, run: Run) -> Run:
    """Record the outcome of a run and return it as stored; for the same due time, the first recorded outcome counts."""
    with control.writing() as connection:
        here = (_RUNS.c.schedule == schedule.id) & (_RUNS.c.due_at == run.due_at)
        row = connection.execute(sa.select(_RUNS).where(here)).one_or_none()
        if row is None:
            values = vars(run) | {"schedule": schedule.id, "decided_at": tables.utc_now()}
            connection.execute(sa.insert(_RUNS).values(**values))
            _forget_old_runs(connection, schedule.id)
            row = connection.execute(sa.select(_RUNS).where(here)).one()
    return _run(row)


def set_schedule_next_due(control: Control, schedule: Schedule, next_due_at: datetime) -> None:
    """Set the next due time, unless the schedule was changed, or advanced by another worker, since it was read."""
    chosen = (_SCHEDULES.c.id == schedule.id) & (_SCHEDULES.c.next_due_at == schedule.next_due_at)
    with control.writing() as connection:
        connection.execute(sa.update(_SCHEDULES).where(chosen).values(next_due_at=next_due_at))


def list_runs_of_schedule(
    control: Control, name: str, limit: int = DEFAULT_LIMIT, cursor: str | None = None
) -> Page[Run]:
    """Return a page of a schedule's runs, newest first; NotFound for an unknown schedule, InvalidCursor."""
    with control.reading() as connection:
        schedule = _existing(connection, name)
        query = sa.select(_RUNS).where(_RUNS.c.schedule == schedule.id)
        return page_of_rows(connection, query, _RUNS.c.id, limit, cursor, newest_first=True).of(_run)


def _several(control: Control, query: tables.Select) -> tuple[Schedule, ...]:
    with control.reading() as connection:
        rows = connection.execute(query).all()
        last = _last_runs(connection, [row.id for row in rows])
    return tuple(_schedule(row, last) for row in rows)


def _row_of(connection: Connection, name: str) -> tables.Row | None:
    return connection.execute(sa.select(_SCHEDULES).where(_SCHEDULES.c.name == name)).one_or_none()


def _existing(connection: Connection, name: str) -> Schedule:
    row = _row_of(connection, require_valid_name("schedule", name))
    if row is None:
        raise NotFound("schedule", name)
    return _schedule(row, _last_runs(connection, [row.id]))


def _last_runs(connection: Connection, ids: list[str]) -> dict[str, Run]:
    newest = sa.select(sa.func.max(_RUNS.c.id)).where(_RUNS.c.schedule.in_(ids)).group_by(_RUNS.c.schedule)
    rows = connection.execute(sa.select(_RUNS).where(_RUNS.c.id.in_(newest))).all() if ids else ()
    return {row.schedule: _run(row) for row in rows}


def _forget_old_runs(connection: Connection, schedule: str) -> None:
    of_it = sa.select(_RUNS.c.id).where(_RUNS.c.schedule == schedule)
    oldest = connection.execute(of_it.order_by(_RUNS.c.id.desc()).offset(KEPT_RUNS).limit(1)).scalar_one_or_none()
    if oldest is not None:
        connection.execute(sa.delete(_RUNS).where(_RUNS.c.schedule == schedule, _RUNS.c.id <= oldest))


def _definition(schedule: Schedule) -> tuple[object, ...]:
    # Through JSON, which is how it is stored: a tuple has become a list there.
    return schedule.cron, schedule.timezone, schedule.missed, json.loads(json.dumps(dict(schedule.job)))


def _values(schedule: Schedule) -> dict[str, object]:
    values = vars(schedule) | {"job": dict(schedule.job)}
    for ours in ("id", "created_at", "changed_at", "last_run"):
        del values[ours]
    return values


def _schedule(row: tables.Row, last: Mapping[str, Run]) -> Schedule:
    return Schedule(**row._mapping, last_run=last.get(row.id))


def _run(row: tables.Row) -> Run:
    values = dict(row._mapping)
    del values["id"], values["schedule"]
    return Run(**values)
