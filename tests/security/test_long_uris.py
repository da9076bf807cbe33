"""URIs that take time with the square of their length are refused by their length, before anything looks for secrets or files in them."""

import pytest

from learners.errors import MOST_READ, one_line_error_text
from service import product
from service.product.datasets import data_sources
from service.product.datasets.data_sources import MOST_URI_LENGTH, check_data_roots, check_uri_secrets, open_data_source
from service.product.submission import prechecks
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest, ScheduleRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace

LENGTH = 300_000
LONG = [
    "/tmp/" + "a/" * LENGTH,
    "/tmp/" + "../" * LENGTH,
    "https://" * LENGTH,
    "https://h/?" + "sig" * LENGTH,
    "s3://" + "a" * LENGTH,
]
TOO_LONG = "A URI has .* characters .*; the limit is 4,096. Name a folder or a shorter pattern"
PATTERNS = ["/tmp/" + "[" * 300, "/tmp/" + "?" * 256 + "/x", "/tmp/x*" + "[a-z]" * 60]


@pytest.fixture
def nothing_is_searched(monkeypatch):
    def search(text):
        raise AssertionError(f"{len(text)} characters were searched")

    monkeypatch.setattr(data_sources, "redact_uri_secrets", search)
    monkeypatch.setattr(data_sources, "resolve_data_path", search)


@pytest.mark.usefixtures("nothing_is_searched")
@pytest.mark.parametrize("uri", LONG, ids=range(len(LONG)))
@pytest.mark.parametrize("door", ["job", "test rows", "schedule", "data set", "circuit", "opening"])
def test_a_long_uri_is_refused_at_every_door(tmp_path, uri, door):
    fields: dict = {"learner": "nb", "target": "class", "model": "m", "uris": ["/tmp/x"]}
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:

        def submit():
            if door == "job":
                product.submit_job(workspace, TrainRequest(**fields | {"uris": [uri]}), is_remote=True)
            elif door == "test rows":
                product.submit_job(
                    workspace, TrainRequest(**fields | {"test_uris": [uri], "uris": [uri]}), is_remote=True
                )
            elif door == "schedule":
                train = TrainRequest(**fields | {"uris": [uri]})
                request = ScheduleRequest(
                    name="s", cron="0 0 * * *", job={"kind": "refresh", "train": train.model_dump()}
                )
                product.create_schedule(workspace, request, is_remote=True)
            elif door == "data set":
                product.register_dataset(workspace, DatasetRequest(name="d", uris=[uri]), is_remote=True)
            elif door == "circuit":
                check_data_roots([uri], workspace.settings)
            else:
                open_data_source(workspace, [uri])

        with pytest.raises(InvalidRequest, match=f"{TOO_LONG}|the limit is 1,048,576"):
            submit()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_with_a_part_that_matches_no_name_is_refused(pattern):
    with pytest.raises(InvalidRequest, match=r"A part of a pattern has .* the limit is 255. Write a shorter pattern"):
        check_uri_secrets([pattern])


def test_what_is_as_long_as_a_path_may_be_is_read():
    path = "/tmp/" + "a/" * ((MOST_URI_LENGTH - 5) // 2)
    check_uri_secrets([path, "/tmp/" + "a" * 300, "duckdb://x.db?query=SELECT " + "a, " * 3_000 + "b FROM [x]"])
    check_data_roots([path], Settings())


def test_of_a_long_error_of_a_library_the_beginning_is_read(monkeypatch):
    lengths = []
    monkeypatch.setattr("learners.errors.redact_uri_secrets", lambda text: lengths.append(len(text)) or text)
    assert one_line_error_text(ValueError("https://" * LENGTH)).startswith("https://https")
    assert lengths[0] <= MOST_READ


def test_a_request_that_is_too_large_to_store_is_refused_before_its_uris_are_read(tmp_path, monkeypatch):
    def read(uris):
        raise AssertionError(f"{len(uris)} URIs were read")

    monkeypatch.setattr(prechecks, "check_uri_secrets", read)
    request = TrainRequest(learner="nb", target="class", model="m", uris=["/tmp/x" * 50] * 10_000)
    with (
        Workspace(Settings(workspace=tmp_path / "workspace")) as workspace,
        pytest.raises(InvalidRequest, match=r"bytes; the limit is 1,048,576"),
    ):
        product.submit_job(workspace, request, is_remote=True)
