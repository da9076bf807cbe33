"""Requests that nobody thought of, made from the live OpenAPI document: no server error, no undocumented answer.

Some are random, others stand at the edges of what the document allows. Bodies that may be any kind of job or query have thousands
of edges: `make test` looks at every 16th of these, `make faults` at each (FEWPASS_TEST_EDGES=1).
"""

import os
import zlib
from pathlib import Path

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.generation.meta import TestPhase
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from service.http.app import create_app
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import PATIENCE_S, client_of, learn
from tests.service.forks import local_server

# What is known on the server, so that half of the requests get past "not found".
KNOWN = {"name": "income", "reference": "income@1", "version": "1", "alias": "other", "tag": "team"}
EVERY = int(os.environ.get("FEWPASS_TEST_EDGES", "16"))
MANY_EDGES = ("/v1/jobs", "/v1/schedules", "/v1/schedules/{name}", "/v1/models/{name}/query")
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
ALIKE = {"derandomize": True, "deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def url(tmp_path_factory, weather_files):
    """A server with a model and a data set named `income`; nothing takes its jobs."""
    train = str(weather_files[0])
    options = Settings(workspace=tmp_path_factory.mktemp("fuzzed") / "workspace", default_model="income", job_workers=0)
    with Workspace(options) as workspace:
        learn(workspace, train, "income", aliases=["champion", "other"])
    with local_server(options) as server, client_of(server) as client:
        made = client.post("/v1/datasets", json={"name": "income", "uris": [train], "target": "class"})
        assert made.status_code == 201
        job = {"kind": "train", "dataset": "income", "learner": "nb", "model": "income"}
        schedule = {"name": "income", "cron": "@yearly", "job": {"kind": "refresh", "train": job}}
        assert client.post("/v1/schedules", json=schedule).status_code == 201
        job = {"kind": "schema", "dataset": "income"}
        KNOWN["job_id"] = client.post("/v1/jobs", json=job).json()["id"]
        client.post(f"/v1/jobs/{KNOWN['job_id']}/cancel")  # or its events would never end
        yield server.url


@schemathesis.serializer("application/vnd.apache.arrow.stream", "application/x-tar")
def as_bytes(context, value):
    """Whatever was made up, as a body."""
    return value if isinstance(value, bytes) else str(value).encode()


schema = schemathesis.openapi.from_dict(create_app(Settings(workspace=Path("unused"))).openapi())


@schema.hook
def map_path_parameters(context, path_parameters):
    """Half of the names in paths replaced by such as exist."""
    if path_parameters and len(repr(path_parameters)) % 2:
        return {name: KNOWN.get(name, value) for name, value in path_parameters.items()}
    return path_parameters


@schema.hook
def filter_case(context, case):
    """Whether a case is sent: the same ones in every run."""
    is_edge = case.meta.phase.name == TestPhase.COVERAGE and case.operation.path in MANY_EDGES
    return not is_edge or zlib.crc32(repr(case.body).encode()) % EVERY == 0


def test_the_server_s_document_is_the_one_that_requests_are_made_from(url):
    assert httpx.get(f"{url}/openapi.json", timeout=PATIENCE_S).json() == schema.raw_schema


@schema.parametrize()
@settings(max_examples=12, phases=[Phase.explicit, Phase.generate], **ALIKE)
def test_no_request_gets_a_server_error_or_an_undocumented_answer(case, url):
    case.call_and_validate(base_url=url, checks=CHECKS, timeout=PATIENCE_S)
