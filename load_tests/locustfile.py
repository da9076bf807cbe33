"""Locust users of a running server: single rows, batches, and glances at the control plane.

Run by `python -m load_tests`, which starts a server on loopback; the profile comes from FEWPASS_LOAD_PROFILE.
"""

import json
import os
import random
import time
from collections import defaultdict
from pathlib import Path

import gevent
from gevent.pool import Group
from locust import FastHttpUser, LoadTestShape, constant, events, task

from load_tests.profiles import PROFILES

STAGES = list(PROFILES[os.environ.get("FEWPASS_LOAD_PROFILE", "smoke")])
if "FEWPASS_LOAD_SECONDS" in os.environ:
    STAGES[-1] = (int(os.environ["FEWPASS_LOAD_SECONDS"]), *STAGES[-1][1:])
RECORDS = (
    json.loads(Path(os.environ["FEWPASS_LOAD_RECORDS"]).read_text()) if "FEWPASS_LOAD_RECORDS" in os.environ else []
)
RATE = float(os.environ.get("FEWPASS_LOAD_RATE", "200"))
PREDICT = "/v1/models/load/predict"


# In milliseconds: locust itself keeps whole ones only.
TIMES: dict[str, list[float]] = defaultdict(list)


@events.quitting.add_listener
def write_times(**_):
    """Leave the times for the report."""
    if "FEWPASS_LOAD_TIMES" in os.environ:
        Path(os.environ["FEWPASS_LOAD_TIMES"]).write_text(json.dumps(TIMES))


class Stages(LoadTestShape):
    """The stages of the chosen profile, one after another."""

    def tick(self):
        """Users and spawn rate now; None ends the run."""
        return next(((users, rate) for end, users, rate in STAGES if self.get_run_time() < end), None)


def timed(user, name, method, path, due=None, **arguments):
    """Ask, and keep the time since it was due, by default since now."""
    started = time.perf_counter() if due is None else due
    user.client.request(method, path, name=name, **arguments)
    TIMES[name].append((time.perf_counter() - started) * 1000)


class Client(FastHttpUser):
    """Mostly single rows, some batches, now and then the registry."""

    wait_time = constant(0)

    @task(50)
    def one_row(self):
        """One record."""
        timed(self, "predict 1 row", "POST", PREDICT, json={"records": [random.choice(RECORDS)]})

    @task(5)
    def hundred_rows(self):
        """A hundred records."""
        timed(self, "predict 100 rows", "POST", PREDICT, json={"records": random.choices(RECORDS, k=100)})

    @task(1)
    def registry(self):
        """The list of models."""
        timed(self, "list models", "GET", "/v1/models")


class Metronome(FastHttpUser):
    """One row at every beat, however long the answers to those before take."""

    wait_time = constant(0)
    concurrency = 1000  # connections

    def on_start(self):
        """Count beats from now."""
        self.started, self.n_beats, self.asking = time.perf_counter(), 0, Group()

    @task
    def beat(self):
        """Ask when it is time."""
        due = self.started + self.n_beats / RATE
        self.n_beats += 1
        gevent.sleep(max(0.0, due - time.perf_counter()))
        self.asking.spawn(
            timed, self, "predict 1 row", "POST", PREDICT, due, json={"records": [random.choice(RECORDS)]}
        )

    def on_stop(self):
        """Wait for what was asked."""
        self.asking.join()
