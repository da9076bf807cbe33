"""Files that unpack to gigabytes or end their reader: one job fails and says so in a sentence, or the registration does."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, collect
from learners.errors import LearnerError
from learners.passes.column_summaries import ColumnSummaries
from service.jobs.children import Children
from service.requests.problems import JobFailed, OutOfMemory
from service.settings import Settings
from tests.passes.hostile import MB, REPEATING, classes, damaged_footers, long_texts, written
from tests.service.asking import client_of, ended_job, train_job
from tests.service.forks import local_server

BOMBS = {
    "one page": ({"use_dictionary": False, "data_page_size": 600 * MB}, "Out of memory"),
    "text that repeats": (REPEATING, "Unreadable data"),  # the reader holds an overflow to be damage
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    workspace = tmp_path_factory.mktemp("hostile") / "workspace"
    settings = Settings(workspace=workspace, job_poll_s=0.05, progress_s=0.1, job_memory="256MiB", threads=1)
    with local_server(settings) as server, client_of(server) as client:
        yield client


def ended(client, path):
    return ended_job(client, train_job(path, "m", holdout=0))


@pytest.mark.parametrize("kind", list(BOMBS))
def test_a_small_file_that_unpacks_to_much_ends_its_job(client, tmp_path, kind):
    how, title = BOMBS[kind]
    written(tmp_path / "bomb.parquet", long_texts(320, MB), **how)
    job = ended(client, tmp_path / "bomb.parquet")
    assert job["state"] == "failed" and job["error"]["title"] in ("Out of memory", title)
    rows = {"name": "bomb", "uris": [f"{tmp_path}/*.parquet"], "target": "class"}
    registered = client.post("/v1/datasets", json=rows)
    assert registered.status_code == 422
    if title == "Out of memory":
        assert "The job used more than 256 MiB of memory and was stopped." in job["error"]["detail"]
        assert "Reading the inputs of the request takes more than 256 MiB of memory" in registered.json()["detail"]
    assert client.get("/v1/datasets/bomb").status_code == 404 and client.get("/readyz").status_code == 200
    pq.write_table(pa.table({"x": classes(100), "class": classes(100)}), tmp_path / "sound.parquet")
    assert ended(client, tmp_path / "sound.parquet")["state"] == "succeeded"


def summarise(_opened, _report, path):
    source = Source.open(path)
    if "time" in source.arrow_schema.names:
        source.files[0].content.bounds("time")
    return collect(ColumnSummaries("class"), source, threads=1).n_rows


def test_a_damaged_footer_ends_one_process_at_most(tmp_path):
    """Arrow ends the process that asks it for a codec it does not know, or for sizes that do not fit."""
    path = tmp_path / "a.parquet"
    children, n_refused = Children(int, silence_s=60), 0
    for content in damaged_footers(path, int(os.environ.get("FEWPASS_TEST_FOOTERS", "100"))):
        path.write_bytes(content)
        with children.one() as child:
            try:
                child.run(summarise, path, memory=512 * MB)
            except (LearnerError, JobFailed, OutOfMemory):
                n_refused += 1
    children.close()
    assert n_refused > 25
