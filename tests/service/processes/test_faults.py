"""Faults: kill -9, full and read-only disks, damaged files, crowds. Nothing acknowledged is lost, and it says what to do.

docs/how-to/operations.md lists them; those of a worker with jobs that need no learner are in test_jobs.py.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import threading
import time
from pathlib import Path

import httpx
import psutil
import pytest

from service import product
from service.operations import doctor
from service.requests.problems import NotReady
from service.requests.requests import SchemaRequest
from service.workspace import Workspace
from tests.processes import children_of, ended, wait_for
from tests.service.asking import client_of, job_in
from tests.service.forks import local_server
from tests.support.http import problem
from tests.support.processes import (
    assert_sound,
    assert_succeeded,
    failed_checks,
    long_job,
    predict,
    settings_of,
    train_body,
    train_two,
)


def can_mount():
    """Whether this user may mount a small disk: root in a container that allows it."""
    if os.geteuid() != 0:
        return False
    probe = Path("/tmp") / f"fewpass-mount-{os.getpid()}"
    probe.mkdir()
    try:
        is_mounted = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", probe], capture_output=True).returncode == 0
        if is_mounted:
            subprocess.run(["umount", probe], check=True)
        return is_mounted
    except FileNotFoundError:
        return False
    finally:
        probe.rmdir()


needs_mount = pytest.mark.skipif(not can_mount(), reason="a small disk can only be mounted by root")


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory, weather_files):
    """A workspace with two versions of a model, and the older as its champion."""
    settings = settings_of(tmp_path_factory.mktemp("trained"))
    train_two(settings, weather_files[0])
    return settings.workspace


@pytest.fixture
def trained(two_versions, tmp_path):
    """The settings of a copy of that workspace."""
    settings = settings_of(tmp_path)
    shutil.copytree(two_versions, settings.workspace)
    return settings


def workers_of(server):
    return children_of(server.pid, "worker")


def kill(process):
    process.send_signal(signal.SIGKILL)
    wait_for(lambda: ended([process.pid]))


def test_a_killed_worker_is_replaced_and_its_training_succeeds(trained, weather_files):
    with local_server(trained) as server, client_of(server) as client:
        job_id = client.post("/v1/jobs", json=long_job(weather_files[0])).json()["id"]
        wait_for(lambda: (client.get(f"/v1/jobs/{job_id}").json()["progress"] or {}).get("stage"))
        kill(workers_of(server)[0])
        assert predict(client).status_code == 200
        # By a worker that was started in the place of the killed one.
        assert assert_succeeded(client, job_id)["attempts"] == 2
        assert predict(client, "long").status_code == 200
    assert_sound(trained)


@pytest.mark.parametrize(
    "whole", [False, pytest.param(True, marks=pytest.mark.faults)], ids=["the server", "everything"]
)
def test_what_was_acknowledged_before_a_kill_is_there_after_it(trained, weather_files, whole):
    acknowledged: list[tuple[str, str]] = []
    stop = threading.Event()

    def write(client):
        number = 0
        while not stop.is_set():
            number += 1
            body = {"name": f"set-{number}", "uris": [str(weather_files[1])], "target": "class"}
            try:
                if client.post("/v1/datasets", json=body).status_code == 201:
                    acknowledged.append(("dataset", body["name"]))
                alias = f"alias-{number}"
                if client.put(f"/v1/models/weather/aliases/{alias}", json={"version": 2}).status_code == 200:
                    acknowledged.append(("alias", alias))
            except httpx.HTTPError:
                return

    with local_server(trained) as server, client_of(server) as client:
        bodies = [long_job(weather_files[0]), train_body(weather_files[0], "queued")]
        jobs = [client.post("/v1/jobs", json=body).json()["id"] for body in bodies]
        job_in(client, jobs[0], "running")
        writer = threading.Thread(target=write, args=(client,))
        writer.start()
        wait_for(lambda: len(acknowledged) > 20)
        victims = [*workers_of(server), psutil.Process(server.pid)] if whole else [psutil.Process(server.pid)]
        left = workers_of(server)
        for victim in victims:
            victim.send_signal(signal.SIGKILL)
        stop.set()
        writer.join()
        wait_for(lambda: ended(process.pid for process in [*victims, *left]))  # no worker outlives its server
    with local_server(trained) as server, client_of(server) as client:
        aliases = client.get("/v1/models/weather/aliases").json()["aliases"]
        for kind, name in acknowledged:
            found = client.get(f"/v1/datasets/{name}").status_code == 200 if kind == "dataset" else name in aliases
            assert found, (kind, name)
        for job_id in jobs:
            assert_succeeded(client, job_id)
    assert_sound(trained)


# Disks


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 48 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", disk], check=True)
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@needs_mount
def test_a_full_disk_stops_writes_with_a_507_and_no_prediction(small_disk, weather_files):
    settings = settings_of(small_disk)
    train_two(settings, weather_files[0])
    with local_server(settings) as server, client_of(server) as client:
        expected = predict(client).json()
        ballast = fill(small_disk)
        body, refused = train_body(weather_files[0]), 0
        for number in range(200):
            job = client.post("/v1/jobs", json=body)
            other = client.post("/v1/datasets", json={"name": f"d{number}", "uris": [str(weather_files[1])]})
            for response in (job, other):
                if response.status_code not in {201, 202}:
                    assert problem(response, 507)["title"] == "Workspace cannot be written"
                    refused += 1
            if refused > 3:
                break
        assert refused > 3
        assert predict(client).json() == expected
        assert {item.check for item in failed_checks(settings)} & {"workspace", "disk space"}
        ballast.unlink()  # the disk is free again, and so is everything
        made = wait_for(lambda: (r := client.post("/v1/jobs", json=body)).status_code == 202 and r.json())
        assert_succeeded(client, made["id"])
    assert not [item for item in failed_checks(settings) if item.check != "disk space"]
    assert not list(settings.workspace.glob("models/**/*.partial"))


def fill(disk):
    """Fill a disk to the last byte; returns the file that does."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (2**16, 2**12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


