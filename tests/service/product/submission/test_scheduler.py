"""Schedules: due on time, caught up or skipped, never twice; and what the REST and command line say about them."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from unittest.mock import Mock

import pytest

from service import product
from service.product.submission.scheduler import Scheduler
from service.requests.problems import InvalidRequest
from service.requests.requests import ScheduleChange, ScheduleRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.control import schedule_records
from storage.errors import Conflict, ControlUnavailable, NotFound
from tests.processes import wait_for
from tests.service.asking import job_at_end, train_job
from tests.storage.conftest import statements
from tests.support.cli import on_a_line
from tests.support.http import problem
from tests.support.product import Clock, make_due

pytestmark = pytest.mark.usefixtures("weather_set")
NIGHT = datetime(2026, 6, 1, 0, 30, tzinfo=UTC)  # 02:30 in Berlin
DAY = timedelta(days=1)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock(NIGHT - DAY)
    monkeypatch.setattr("service.product.submission.scheduler.utc_now", clock)
    return clock


@pytest.fixture
def tick(workspace, clock):
    """Let it be so late, and a worker look for what is due."""
    scheduler = Scheduler(workspace, clock)

    def tick(now=None):
        clock.now = now or clock.now
        scheduler.tick()

    return tick


def refresh(**changes):
    train = {"dataset": "weather", "learner": "nb", "model": "weather"}
    return {"kind": "refresh", "train": train, "promotion": {"margin": 0.01}} | changes


def nightly(name="nightly", missed="catch_up", **changes):
    values = {"name": name, "cron": "30 2 * * *", "timezone": "Europe/Berlin", "missed": missed, "job": refresh()}
    return ScheduleRequest.model_validate(values | changes)


def outcomes(workspace, name="nightly"):
    return [(run.outcome, run.due_at) for run in product.list_schedule_runs(workspace, name).items]


def next_due(workspace):
    return product.get_schedule(workspace, "nightly").next_due_at


def jobs(workspace):
    return product.job_queue(workspace).list().items


def end_jobs(workspace):
    for job in product.job_queue(workspace).list(state="queued").items:
        product.job_queue(workspace).cancel(job.id)


def test_a_job_is_submitted_once_when_it_is_due(workspace, clock, tick):
    clock.now += timedelta(minutes=1)
    assert product.create_schedule(workspace, nightly()).next_due_at == NIGHT
    tick()
    tick(NIGHT - timedelta(seconds=1))
    assert jobs(workspace) == ()
    tick(NIGHT + timedelta(seconds=2))
    tick()
    (job,) = jobs(workspace)
    assert job.kind == "refresh" and job.request["train"]["model"] == "weather"
    assert job.request["promotion"]["margin"] == 0.01
    schedule = product.get_schedule(workspace, "nightly")
    assert schedule.last_run.job_id == job.id and schedule.last_run.outcome == "on_time"
    assert schedule.next_due_at == NIGHT + DAY


@pytest.mark.parametrize(("missed", "expected"), [("catch_up", "caught_up"), ("skip", "skipped")])
def test_missed_runs_are_caught_up_once_or_skipped_as_told(workspace, tick, missed, expected):
    product.create_schedule(workspace, nightly(missed=missed))
    tick(NIGHT + 9 * DAY + timedelta(hours=3))  # a worker that starts after nine days
    assert outcomes(workspace) == [(expected, NIGHT + 9 * DAY)]
    assert len(jobs(workspace)) == (missed == "catch_up") and next_due(workspace) == NIGHT + 10 * DAY
    end_jobs(workspace)
    tick(NIGHT + 10 * DAY)
    assert outcomes(workspace)[0] == ("on_time", NIGHT + 10 * DAY)


def test_two_servers_and_a_worker_killed_before_it_could_tell_start_nothing_twice(workspace, clock, monkeypatch, tick):
    product.create_schedule(workspace, nightly())
    with monkeypatch.context() as killed:
        killed.setattr(schedule_records, "record_schedule_run", Mock(side_effect=ControlUnavailable("killed")))
        tick(NIGHT + timedelta(seconds=1))
    assert len(jobs(workspace)) == 1 and outcomes(workspace) == []
    change = ScheduleChange.model_validate({"job": refresh(promotion={"margin": 0.5})})
    product.change_schedule(workspace, "nightly", change)
    make_due(workspace, "nightly", NIGHT)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Scheduler(workspace, clock).tick(), range(4)))
    (job,) = jobs(workspace)
    assert outcomes(workspace) == [("on_time", NIGHT)]
    assert product.get_schedule(workspace, "nightly").last_run.job_id == job.id


def test_a_clock_that_jumps_back_neither_repeats_a_run_nor_stops_the_schedule(workspace, tick):
    product.create_schedule(workspace, nightly())
    for at in (NIGHT, NIGHT + 3000 * DAY):  # the second is a wrong clock
        tick(at)
        end_jobs(workspace)
    assert next_due(workspace) > NIGHT + 3000 * DAY
    tick(NIGHT - timedelta(hours=1))  # and right again, a little before the run that has been
    assert next_due(workspace) == NIGHT
    tick(NIGHT + timedelta(seconds=1))
    assert len(outcomes(workspace)) == 2 and next_due(workspace) == NIGHT + DAY
    tick(NIGHT + DAY)
    assert ("on_time", NIGHT + DAY) in outcomes(workspace) and len(jobs(workspace)) == 3


def test_a_run_waits_for_the_one_before_or_is_skipped(workspace, clock, tick):
    product.create_schedule(workspace, nightly("waiting", job=refresh()))
    product.create_schedule(workspace, nightly("skipping", "skip"))
    for day in range(3):
        tick(NIGHT + day * DAY)
    assert [outcome for outcome, _ in outcomes(workspace, "skipping")] == ["skipped", "skipped", "on_time"]
    assert outcomes(workspace, "waiting") == [("on_time", NIGHT)]
    end_jobs(workspace)
    tick(clock.now + timedelta(hours=1))
    assert outcomes(workspace, "waiting")[0] == ("caught_up", NIGHT + 2 * DAY)


def test_a_paused_schedule_is_not_due_and_misses_nothing(workspace, clock, tick):
    product.create_schedule(workspace, nightly())
    assert product.pause_schedule(workspace, "nightly").next_due_at is None
    assert product.pause_schedule(workspace, "nightly").is_paused
    tick(NIGHT + 5 * DAY + timedelta(hours=1))
    assert outcomes(workspace) == []
    job = product.run_schedule(workspace, "nightly", "today")
    assert product.run_schedule(workspace, "nightly", "today").id == job.id
    assert [outcome for outcome, _ in outcomes(workspace)] == ["asked"]
    assert product.resume_schedule(workspace, "nightly").next_due_at == NIGHT + 6 * DAY
    changed = product.change_schedule(workspace, "nightly", ScheduleChange(cron="@hourly", timezone="UTC"))
    in_half_an_hour = clock.now + timedelta(minutes=30)
    assert (changed.cron, changed.missed, changed.next_due_at) == ("@hourly", "catch_up", in_half_an_hour)


def test_a_job_that_is_refused_is_kept_with_its_reason_and_tried_again_next_time(workspace, tick):
    product.create_schedule(workspace, nightly())
    product.delete_dataset(workspace, "weather")
    for day in range(2):
        tick(NIGHT + day * DAY)
    runs = product.list_schedule_runs(workspace, "nightly").items
    assert [run.outcome for run in runs] == ["refused", "refused"] and "no dataset 'weather'" in runs[0].reason


def test_what_cannot_be_meant_is_refused_at_once(workspace):
    def create(change=None, **changes):
        job = refresh(train=refresh()["train"] | (change or {}))
        return product.create_schedule(workspace, nightly(**{"job": job} | changes))

    for error, words, change in (
        (NotFound, "no dataset 'wether'", {"dataset": "wether"}),
        (ValueError, "there are no rows to compare on", {"holdout": 0}),
        (ValueError, "moved by the promotion rule", {"aliases": ["champion"]}),
    ):
        with pytest.raises(error, match=words):
            create(change)
    with pytest.raises(InvalidRequest, match="a cron expression has five"):
        create(cron="* * * *")
    product.create_schedule(workspace, nightly())
    product.create_schedule(workspace, nightly())
    with pytest.raises(Conflict, match="another definition"):
        product.create_schedule(workspace, nightly(missed="skip"))
    product.delete_schedule(workspace, "nightly")
    with pytest.raises(NotFound, match="no schedule 'nightly'"):
        product.get_schedule(workspace, "nightly")


def test_many_schedules_are_listed_and_ticked_with_as_many_statements_as_one(workspace, clock):
    def looks():
        with statements(workspace.control) as said:
            page = product.list_schedules(workspace, 1000)
            Scheduler(workspace, clock).tick()
        assert page.next_cursor is None and said
        return len(said)

    product.create_schedule(workspace, nightly())
    of_one = looks()
    for number in range(49):
        product.create_schedule(workspace, nightly(f"nightly-{number:03d}"))
    assert looks() == of_one
    first = product.list_schedules(workspace, 30)
    assert len(first.items) == 30 and len(product.list_schedules(workspace, 30, first.next_cursor).items) == 20


def test_jobs_that_ended_long_ago_are_forgotten_with_their_logs(workspace, clock, tick):
    product.create_schedule(workspace, nightly())
    old, waiting = (product.run_schedule(workspace, "nightly", key) for key in "ab")
    queue = product.job_queue(workspace)
    queue.cancel(old.id)
    logs = workspace.layout.root / "logs"
    logs.mkdir(exist_ok=True)
    (logs / f"{old.id}.jsonl").write_text("{}\n")
    Scheduler(workspace, clock).forget_old_jobs()
    assert queue.get(old.id).state == "cancelled" and product.read_job_log(workspace, old.id) == "{}\n"
    with Workspace(workspace.settings.model_copy(update={"job_days": 1e-9})) as later:
        time.sleep(1.1)  # DBOS counts whole seconds
        Scheduler(later, clock).forget_old_jobs()
    with pytest.raises(NotFound, match="There is no"):
        queue.get(old.id)
    assert list(logs.iterdir()) == [] and queue.get(waiting.id).state == "queued"
    queue.cancel(waiting.id)
    tick(NIGHT)
    assert outcomes(workspace)[0][0] == "on_time"  # a run whose job is forgotten blocks nothing


# Over REST and the command line, with a real server and its worker


def test_a_worker_catches_up_trains_and_promotes_by_the_rule(site):
    client, place = site.client, "/v1/schedules/sky-nightly"
    data = {"name": "clouds", "uris": [str(site.train)], "target": "class"}
    assert client.post("/v1/datasets", json=data).status_code == 201
    job = {"kind": "refresh", "train": {"dataset": "clouds", "learner": "nb", "model": "clouds"}}
    body = {"name": "sky-nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "job": job}
    created = client.post("/v1/schedules", json=body)
    assert created.status_code == 201 and created.headers["location"] == place
    assert created.json()["job"]["promotion"]["metric"] == "log_loss"
    problem(client.post("/v1/schedules", json=body | {"missed": "skip"}), 409)
    problem(client.post("/v1/schedules", json=body | {"name": "x", "cron": "61 * * * *"}), 422)
    assert client.post("/v1/schedules", json=body | {"name": "x", "timezone": "Mars"}).json()["field"] == "timezone"
    with Workspace(Settings(workspace=site.workspace)) as workspace:  # as if no worker had run since yesterday
        yesterday = product.get_schedule(workspace, "sky-nightly").next_due_at - DAY
        make_due(workspace, "sky-nightly", yesterday)
    (run, *_) = wait_for(lambda: client.get(f"{place}/runs").json()["items"])
    assert run["outcome"] in {"caught_up", "on_time"}
    promotion = job_at_end(client, run["job_id"])["result"]["promotion"]
    assert promotion["is_promoted"] and "first champion" in promotion["reason"]
    again, once_more = (client.post(f"{place}/run", headers={"idempotency-key": "once"}) for _ in range(2))
    assert again.status_code == 202 and again.headers["location"] == f"/v1/jobs/{again.json()['id']}"
    assert once_more.json()["id"] == again.json()["id"]
    assert job_at_end(client, again.json()["id"])["state"] == "succeeded"
    assert client.post(f"{place}/pause").json()["next_due_at"] is None
    assert client.post(f"{place}/resume").json()["next_due_at"] is not None
    changed = client.patch(place, json={"cron": "@weekly"}).json()
    assert (changed["cron"], changed["timezone"]) == ("@weekly", "Europe/Berlin")
    assert "sky-nightly" in {item["name"] for item in client.get("/v1/schedules?limit=1000").json()["items"]}
    assert client.delete(place).status_code == 204
    problem(client.get(place), 404)
    assert client.delete("/v1/datasets/clouds").status_code == 204


def test_schedules_on_the_command_line(tmp_path, weather_files):
    (tmp_path / "job.json").write_text(json.dumps(train_job(weather_files[0], "weather")))
    schedules = partial(on_a_line, "schedules", workspace=tmp_path / "workspace")
    new = ["nightly", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--job", tmp_path / "job.json"]
    schedules("create", *new)
    (listed,) = json.loads(schedules("list", "--json"))
    assert listed["name"] == "nightly" and listed["job"]["model"] == "weather"
    assert "nightly" in schedules()
    assert "paused" in schedules("pause", "nightly")
    assert "next " in schedules("resume", "nightly")
    assert "@daily" in schedules("change", "nightly", "--cron", "@daily")
    asked = json.loads(schedules("run", "nightly", "--json"))
    shown = json.loads(schedules("show", "nightly", "--json"))
    assert asked["state"] == "queued" and shown["runs"][0]["job_id"] == asked["id"]
    assert "Unknown time zone 'Mars'" in schedules("change", "nightly", "--timezone", "Mars", code=1)
    schedules("create", "x", "--cron", "@daily", "--job", "no.json", code=2)
    schedules("delete", "nightly")
    assert json.loads(schedules("--json")) == []
