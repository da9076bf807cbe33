"""PostgreSQL as the control database goes away and comes back: predictions go on, the rest says so and recovers."""

import os
import re
import threading
import time

import psutil
import pyarrow.parquet as pq
import pytest

from service.processes.local_server import local_server
from service.requests.problems import NotReady
from tests.faults import test_kills
from tests.processes import HAS_POSTGRES, NO_POSTGRES, postgres_cluster, record, wait_for
from tests.service.asking import client_of, job_in
from tests.service.clocks import needs_cc
from tests.service.conftest import weather
from tests.support.http import problem
from tests.support.job_clocks import keep_leases
from tests.support.processes import (
    ASKED,
    assert_sound,
    assert_succeeded,
    long_job,
    predict,
    settings_of,
    train_body,
    train_two,
)

pytest.importorskip("psycopg", reason="PostgreSQL needs the extra 'postgres' (psycopg)")
pytestmark = [pytest.mark.faults, pytest.mark.skipif(not HAS_POSTGRES, reason=NO_POSTGRES)]


@pytest.fixture(scope="module")
def cluster():
    with postgres_cluster() as made:
        yield made


@pytest.fixture
def settings(cluster, tmp_path, weather_files):
    """A workspace with two versions of a model, its control database in an empty schema of the cluster."""
    import psycopg

    if not cluster.is_running:  # left so by a test that failed
        cluster.start()
    with psycopg.connect(cluster.url, autocommit=True) as connection:
        for schema in ("public", "dbos"):
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
        connection.execute("CREATE SCHEMA public")
    settings = settings_of(tmp_path, control_url=cluster.url)
    train_two(settings, weather_files[0])
    return settings


def assert_unavailable(response):
    body = problem(response, 503)
    assert body["title"] == "Control database unavailable" and "secret" not in response.text
    assert "does not answer" in body["detail"] and "Try again" in body["detail"]
    assert int(response.headers["retry-after"]) >= 1


def log_of(server):
    return server.log.read_text(errors="replace")


def test_without_postgresql_predictions_go_on_and_all_comes_back_by_itself(cluster, settings, weather_files):
    with local_server(settings) as server, client_of(server) as client:
        expected = predict(client).json()
        bodies = [long_job(weather_files[0]), *(train_body(weather_files[0], f"queued-{n}") for n in range(3))]
        jobs = [client.post("/v1/jobs", json=body).json()["id"] for body in bodies]
        assert client.get("/readyz").json() == {"status": "ok", "version": client.get("/").json()["version"]}
        job_in(client, jobs[0], "running")
        cluster.stop()
        time.sleep(1)
        paths = ["models", "models/weather/aliases", "jobs", f"jobs/{jobs[0]}", f"jobs/{jobs[0]}/events"]
        for _ in range(3):
            assert predict(client).json() == expected
            for method, path, body in [
                *(("GET", f"/v1/{path}", None) for path in [*paths, "schedules", "datasets"]),
                ("POST", "/v1/jobs", train_body(weather_files[0], "lost")),
                ("POST", f"/v1/jobs/{jobs[0]}/cancel", None),
                ("POST", "/v1/datasets", {"name": "lost", "uris": [str(weather_files[1])]}),
                ("PUT", "/v1/models/weather/aliases/lost", {"version": 1}),
                ("POST", "/v1/models/weather@1/predict", ASKED),  # not resolved before
                ("POST", "/v2/models/unknown/infer", {"inputs": []}),
            ]:
                assert_unavailable(client.request(method, path, json=body))
            ready = client.get("/readyz")
            assert ready.status_code == 200 and ready.json()["status"] == "degraded"
            assert "does not answer" in ready.json()["reason"] and "secret" not in ready.text
            assert client.get("/v2/health/ready").status_code == 200 and client.get("/healthz").status_code == 200
            metrics = client.get("/metrics")
            assert metrics.status_code == 200 and "fewpass_control_up 0.0" in metrics.text
            time.sleep(0.5)
        cluster.start()
        wait_for(lambda: client.get("/readyz").json()["status"] == "ok")
        for job_id in jobs:
            assert_succeeded(client, job_id)
        assert client.put("/v1/models/weather/aliases/champion", json={"version": 2}).status_code == 200
        wait_for(lambda: predict(client).json()["version"] == 2)
        assert client.get("/v1/datasets/lost").status_code == 404
        assert "fewpass_control_up 1.0" in client.get("/metrics").text
        log = log_of(server)
    assert "Traceback" not in log and "secret" not in log
    n_lines = sum('"level": "warning"' in line or '"level": "error"' in line for line in log.splitlines())
    assert n_lines < 70, log  # 45 of them are refused requests to the job queue


