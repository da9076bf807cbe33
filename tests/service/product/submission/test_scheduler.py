"""Schedules: due on time, caught up or skipped, never twice; and what the REST and command line say about them."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta

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
from tests.service.asking import job_at_end
from tests.service.cli.test_cli import fewpass
from tests.storage.conftest import statements

pytestmark = pytest.mark.usefixtures("weather_set")
NIGHT = datetime(2026, 6, 1, 0, 30, tzinfo=UTC)  # 02:30 in Berlin
DAY = timedelta(days=1)


class Clock:
    """A clock that goes when it is told to."""

    def __init__(self, now):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock(NIGHT - DAY)
    monkeypatch.setattr("service.product.submission.scheduler.utc_now", clock)
    return clock


@pytest.fixture
def scheduler(workspace, clock):
    return Scheduler(workspace, clock)


def refresh(**changes):
    train = {"dataset": "weather", "learner": "nb", "model": "weather"}
    return {"kind": "refresh", "train": train, "promotion": {"margin": 0.01}} | changes


def nightly(name="nightly", missed="catch_up", **changes):
    values = {"name": name, "cron": "30 2 * * *", "timezone": "Europe/Berlin", "missed": missed, "job": refresh()}
    return ScheduleRequest.model_validate(values | changes)


def outcomes(workspace, name="nightly"):
    return [(run.outcome, run.due_at) for run in product.list_schedule_runs(workspace, name).items]


def end_jobs(workspace):
    for job in product.job_queue(workspace).list(state="queued").items:
        product.job_queue(workspace).cancel(job.id)


def test_a_job_is_submitted_once_when_it_is_due(workspace, clock, scheduler):
    clock.now += timedelta(minutes=1)
    created = product.create_schedule(workspace, nightly())
    assert created.next_due_at == NIGHT
    scheduler.tick()
    clock.now = NIGHT - timedelta(seconds=1)
    scheduler.tick()
    assert product.job_queue(workspace).list().items == ()
    clock.now = NIGHT + timedelta(seconds=2)
    scheduler.tick()
    scheduler.tick()
    (job,) = product.job_queue(workspace).list().items
    assert job.kind == "refresh" and job.request["train"]["model"] == "weather"
    assert job.request["promotion"]["margin"] == 0.01
    schedule = product.get_schedule(workspace, "nightly")
    assert schedule.last_run.job_id == job.id and schedule.last_run.outcome == "on_time"
    assert schedule.next_due_at == NIGHT + DAY


@pytest.mark.parametrize(("missed", "expected"), [("catch_up", "caught_up"), ("skip", "skipped")])
def test_missed_runs_are_caught_up_once_or_skipped_as_told(workspace, clock, missed, expected, scheduler):
    product.create_schedule(workspace, nightly(missed=missed))
    clock.now = NIGHT + 9 * DAY + timedelta(hours=3)
    scheduler.tick()  # a worker that starts after nine days
    assert outcomes(workspace) == [(expected, NIGHT + 9 * DAY)]
    assert len(product.job_queue(workspace).list().items) == (missed == "catch_up")
    assert product.get_schedule(workspace, "nightly").next_due_at == NIGHT + 10 * DAY
    end_jobs(workspace)
    clock.now = NIGHT + 10 * DAY
    scheduler.tick()
    assert outcomes(workspace)[0] == ("on_time", NIGHT + 10 * DAY)


def test_two_servers_and_a_worker_killed_before_it_could_tell_start_nothing_twice(
    workspace, clock, monkeypatch, scheduler
):
    product.create_schedule(workspace, nightly())
    clock.now = NIGHT + timedelta(seconds=1)
    with monkeypatch.context() as killed:
        killed.setattr(
            schedule_records, "record_schedule_run", lambda *_: (_ for _ in ()).throw(ControlUnavailable("killed"))
        )
        scheduler.tick()
    assert len(product.job_queue(workspace).list().items) == 1 and outcomes(workspace) == []
    product.change_schedule(
        workspace, "nightly", ScheduleChange.model_validate({"job": refresh(promotion={"margin": 0.5})})
    )
    control = schedule_records.get_schedule(workspace.control, "nightly")
    schedule_records.change_schedule(workspace.control, control, replace_due(control, NIGHT))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: Scheduler(workspace, clock).tick(), range(4)))
    (job,) = product.job_queue(workspace).list().items
    assert outcomes(workspace) == [("on_time", NIGHT)]
    assert product.get_schedule(workspace, "nightly").last_run.job_id == job.id


def replace_due(schedule, due):
    return replace(schedule, next_due_at=due)


def test_a_clock_that_jumps_back_neither_repeats_a_run_nor_stops_the_schedule(workspace, clock, scheduler):
    product.create_schedule(workspace, nightly())
    clock.now = NIGHT
    scheduler.tick()
    end_jobs(workspace)
    clock.now = NIGHT + 3000 * DAY  # a wrong clock
    scheduler.tick()
    end_jobs(workspace)
    assert product.get_schedule(workspace, "nightly").next_due_at > NIGHT + 3000 * DAY
    clock.now = NIGHT - timedelta(hours=1)  # and right again, a little before the run that has been
    scheduler.tick()
    assert product.get_schedule(workspace, "nightly").next_due_at == NIGHT
    clock.now = NIGHT + timedelta(seconds=1)
    scheduler.tick()
    assert len(outcomes(workspace)) == 2 and product.get_schedule(workspace, "nightly").next_due_at == NIGHT + DAY
    clock.now = NIGHT + DAY
    scheduler.tick()
    assert ("on_time", NIGHT + DAY) in outcomes(workspace) and len(product.job_queue(workspace).list().items) == 3


def test_a_run_waits_for_the_one_before_or_is_skipped(workspace, clock, scheduler):
    product.create_schedule(workspace, nightly("waiting", job=refresh()))
    product.create_schedule(workspace, nightly("skipping", "skip"))
    for day in range(3):
        clock.now = NIGHT + day * DAY
        scheduler.tick()
    assert [outcome for outcome, _ in outcomes(workspace, "skipping")] == ["skipped", "skipped", "on_time"]
    assert outcomes(workspace, "waiting") == [("on_time", NIGHT)]
    end_jobs(workspace)
    clock.now += timedelta(hours=1)
    scheduler.tick()
    assert outcomes(workspace, "waiting")[0] == ("caught_up", NIGHT + 2 * DAY)


def test_a_paused_schedule_is_not_due_and_misses_nothing(workspace, clock, scheduler):
    product.create_schedule(workspace, nightly())
    assert product.pause_schedule(workspace, "nightly").next_due_at is None
    assert product.pause_schedule(workspace, "nightly").is_paused
    clock.now = NIGHT + 5 * DAY + timedelta(hours=1)
    scheduler.tick()
    assert outcomes(workspace) == []
    job = product.run_schedule(workspace, "nightly", "today")
    assert product.run_schedule(workspace, "nightly", "today").id == job.id
    assert [outcome for outcome, _ in outcomes(workspace)] == ["asked"]
    assert product.resume_schedule(workspace, "nightly").next_due_at == NIGHT + 6 * DAY
    changed = product.change_schedule(workspace, "nightly", ScheduleChange(cron="@hourly", timezone="UTC"))
    assert (changed.cron, changed.missed, changed.next_due_at) == (
        "@hourly",
        "catch_up",
        clock.now + timedelta(minutes=30),
    )


def test_a_job_that_is_refused_is_kept_with_its_reason_and_tried_again_next_time(workspace, clock, scheduler):
    product.create_schedule(workspace, nightly())
    product.delete_dataset(workspace, "weather")
    for day in range(2):
        clock.now = NIGHT + day * DAY
        scheduler.tick()
    runs = product.list_schedule_runs(workspace, "nightly").items
    assert [run.outcome for run in runs] == ["refused", "refused"] and "no dataset 'weather'" in runs[0].reason


def test_what_cannot_be_meant_is_refused_at_once(workspace):
    with pytest.raises(NotFound, match="no dataset 'wether'"):
        train = refresh()["train"] | {"dataset": "wether"}
        product.create_schedule(workspace, nightly(job=refresh(train=train)))
    with pytest.raises(InvalidRequest, match="a cron expression has five"):
        product.create_schedule(workspace, nightly(cron="* * * *"))
    with pytest.raises(ValueError, match="nothing is left to compare on"):
        nightly(job=refresh(train=refresh()["train"] | {"holdout": 0}))
    with pytest.raises(ValueError, match="moved by the promotion rule"):
        nightly(job=refresh(train=refresh()["train"] | {"aliases": ["champion"]}))
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


def test_jobs_that_ended_long_ago_are_forgotten_with_their_logs(workspace, clock, scheduler):
    product.create_schedule(workspace, nightly())
    old, waiting = (product.run_schedule(workspace, "nightly", key) for key in "ab")
    product.job_queue(workspace).cancel(old.id)
    logs = workspace.layout.root / "logs"
    logs.mkdir(exist_ok=True)
    (logs / f"{old.id}.jsonl").write_text("{}\n")
    scheduler.forget_old_jobs()
    assert (
        product.job_queue(workspace).get(old.id).state == "cancelled"
        and product.read_job_log(workspace, old.id) == "{}\n"
    )
    with Workspace(workspace.settings.model_copy(update={"job_days": 1e-9})) as later:
        time.sleep(1.1)  # DBOS counts whole seconds
        Scheduler(later, clock).forget_old_jobs()
    with pytest.raises(NotFound, match="There is no"):
        product.job_queue(workspace).get(old.id)
    assert list(logs.iterdir()) == [] and product.job_queue(workspace).get(waiting.id).state == "queued"
    clock.now = NIGHT
    product.job_queue(workspace).cancel(waiting.id)
    scheduler.tick()
    assert outcomes(workspace)[0][0] == "on_time"  # a run whose job is forgotten blocks nothing


# Over REST and the command line, with a real server and its worker


def test_a_worker_catches_up_trains_and_promotes_by_the_rule(site):
    client = site.client
    data = {"name": "clouds", "uris": [str(site.train)], "target": "class"}
    assert client.post("/v1/datasets", json=data).status_code == 201
    job = {"kind": "refresh", "train": {"dataset": "clouds", "learner": "nb", "model": "clouds"}}
    body = {"name": "sky-nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "job": job}
    created = client.post("/v1/schedules", json=body)
    assert created.status_code == 201 and created.headers["location"] == "/v1/schedules/sky-nightly"
    assert created.json()["job"]["promotion"]["metric"] == "log_loss"
    assert client.post("/v1/schedules", json=body | {"missed": "skip"}).status_code == 409
    assert client.post("/v1/schedules", json=body | {"name": "x", "cron": "61 * * * *"}).status_code == 422
    assert client.post("/v1/schedules", json=body | {"name": "x", "timezone": "Mars"}).json()["field"] == "timezone"
    with Workspace(Settings(workspace=site.workspace)) as workspace:  # as if no worker had run since yesterday
        schedule = schedule_records.get_schedule(workspace.control, "sky-nightly")
        yesterday = schedule.next_due_at - DAY
        schedule_records.change_schedule(workspace.control, schedule, replace_due(schedule, yesterday))
    runs = wait_for(lambda: client.get("/v1/schedules/sky-nightly/runs").json()["items"])
    assert runs[0]["outcome"] in {"caught_up", "on_time"}
    result = job_at_end(site.client, runs[0]["job_id"])["result"]
    assert result["promotion"]["is_promoted"] and "first champion" in result["promotion"]["reason"]
    again = client.post("/v1/schedules/sky-nightly/run", headers={"idempotency-key": "once"})
    assert again.status_code == 202 and again.headers["location"] == f"/v1/jobs/{again.json()['id']}"
    once_more = client.post("/v1/schedules/sky-nightly/run", headers={"idempotency-key": "once"})
    assert once_more.json()["id"] == again.json()["id"]
    assert job_at_end(site.client, again.json()["id"])["state"] == "succeeded"
    assert client.post("/v1/schedules/sky-nightly/pause").json()["next_due_at"] is None
    assert client.post("/v1/schedules/sky-nightly/resume").json()["next_due_at"] is not None
    changed = client.patch("/v1/schedules/sky-nightly", json={"cron": "@weekly"})
    assert changed.json()["cron"] == "@weekly" and changed.json()["timezone"] == "Europe/Berlin"
    assert "sky-nightly" in {item["name"] for item in client.get("/v1/schedules?limit=1000").json()["items"]}
    assert client.delete("/v1/schedules/sky-nightly").status_code == 204
    assert client.get("/v1/schedules/sky-nightly").status_code == 404
    assert client.delete("/v1/datasets/clouds").status_code == 204


def test_schedules_on_the_command_line(tmp_path, weather_files):
    job = {"kind": "train", "uris": [str(weather_files[0])], "target": "class", "learner": "nb", "model": "weather"}
    (tmp_path / "job.json").write_text(json.dumps(job))
    workspace = tmp_path / "workspace"
    fewpass("schedules", "create", "nightly", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin",
            "--job", tmp_path / "job.json", workspace=workspace)  # fmt: skip
    (listed,) = json.loads(fewpass("schedules", "list", "--json", workspace=workspace).stdout)
    assert listed["name"] == "nightly" and listed["job"]["model"] == "weather"
    assert "nightly" in fewpass("schedules", workspace=workspace).stdout
    assert "paused" in fewpass("schedules", "pause", "nightly", workspace=workspace).stdout
    assert "next " in fewpass("schedules", "resume", "nightly", workspace=workspace).stdout
    assert "@daily" in fewpass("schedules", "change", "nightly", "--cron", "@daily", workspace=workspace).stdout
    asked = json.loads(fewpass("schedules", "run", "nightly", "--json", workspace=workspace).stdout)
    shown = json.loads(fewpass("schedules", "show", "nightly", "--json", workspace=workspace).stdout)
    assert asked["state"] == "queued" and shown["runs"][0]["job_id"] == asked["id"]
    failed = fewpass("schedules", "change", "nightly", "--timezone", "Mars", workspace=workspace, code=1)
    assert "There is no time zone 'Mars'" in " ".join(failed.stderr.split())
    fewpass("schedules", "create", "x", "--cron", "@daily", "--job", "no.json", workspace=workspace, code=2)
    fewpass("schedules", "delete", "nightly", workspace=workspace)
    assert json.loads(fewpass("schedules", "--json", workspace=workspace).stdout) == []
