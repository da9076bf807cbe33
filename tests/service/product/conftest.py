"""A workspace, and files of two days of which models are learned and refreshed."""

import uuid

import pytest

from service import product
from service.jobs.steps import LOCAL, ignore_report, run_job_steps
from service.requests.requests import DatasetRequest, RefreshRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.support.passes import days


def run_refresh(workspace, train, job=None, **more):
    """What a refresh comes to whose steps this process makes."""
    request = RefreshRequest.model_validate({"train": train} | more).model_dump()
    steps = product.job_steps_by_kind(workspace)["refresh"]
    return run_job_steps(steps, f"{LOCAL}{job or uuid.uuid4().hex}", request, ignore_report)


@pytest.fixture
def workspace(tmp_path):
    with Workspace(Settings(workspace=tmp_path / "workspace")) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path):
    return days(tmp_path / "data", 2, n=300)


@pytest.fixture
def weather_set(workspace, weather_files):
    """A registered data set of the workspace."""
    request = DatasetRequest(name="weather", uris=[str(weather_files[0])], target="class")
    return product.register_dataset(workspace, request)
