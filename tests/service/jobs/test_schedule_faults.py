"""Schedules under kill -9, with two servers on one workspace, and through a shutdown."""

import os
import random
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta

import pytest

from service import product
from service.requests.requests import ScheduleRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import wait_for
from tests.service.asking import train_job
from tests.support.product import make_due

pytestmark = pytest.mark.faults

N = 60
# A first of a month that is long over and far from coming again, whatever today is.
DUE = (datetime.now(UTC) - timedelta(days=180)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)


def yearly(name, train):
    body = {"name": name, "cron": f"0 0 1 {DUE.month} *", "job": train_job(train, name)}
    return ScheduleRequest.model_validate(body)


def ticker(workspace):
    command = [sys.executable, "-m", "tests.service.jobs.schedule_ticker", str(workspace)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    return process


def test_kill_9_at_any_moment_of_two_schedulers_loses_and_repeats_nothing(tmp_path, weather_files):
    rng = random.Random(7)
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        names = [f"s{number:02d}" for number in range(N)]
        for name in names:
            product.create_schedule(workspace, yearly(name, weather_files[0]))
        for name in names:
            make_due(workspace, name, DUE)  # as if no worker had run since
        kills = 0

        def n_still_due():
            return sum(schedule.next_due_at == DUE for schedule in product.list_schedules(workspace, 1000).items)

        while n_still_due():
            processes = [ticker(workspace.layout.root) for _ in range(2)]
            for process in processes:
                process.stdout.readline()  # ready
            n_due = n_still_due()
            for process in processes:
                # A moment after at least one more was submitted: a slow machine gets on, too.
                wait_for(lambda n_due=n_due: n_still_due() < n_due or not n_due)
                time.sleep(rng.uniform(0.01, 0.25))
                process.kill()
                process.wait()
                kills += 1
                n_due = n_still_due()
        jobs = [job for job in product.job_queue(workspace).list(limit=500).items if job.kind == "train"]
        assert len(jobs) == N and {job.request["model"] for job in jobs} == set(names)
        by_model = {job.request["model"]: job.id for job in jobs}
        for name in names:
            (run,) = product.list_schedule_runs(workspace, name).items
            assert (run.outcome, run.due_at, run.job_id) == ("caught_up", DUE, by_model[name])
            assert product.get_schedule(workspace, name).next_due_at > datetime.now(UTC)
        assert kills > 2  # so that some of them hit


def test_what_is_due_while_a_worker_stops_is_submitted_by_it_or_the_next(tmp_path, weather_files):
    environment = os.environ | {"FEWPASS_WORKSPACE": str(tmp_path / "workspace")}
    command = [sys.executable, "-m", "service.cli", "worker"]
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        product.create_schedule(workspace, yearly("yearly", weather_files[0]))

        def run_until(is_over):
            with (tmp_path / "log").open("ab") as log:
                worker = subprocess.Popen(command, env=environment, stderr=log)
            try:
                wait_for(is_over)
            finally:
                worker.send_signal(signal.SIGTERM)
                assert worker.wait(240) == 0

        run_until(lambda: "worker started" in (tmp_path / "log").read_text())
        make_due(workspace, "yearly", DUE)  # a moment after the worker was told to stop, or before it has
        run_until(lambda: product.list_schedule_runs(workspace, "yearly").items)
        (run,) = product.list_schedule_runs(workspace, "yearly").items
        assert run.due_at == DUE
        run_until(lambda: product.job_queue(workspace).get(run.job_id).is_finished)
        assert product.job_queue(workspace).get(run.job_id).state == "succeeded"
        assert product.find_version(workspace, "yearly").job_id == run.job_id
        assert product.get_schedule(workspace, "yearly").next_due_at - DUE > timedelta(days=364)
