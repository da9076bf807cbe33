"""A workspace, and files of five days of which models are learned and refreshed."""

import pytest

from service import product
from service.requests.requests import DatasetRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.passes.test_statistic_reuse import write


@pytest.fixture
def workspace(tmp_path):
    with Workspace(Settings(workspace=tmp_path / "workspace")) as opened:
        yield opened


@pytest.fixture
def folder(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for day in range(5):
        write(data, day)
    return data


@pytest.fixture
def weather_set(workspace, weather_files):
    """A registered data set of the workspace."""
    request = DatasetRequest(name="weather", uris=[str(weather_files[0])], target="class")
    return product.register_dataset(workspace, request)
