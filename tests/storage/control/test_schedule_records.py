"""Schedules, their runs, decisions and retention: on SQLite and on PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from storage.control import migrations
from storage.control import schedule_records as schedules
from storage.control import tables as control_tables
from storage.control.control import open_control
from storage.errors import Conflict, InvalidName, NotFound
from storage.models.aliases import alias_history, roll_back, set_alias, versions_by_alias
from storage.models.model_versions import CHAMPION, list_model_versions
from storage.models.promotions import Promotion, list_promotions, record_promotion
from storage.models.removal import delete_unretained_versions, get_version_retention, set_version_retention
from tests.storage.conftest import new_version, statements

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def hourly(name="hourly", **changes):
    values = {"cron": "0 * * * *", "timezone": "UTC", "missed": "catch_up", "job": {"kind": "train"}}
    return schedules.Schedule(name, **(values | {"next_due_at": NOON} | changes))


def test_a_schedule_survives_as_it_was_made(control):
    made = schedules.create_schedule(control, hourly(job={"kind": "refresh", "train": {"parameters": {"k": 2}}}))
    assert made.next_due_at == NOON and made.created_at == made.changed_at and made.last_run is None
    assert schedules.get_schedule(control, "hourly") == made
    assert schedules.create_schedule(control, replace(made, next_due_at=NOON + HOUR)) == made  # the same definition
    with pytest.raises(Conflict, match=r"already exists with another definition. Change it, or use a new name"):
        schedules.create_schedule(control, hourly(missed="skip"))
    with pytest.raises(InvalidName, match="is not a valid name for"):
        schedules.create_schedule(control, hourly("Not a name"))
    with pytest.raises(NotFound, match="There is no"):
        schedules.get_schedule(control, "nothing\0")


def test_what_is_due_comes_longest_waiting_first_and_never_paused(control):
    for number in range(3):
        schedules.create_schedule(control, hourly(f"s{number}", next_due_at=NOON - number * HOUR))
    schedules.create_schedule(control, hourly("paused", is_paused=True, next_due_at=None))
    assert [schedule.name for schedule in schedules.due_schedules(control, NOON)] == ["s2", "s1", "s0"]
    assert schedules.due_schedules(control, NOON - 3 * HOUR) == ()
    assert len(schedules.active_schedules(control)) == 3


def test_the_first_decision_about_a_time_counts(control):
    schedule = schedules.create_schedule(control, hourly())
    runs = [schedules.Run(NOON, "on_time", f"job-{number}", "") for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        kept = list(pool.map(lambda run: schedules.record_schedule_run(control, schedule, run), runs))
    assert len({run.job_id for run in kept}) == 1 and schedules.has_schedule_run(control, schedule, NOON)
    schedules.record_schedule_run(control, schedule, schedules.Run(NOON + HOUR, "skipped", None, "told so"))
    page = schedules.list_runs_of_schedule(control, "hourly", limit=1)
    assert page.items[0].outcome == "skipped" and page.items[0].decided_at is not None
    assert schedules.list_runs_of_schedule(control, "hourly", 1, page.next_cursor).items == (kept[0],)
    assert schedules.get_schedule(control, "hourly").last_run == page.items[0]
    assert schedules.list_schedules(control).items[0].last_run == page.items[0]
    assert schedules.last_scheduled_job(control, schedule) == kept[0].job_id


def test_a_worker_moves_on_only_what_nobody_has_changed(control):
    read = schedules.create_schedule(control, hourly())
    changed = schedules.change_schedule(control, read, replace(read, cron="30 * * * *", next_due_at=NOON + HOUR / 2))
    schedules.set_schedule_next_due(control, read, NOON + 9 * HOUR)  # by a worker that has read it before
    assert schedules.get_schedule(control, "hourly") == changed
    schedules.set_schedule_next_due(control, changed, NOON + HOUR)
    assert schedules.get_schedule(control, "hourly").next_due_at == NOON + HOUR
    with pytest.raises(
        Conflict, match=r"was changed by someone else in the meantime. Read it again, then repeat the change"
    ):
        schedules.change_schedule(control, read, hourly(cron="1 1 * * *"))


def test_a_schedule_that_is_made_again_is_another_one(control):
    first = schedules.create_schedule(control, hourly())
    schedules.record_schedule_run(control, first, schedules.Run(NOON, "on_time", "job-1", ""))
    schedules.delete_schedule(control, "hourly")
    second = schedules.create_schedule(control, hourly())
    assert second.id != first.id and second.last_run is None and not schedules.has_schedule_run(control, second, NOON)
    with pytest.raises(
        Conflict, match=r"was changed by someone else in the meantime. Read it again, then repeat the change"
    ):
        schedules.change_schedule(control, first, hourly(cron="1 1 * * *"))


def test_the_oldest_runs_are_forgotten(control, monkeypatch):
    assert schedules.KEPT_RUNS == 1000
    monkeypatch.setattr(schedules, "KEPT_RUNS", 5)
    schedule, other = schedules.create_schedule(control, hourly()), schedules.create_schedule(control, hourly("other"))
    for number in range(12):
        run = schedules.Run(NOON + number * HOUR, "on_time", f"job-{number}", "")
        schedules.record_schedule_run(control, schedule, run)
        schedules.record_schedule_run(control, other, schedules.Run(NOON + number * HOUR, "on_time", None, ""))
    left = [run.job_id for run in schedules.list_runs_of_schedule(control, "hourly").items]
    assert left == [f"job-{n}" for n in (11, 10, 9, 8, 7)]


def test_many_schedules_are_listed_with_as_many_statements_as_one(control):
    n_statements = set()
    for number in range(30):
        schedule = schedules.create_schedule(control, hourly(f"s{number:03d}"))
        schedules.record_schedule_run(control, schedule, schedules.Run(NOON, "on_time", f"job-{number}", ""))
        with statements(control) as of_list:
            assert len(schedules.list_schedules(control, 1000).items) == number + 1
        n_statements.add(len(of_list))
    assert len(n_statements) == 1 and n_statements.pop() > 0


# Decisions


def decision(challenger, champion, is_promoted=True, job="job-1"):
    metrics = {"log_loss": 0.3, "ece": float("nan")}
    rule = {"margin": 0.1}
    return Promotion("adult", CHAMPION, challenger, champion, is_promoted, "why", rule, metrics, None, {}, job)


def test_a_decision_and_its_move_are_one(control):
    for _ in range(2):
        new_version(control)
    made = record_promotion(control, decision(1, None))
    assert versions_by_alias(control, "adult") == {CHAMPION: 1}
    assert made.challenger_metrics == {"log_loss": 0.3, "ece": None}
    kept = record_promotion(control, decision(2, 1, is_promoted=False, job="job-2"))
    assert versions_by_alias(control, "adult") == {CHAMPION: 1}
    with pytest.raises(Conflict, match="was moved in the meantime"):
        record_promotion(control, decision(2, None, job="job-3"))
    with pytest.raises(NotFound, match="There is no"):
        record_promotion(control, decision(9, 1, job="job-4"))
    promoted = record_promotion(control, decision(2, 1, job="job-5"))
    assert list_promotions(control, "adult").items == (promoted, kept, made)
    assert alias_history(control, "adult").items[0].reason == "why"
    assert roll_back(control, "adult", CHAMPION) == 1


def test_a_decision_that_is_repeated_moves_nothing_again(control):
    for _ in range(2):
        new_version(control)
    made = record_promotion(control, decision(1, None))
    set_alias(control, "adult", CHAMPION, 2)  # by a person, before the job is resumed
    assert record_promotion(control, decision(1, None)) == made
    assert versions_by_alias(control, "adult") == {CHAMPION: 2}


def test_retention_keeps_aliased_versions(control):
    for _ in range(5):
        new_version(control)
    set_alias(control, "adult", CHAMPION, 2)
    assert get_version_retention(control, "adult") is None
    set_version_retention(control, "adult", 2)
    assert get_version_retention(control, "adult") == 2
    assert [version.version for version in delete_unretained_versions(control, "adult", 2)] == [3, 1]
    assert [version.version for version in list_model_versions(control, "adult").items] == [5, 4, 2]
    set_version_retention(control, "adult", None)
    assert get_version_retention(control, "adult") is None
    for use, *value in ((get_version_retention,), (set_version_retention, 1)):
        with pytest.raises(NotFound, match="no model 'nothing'"):
            use(control, "nothing", *value)


def test_a_database_of_the_first_release_is_brought_up_to_date(layout, monkeypatch):
    with monkeypatch.context() as before:
        before.setattr(migrations, "create_tables", lambda connection: migrations.migrate_tables(connection, "0001"))
        with open_control(layout.control_url) as control:
            assert "schedules" not in sa.inspect(control.engine).get_table_names()
            with control.writing() as connection:
                row = {"name": "adult", "last_version": 3, "created_at": datetime.now(UTC)}
                connection.execute(sa.insert(control_tables.models).values(**row))
    with open_control(layout.control_url) as control:
        assert get_version_retention(control, "adult") is None
        set_version_retention(control, "adult", 3)
        assert get_version_retention(control, "adult") == 3
        schedules.create_schedule(control, hourly())
