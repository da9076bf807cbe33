"""Locust users of a running server: single rows, batches, and glances at the control plane.

Run by load_tests/run.py, which starts a server on loopback; the profile comes from FEWPASS_LOAD_PROFILE.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from locust import FastHttpUser, LoadTestShape, constant, task

# (until second, users, spawned per second)
PROFILES: dict[str, list[tuple[int, int, int]]] = {
    "smoke": [(5, 2, 2)],
    "steady": [(60, 16, 8)],
    "burst": [(10, 4, 4), (20, 64, 64), (30, 4, 64), (40, 64, 64), (50, 4, 64)],
}

STAGES = PROFILES[os.environ.get("FEWPASS_LOAD_PROFILE", "smoke")]
RECORDS = (
    json.loads(Path(os.environ["FEWPASS_LOAD_RECORDS"]).read_text()) if "FEWPASS_LOAD_RECORDS" in os.environ else []
)
PREDICT = "/v1/models/load/predict"


class Stages(LoadTestShape):
    """The stages of the chosen profile, one after another."""

    def tick(self) -> tuple[int, int] | None:
        """Users and spawn rate now; None ends the run."""
        return next(((users, rate) for end, users, rate in STAGES if self.get_run_time() < end), None)


class Client(FastHttpUser):
    """Mostly single rows, some batches, now and then the registry."""

    wait_time = constant(0)

    @task(50)
    def one_row(self) -> None:
        """One record."""
        self.client.post(PREDICT, json={"records": [random.choice(RECORDS)]}, name="predict 1 row")

    @task(5)
    def hundred_rows(self) -> None:
        """A hundred records."""
        self.client.post(PREDICT, json={"records": random.choices(RECORDS, k=100)}, name="predict 100 rows")

    @task(1)
    def registry(self) -> None:
        """The list of models."""
        self.client.get("/v1/models", name="list models")
