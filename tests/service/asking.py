"""How the tests ask servers, what they ask of jobs over REST, and what they train beside a server."""

import asyncio
import socket
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import httpx

from learners.registry.model_kinds import load_model
from service import product
from service.requests.requests import TrainRequest
from storage.models.compiled import map_compiled
from tests.processes import wait_for

T = TypeVar("T")

# For one answer; httpx gives up after 5 s, which a machine that does much else may take.
PATIENCE_S = 240
# A client reads the certificates of the machine, which takes 40 ms; nothing that tests ask has any.
NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
ENDS = ("succeeded", "failed", "cancelled")


def run_apart(asked):
    """In a thread of its own: tests in a browser leave a running loop in theirs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, asked).result()


def client_of(server):
    return httpx.Client(base_url=server.url, timeout=PATIENCE_S, verify=NO_CERTIFICATES)


def connected(server):
    """A bare connection to a server."""
    url = httpx.URL(server.url)
    return socket.create_connection((url.host, url.port), timeout=PATIENCE_S)


def job_in(client, job_id, *states):
    """The job as soon as it is in one of these states; one that has ended in another is not waited for."""

    def look():
        job = client.get(f"/v1/jobs/{job_id}").json()
        assert job["state"] in {*states, "queued", "running"}, job
        return job if job["state"] in states else {}

    return wait_for(look)


def job_at_end(client, job_id):
    return job_in(client, job_id, *ENDS)


def ended_job(client, request):
    """The job that is asked for, once it has ended."""
    response = client.post("/v1/jobs", json=request)
    assert response.status_code in (200, 201, 202), response.text
    return job_at_end(client, response.json()["id"])


def finished(client, request):
    """What a job comes to that succeeds."""
    job = ended_job(client, request)
    assert job["state"] == "succeeded", job
    return job["result"]


def train_job(uri, model, learner="nb", **more):
    """A job that learns of one file or folder, as REST is asked for it."""
    return {"kind": "train", "uris": [str(uri)], "target": "class", "learner": learner, "model": model} | more


def training(uri, model="m", learner="nb", target="class", **more):
    """The same for Python."""
    return TrainRequest(uris=[str(uri)], target=target, learner=learner, model=model, **more)


def learned(workspace, uri, *what, **more):
    """A version that this process learns as `training` says."""
    return product.train_model_version(workspace, training(uri, *what, **more))


def model_of(version):
    """What a version of the registry has learned."""
    return load_model(*map_compiled(version.arrow_path))


def learn(workspace, uri, model="weather", **fields):
    """A version learned beside the servers: by naive Bayes of "class", if the fields do not say otherwise."""
    request = {"uris": [str(uri)], "target": "class", "learner": "nb", "parameters": {"m": 1.0}} | fields
    return product.train_model_version(workspace, TrainRequest(model=model, **request))


def run_job(client, body):
    """The job of a request as soon as it has ended."""
    answer = client.post("/v1/jobs", json=body)
    assert answer.status_code == 202, answer.text
    return job_at_end(client, answer.json()["id"])