@needs_mount
def test_a_read_only_disk_serves_predictions_and_refuses_to_start(small_disk, weather_files):
    settings = settings_of(small_disk, job_workers=0)
    alias = "/v1/models/weather/aliases/other"
    train_two(settings, weather_files[0])
    with local_server(settings) as server, client_of(server) as client:
        expected = predict(client).json()
        subprocess.run(["mount", "-o", "remount,ro", small_disk], check=False)
        answer = client.put(alias, json={"version": 1})
        if answer.status_code == 200:  # open files kept the disk writable: nothing to see here
            return
        assert problem(answer, 507)["title"] == "Workspace cannot be written"
        assert predict(client).json() == expected
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(NotReady, match="cannot be written"), local_server(settings):
        pass
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    with local_server(settings) as server, client_of(server) as client:
        assert client.put(alias, json={"version": 1}).status_code == 200


# Damaged files


def test_a_damaged_model_is_named_and_mended_while_others_answer(trained):
    trained = trained.model_copy(update={"job_workers": 0})
    damaged = next(trained.workspace.glob("models/weather/2-*.arrow"))
    whole = damaged.read_bytes()
    damaged.chmod(0o644)
    damaged.write_bytes(whole[: len(whole) // 2])
    with local_server(trained) as server, client_of(server) as client:
        body = problem(predict(client, "weather@2"), 500)
        assert body["title"] == "Corrupt file" and damaged.name in body["detail"]
        assert predict(client, "weather@1").status_code == 200
        assert failed_checks(trained)
        doctor.run_doctor_checks(trained, is_repairing=True)
        assert predict(client, "weather@2").status_code == 200  # without a restart
    assert_sound(trained)


def test_a_damaged_catalogue_is_named_while_mapped_models_answer(trained):
    trained = trained.model_copy(update={"job_workers": 0})
    with local_server(trained) as server, client_of(server) as client:
        expected = predict(client).json()
        for path in trained.workspace.glob("control.sqlite*"):
            with path.open("r+b") as file:  # in place: what is shorter than a process has mapped would kill it
                file.write((b"damaged " * path.stat().st_size)[: path.stat().st_size])
        time.sleep(0.3)  # a few looks at the registry
        assert predict(client).json() == expected
        assert client.get("/healthz").status_code == 200
        listed = client.get("/v1/models")
        assert listed.status_code in {200, 500, 503} and "Traceback" not in listed.text
    for path in trained.workspace.glob("control.sqlite-*"):
        path.unlink()
    words = r"control.sqlite is damaged.*restore the file from a backup"
    with pytest.raises(NotReady, match=words), local_server(trained):
        pass
    assert any("fewpass restore" in item.remedy for item in doctor.run_doctor_checks(trained))
    assert (trained.workspace / "control.sqlite").exists()  # nobody has made a new one in its place


# Crowds


def test_two_servers_on_one_workspace_share_models_and_run_each_job_once(trained, weather_files):
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(local_server(trained)) for _ in range(2)]
        first, second = clients = [stack.enter_context(client_of(server)) for server in servers]
        for version in (2, 1, 2):
            first.put("/v1/models/weather/aliases/champion", json={"version": version})
            wait_for(lambda version=version: predict(second).json()["version"] == version)
        names = [f"shared-{number}" for number in range(4)]
        bodies = [train_body(weather_files[0], name) for name in names]
        jobs = [clients[i % 2].post("/v1/jobs", json=body).json()["id"] for i, body in enumerate(bodies)]
        for name, job_id in zip(names, jobs, strict=True):
            assert assert_succeeded(first, job_id)["attempts"] == 1
            listed = second.get(f"/v1/models/{name}/versions").json()["items"]
            assert [item["version"] for item in listed] == [1]
    slots = {path.name for path in (trained.workspace / "workers").glob("*.lock")}
    assert {"worker-0.lock", "worker-1.lock"} <= slots
    assert_sound(trained)


@pytest.mark.faults  # takes many seconds
def test_a_thousand_queued_jobs_hold_nobody_up(trained, weather_files):
    data = {"name": "weather", "uris": [str(weather_files[1])], "target": "class"}
    with local_server(trained.model_copy(update={"job_workers": 0})) as server, client_of(server) as client:
        assert client.post("/v1/datasets", json=data).status_code == 201
        with Workspace(trained) as workspace:
            for _ in range(1_000):
                product.submit_job(workspace, SchemaRequest(dataset="weather"), is_remote=False)
        assert 'fewpass_jobs{state="queued"} 1000.0' in client.get("/metrics").text
        served = psutil.Process(server.pid)
        listing = work_of(served, lambda: client.get("/v1/jobs?limit=20"))
        submitting = work_of(served, lambda: client.post("/v1/jobs", json={"kind": "schema", "dataset": "weather"}))
        predicting = work_of(served, lambda: predict(client))
    assert listing < 0.2 and submitting < 0.2 and predicting < 0.05
    with local_server(trained) as server, client_of(server) as client:
        wait_for(lambda: len(client.get("/v1/jobs?state=succeeded&limit=20").json()["items"]) >= 20)
        assert client.get("/v1/jobs?state=failed").json()["items"] == []


def work_of(process, call):
    """Seconds of a core that a request costs it, whatever else the machine has to do."""

    def spent():
        times = process.cpu_times()
        return times.user + times.system

    before = spent()
    for _ in range(20):
        response = call()
        assert response.status_code < 300, response.text
    return (spent() - before) / 20
