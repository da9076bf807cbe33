"""What the tests ask of jobs over REST."""

from __future__ import annotations

import httpx

from tests.processes import wait_for


def job_in(client: httpx.Client, job_id: str, *states: str) -> dict:
    """The job as soon as it is in one of these states."""
    return wait_for(lambda: job if (job := client.get(f"/v1/jobs/{job_id}").json())["state"] in states else {})


def job_at_end(client: httpx.Client, job_id: str) -> dict:
    return job_in(client, job_id, "succeeded", "failed", "cancelled")