def test_postgresql_that_is_killed_again_and_again_loses_nothing_that_was_acknowledged(
    cluster, settings, weather_files
):
    acknowledged: list[str] = []
    codes: set[int] = set()

    def submit(server):
        with client_of(server) as client:
            for number in range(16):
                response = client.post("/v1/jobs", json=train_body(weather_files[0], f"m-{number}"))
                codes.add(response.status_code)
                if response.status_code == 202:
                    acknowledged.append(response.json()["id"])
                time.sleep(0.15)

    with local_server(settings) as server, client_of(server) as client:
        writer = threading.Thread(target=submit, args=(server,))
        writer.start()
        for pause in (0.6, 1.3, 0.3):  # in mid-job, wherever that is
            time.sleep(pause)
            cluster.stop()
            time.sleep(0.4)
            cluster.start()
        writer.join()
        assert acknowledged and codes <= {202, 503}
        for job_id in acknowledged:
            name = assert_succeeded(client, job_id)["result"]["model"]
            versions = client.get(f"/v1/models/{name}/versions").json()["items"]
            assert [version["job_id"] for version in versions] == [job_id]
        assert "Traceback" not in log_of(server)


def test_a_schedule_that_was_due_during_the_outage_is_caught_up_once(cluster, settings, weather_files):
    schedule = {"name": "s", "cron": "* * * * *", "job": train_body(weather_files[0], "minutely")}
    with local_server(settings) as server, client_of(server) as client:
        wait_for(lambda: "worker started" in log_of(server))
        time.sleep(max(0.0, 58 - time.time() % 60))
        # Not before: a slow machine may take more than a minute until the worker has started.
        assert client.post("/v1/schedules", json=schedule).status_code == 201
        cluster.stop()
        time.sleep(4)
        cluster.start()
        runs = wait_for(lambda: (r := client.get("/v1/schedules/s/runs")).status_code == 200 and r.json()["items"])
        assert len(runs) == 1 and runs[0]["outcome"] in {"on_time", "caught_up"}


def test_postgresql_that_hangs_holds_up_no_prediction(cluster, settings):
    """Connections stand, and nothing comes over them: as when its disk does not answer."""
    postmaster = psutil.Process(int((cluster.data / "postmaster.pid").read_text().split()[0]))
    settings = settings.model_copy(update={"request_timeout_s": 3.0, "job_workers": 0})
    with local_server(settings) as server, client_of(server) as client:
        expected = predict(client).json()
        frozen = [postmaster, *postmaster.children(recursive=True)]
        for process in frozen:
            process.suspend()
        try:
            assert problem(client.get("/v1/models"), 503)["title"] == "Too slow"
            wait_for(lambda: client.get("/readyz").json()["status"] == "degraded")
            # On a connection that stood, or on one that was to be made: whichever was looked at last.
            assert re.search("(did|does) not answer", client.get("/readyz").json()["reason"])
            assert predict(client).json() == expected
        finally:
            for process in frozen:
                process.resume()
        wait_for(lambda: client.get("/readyz").json()["status"] == "ok")
        assert client.get("/v1/models").status_code == 200
        assert "Traceback" not in log_of(server)


def test_a_server_that_finds_no_postgresql_says_so(cluster, settings):
    cluster.stop()
    try:
        with pytest.raises(NotReady, match="does not answer") as refused, local_server(settings):
            pass
        assert "Traceback" not in str(refused.value) and "secret" not in str(refused.value)
    finally:
        cluster.start()
    with local_server(settings) as server, client_of(server) as client:
        assert client.get("/readyz").json()["status"] == "ok"


@needs_cc
def test_leases_in_postgresql_are_kept_whatever_the_clocks_of_two_machines_say(
    settings, walls, weather_files, monkeypatch
):
    print({"control": "PostgreSQL"} | keep_leases(settings, weather_files[0], walls, monkeypatch))
    assert_sound(settings)


@pytest.mark.timeout(7200)
def test_kills_of_two_servers_while_postgresql_is_restarted_in_between(cluster, settings, tmp_path):
    """The kills of tests/faults/test_kills.py, and a crash of the database after every fifth of them."""
    data, n_restarts = tmp_path / "data.parquet", 0
    pq.write_table(weather(500, 2), data)

    def restart():
        nonlocal n_restarts
        cluster.stop()
        time.sleep(0.4)
        cluster.start()
        n_restarts += 1

    made = test_kills.prepared(tmp_path, data, control_url=settings.control_url)
    told = test_kills.survive(made, data, int(os.environ.get("FEWPASS_TEST_KILLS", "40")), 2, restart)
    record({"control": "PostgreSQL", "restarts": n_restarts} | told)
