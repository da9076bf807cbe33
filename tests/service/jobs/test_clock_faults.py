"""The clock of a running server is set, by hours, forward and back: what runs does not notice, what is due is due once."""

import contextlib
import os
import random
import threading
import time
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from service.processes.local_server import local_server
from service.product.submission import scheduler
from service.product.submission.scheduler import FORGET_S, Scheduler
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import children_of, wait_for
from tests.service.asking import client_of, job_at_end, job_in, train_job
from tests.service.clocks import Wall, needs_cc
from tests.service.processes.test_faults import ASKED, assert_sound, long_job, settings_of, train_two
from tests.service.product.submission.test_scheduler import Clock

pytestmark = pytest.mark.faults

HOUR = 3600


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


JUMPS = (5 * HOUR, -3 * HOUR, 0, 20 * 365 * 24 * HOUR, -10 * 365 * 24 * HOUR, 45, -45)  # seconds ahead
N_JUMPS = int(os.environ.get("FEWPASS_TEST_JUMPS", "12"))
LEASE_S = 12.0  # on a machine that does much else
GONE = ("a worker is gone", "taken for dead", "taken over")


def keep_leases(settings, data, walls, monkeypatch):
    """What came of two servers on two machines whose clocks are set again and again, apart from each other, during long jobs.

    Nobody takes a worker for gone while it lives; when all of one server is killed, the other takes over in the time of a lease.
    """
    rng, servers = random.Random(int(os.environ.get("FEWPASS_TEST_SEED", "0"))), []
    settings = settings.model_copy(update={"lease_s": LEASE_S, "job_timeout_s": 900, "warm_up": False})
    long = long_job(data) | {"parameters": {"k": 2, "estimator": "hdp", "iterations": 150_000}}
    with contextlib.ExitStack() as stack:
        for number, wall in enumerate(walls):
            monkeypatch.setenv("JUMPING_CLOCK", str(wall.path))
            monkeypatch.setenv("JUMPING_HOST", f"machine-{number}")
            servers.append(stack.enter_context(local_server(settings, 600)))
        for server in servers:
            wait_for(lambda server=server: "worker started" in server.log.read_text(errors="replace"))
        asked = stack.enter_context(client_of(servers[1]))

        def two_running_jobs():
            jobs = [asked.post("/v1/jobs", json=long).json()["id"] for _ in range(2)]
            for job_id in jobs:
                job_in(asked, job_id, "running")
            return jobs

        jobs, n_during = two_running_jobs(), 0
        for _ in range(N_JUMPS):
            walls[rng.randrange(2)].set(rng.choice(JUMPS))
            time.sleep(rng.uniform(0.2, 1.5))
            assert asked.post("/v1/models/weather/predict", json=ASKED).status_code == 200
            n_during += any(asked.get(f"/v1/jobs/{job_id}").json()["state"] == "running" for job_id in jobs)
        for job_id in jobs:
            done = job_at_end(asked, job_id)
            assert done["state"] == "succeeded" and done["attempts"] == 1, done
        said = [server.log.read_text(errors="replace") for server in servers]
        assert not [line for log in said for line in log.splitlines() if any(words in line for words in GONE)]

        jobs = two_running_jobs()
        walls[0].set(-3 * HOUR)
        walls[1].set(5 * HOUR)
        for process in [psutil.Process(servers[0].pid), *children_of(servers[0].pid)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        killed = time.monotonic()
        wait_for(lambda: "a worker is gone" in servers[1].log.read_text(errors="replace"))
        taken_s = time.monotonic() - killed
        ends = [job_at_end(asked, job_id) for job_id in jobs]
        assert [done["state"] for done in ends] == ["succeeded"] * 2, ends
        assert sorted(done["attempts"] for done in ends) == [1, 2], ends
        assert taken_s >= LEASE_S / 2, "on another machine silence decides, and nothing else"
        assert "Traceback" not in servers[1].log.read_text(errors="replace")
    return {"jumps": N_JUMPS, "jumps_during_jobs": n_during, "taken_over_s": round(taken_s, 1)}


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
        assert len(forgotten) == 1
        go_on(FORGET_S - 10)
        go_on(20, timedelta(days=3650))
        go_on(FORGET_S / 2)
        go_on(1, timedelta(days=-3650))
        go_on(FORGET_S / 2)
        assert len(forgotten) == 1
        go_on(FORGET_S)
        assert len(forgotten) == 2 and forgotten[1].year == datetime.now(UTC).year
