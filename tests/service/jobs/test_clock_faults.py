"""The clock of a running server is set, by hours, forward and back: what runs does not notice, what is due is due once."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from service import product
from service.processes.local_server import local_server
from service.product.submission import scheduler
from service.product.submission.scheduler import FORGET_S, Scheduler
from service.settings import Settings
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role
from tests.processes import wait_for
from tests.service.asking import client_of, job_at_end, job_in, train_job
from tests.service.clocks import Wall, needs_cc
from tests.support.job_clocks import HOUR, keep_leases
from tests.support.processes import ASKED, assert_sound, long_job, settings_of, train_two
from tests.support.product import Clock

pytestmark = pytest.mark.faults


@pytest.fixture
def wall(jumping_clock, tmp_path, monkeypatch):
    wall = Wall(tmp_path / "wall")
    monkeypatch.setenv("LD_PRELOAD", str(jumping_clock))
    monkeypatch.setenv("JUMPING_CLOCK", str(wall.path))
    return wall


@pytest.fixture
def served(tmp_path, wall, weather_files):
    settings = settings_of(tmp_path, job_timeout_s=600, request_timeout_s=30)
    train_two(settings, weather_files[0])
    with local_server(settings) as server, client_of(server) as client:
        yield server, client
    assert_sound(settings)


def hourly(client, data, name, missed):
    body = {"name": name, "cron": "0 * * * *", "missed": missed, "job": train_job(data, name)}
    assert client.post("/v1/schedules", json=body).status_code == 201


def runs(client, name):
    items = client.get(f"/v1/schedules/{name}/runs").json()["items"]
    return [(run["outcome"], datetime.fromisoformat(run["due_at"])) for run in items]


def next_due(client, name):
    return datetime.fromisoformat(client.get(f"/v1/schedules/{name}").json()["next_due_at"])


def ids(client):
    return [job["id"] for job in client.get("/v1/jobs?limit=500").json()["items"]]


@needs_cc
def test_a_clock_that_jumps_by_hours_ends_nothing_and_starts_nothing_twice(served, wall, weather_files):
    server, client = served
    job = train_job(weather_files[0], "m")
    # In the middle of an hour, whatever it is now, so that no jump lands on its end.
    middle = 1800 - int(time.time()) % HOUR
    wall.set(middle)
    hourly(client, weather_files[0], "catch", "catch_up")
    hourly(client, weather_files[0], "skip", "skip")
    ends: list[str] = []

    def follow():
        with client.stream("GET", f"/v1/jobs/{long}/events", timeout=120) as stream:
            ends.extend(line for line in stream.iter_lines() if line.startswith("event: end"))

    long = client.post("/v1/jobs", json=long_job(weather_files[0])).json()["id"]
    job_in(client, long, "running")
    follower = threading.Thread(target=follow)
    follower.start()

    wall.set(middle + 5 * HOUR)
    at = wall.now().replace(minute=0, second=0, microsecond=0)
    wait_for(lambda: runs(client, "catch") and runs(client, "skip"))
    time.sleep(3)  # a few ticks more: no storm
    assert runs(client, "catch") == [("caught_up", at)] and runs(client, "skip") == [("skipped", at)]
    assert next_due(client, "catch") == at + timedelta(hours=1)
    assert client.get(f"/v1/jobs/{long}").json()["state"] in {"running", "succeeded"}
    assert client.post("/v1/models/weather/predict", json=ASKED).status_code == 200
    ahead = client.post("/v1/jobs", json=job).json()["id"]

    wall.set(middle)  # and back
    here = wall.now().replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    wait_for(lambda: next_due(client, "catch") == next_due(client, "skip") == here)
    behind = client.post("/v1/jobs", json=job).json()["id"]
    assert {long, ahead, behind} <= set(ids(client))  # also what was submitted at a time that has not come yet
    first = client.get("/v1/jobs?limit=1").json()
    second = client.get("/v1/jobs", params={"limit": 500, "cursor": first["next_cursor"]}).json()
    assert len({item["id"] for item in first["items"] + second["items"]}) == len(ids(client))

    wall.set(middle - 3 * HOUR)
    early = client.post("/v1/jobs", json=job).json()["id"]
    for job_id in (long, ahead, behind, early):
        done = job_at_end(client, job_id)
        assert done["state"] == "succeeded" and done["attempts"] == 1, done
    follower.join(60)
    assert ends == ["event: end"]

    wall.set(middle + 5 * HOUR)  # an hour that was decided about already
    wait_for(lambda: next_due(client, "catch") == at + timedelta(hours=1))
    time.sleep(2)
    assert runs(client, "catch") == [("caught_up", at)] and runs(client, "skip") == [("skipped", at)]
    assert client.get("/readyz").json()["status"] == "ok"
    assert "Traceback" not in server.log.read_text()


@needs_cc
def test_limits_of_time_are_those_of_a_clock_that_nobody_sets(served, wall, weather_files):
    _, client = served
    endless = long_job(weather_files[0]) | {"parameters": {"k": 2, "estimator": "hdp", "iterations": 10_000_000}}
    late = client.post("/v1/jobs", json=endless | {"time_limit_s": 4}).json()["id"]
    job_in(client, late, "running")
    wall.set(-5 * HOUR)  # it has not got five hours more
    job = job_at_end(client, late)
    assert job["state"] == "failed" and "ran longer than 4 s" in job["error"]["detail"]


def test_a_server_that_starts_with_a_clock_far_ahead_keeps_the_audit_log(tmp_path, monkeypatch):
    """It deleted all lines in its first second, before the time service had set the clock back."""
    settings, going = Settings(workspace=tmp_path / "workspace", audit_days=1e-9), [1000.0]  # all lines look old
    monkeypatch.setattr(scheduler, "monotonic", lambda: going[0])
    with Workspace(settings) as workspace:
        product.create_key(workspace, "ana", Role.READ)
        own = Scheduler(workspace, Clock(datetime.now(UTC) + timedelta(days=3650)))
        own.tick()
        own.forget_old_jobs()
        assert [line.action for line in product.list_audit_lines(workspace).items] == ["key created"]
        going[0] += FORGET_S + 1
        own.forget_old_jobs()
        assert not product.list_audit_lines(workspace).items, "the clock was right"


@needs_cc
def test_leases_are_kept_whatever_the_clocks_of_two_machines_say(tmp_path, walls, weather_files, monkeypatch):
    settings = settings_of(tmp_path)
    train_two(settings, weather_files[0])
    print({"control": "SQLite"} | keep_leases(settings, weather_files[0], walls, monkeypatch))
    assert_sound(settings)


def test_what_is_old_is_not_forgotten_by_a_clock_that_was_just_set(tmp_path, monkeypatch):
    """A clock in the year 2036 would make every job an old one."""
    clock, going, forgotten = Clock(datetime.now(UTC)), [1000.0], []
    monkeypatch.setattr(scheduler, "monotonic", lambda: going[0])
    monkeypatch.setattr(scheduler, "delete_old_jobs", lambda _: forgotten.append(clock.now) or 0)
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        own = Scheduler(workspace, clock)

        def go_on(seconds, jump=timedelta()):
            going[0] += seconds
            clock.now += timedelta(seconds=seconds) + jump
            own.tick()
            own.forget_old_jobs()

        go_on(1)
        go_on(FORGET_S - 10)
        assert not forgotten, "the clock may be wrong since the machine has started"
        go_on(20)
        assert len(forgotten) == 1
        go_on(FORGET_S - 10)
        go_on(20, timedelta(days=3650))
        go_on(FORGET_S / 2)
        go_on(1, timedelta(days=-3650))
        go_on(FORGET_S / 2)
        assert len(forgotten) == 1
        go_on(FORGET_S)
        assert len(forgotten) == 2 and forgotten[1].year == datetime.now(UTC).year
