"""Workers whose clocks are set."""

import contextlib
import os
import random
import time

import psutil

from service.processes.local_server import local_server
from tests.processes import children_of, wait_for
from tests.service.asking import client_of, job_at_end, job_in
from tests.support.processes import ASKED, long_job

HOUR = 3600
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
