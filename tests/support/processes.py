"""Servers that are killed, and what must hold afterwards."""

from service.operations import doctor
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import job_at_end, learn
from tests.support.http import RECORD

ASKED = {"records": [RECORD, {}]}


def settings_of(root, **given):
    # A busy machine gives up no request.
    fast = {"job_poll_s": 0.05, "progress_s": 0.1, "generation_poll_s": 0.05, "request_timeout_s": 600}
    return Settings(workspace=root / "workspace", **(fast | given))


def train_two(settings, data):
    with Workspace(settings) as workspace:
        learn(workspace, data, holdout=0, aliases=["champion"])
        learn(workspace, data, holdout=0, learner="tan")


def train_body(data, model="m", **fields):
    return {"kind": "train", "uris": [str(data)], "target": "class", "learner": "nb", "model": model} | fields


def long_job(data):
    """A training that takes some seconds, most of them in one step."""
    parameters = {"k": 2, "estimator": "hdp", "iterations": 2_000}
    return train_body(data, "long", learner="kdb", parameters=parameters)


def predict(client, model="weather"):
    return client.post(f"/v1/models/{model}/predict", json=ASKED)


def failed_checks(settings, **options):
    return [finding for finding in doctor.run_doctor_checks(settings, **options) if finding.state == "failed"]


def assert_sound(settings):
    assert not failed_checks(settings)


def assert_succeeded(client, job_id):
    job = job_at_end(client, job_id)
    assert job["state"] == "succeeded", job["error"]
    return job
