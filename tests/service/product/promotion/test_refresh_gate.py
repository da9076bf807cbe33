"""A refresh that looks at the data before it trains."""

import os
import uuid

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.jobs.steps import LOCAL, run_now
from service.product.promotion.refresh_gate import Quarantined
from service.product.submission.job_steps import job_kinds
from service.requests.requests import RefreshRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.monitoring import problems


@pytest.fixture
def place(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(problems.rows(6000, 1), tmp_path / "data/0.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as opened:
        yield opened, tmp_path / "data"


def refresh(workspace, folder, **more):
    train = {"uris": [str(folder)], "target": "class", "learner": "kdb", "parameters": {"k": 1}, "model": "towns"}
    request = RefreshRequest(train=train | {"holdout": 0.2}, **more)
    return run_now(job_kinds(workspace)["refresh"], f"{LOCAL}{uuid.uuid4().hex}", request.model_dump(), lambda _: None)


def add(folder, table, number):
    path = folder / f"{number}.parquet"
    pq.write_table(table, path)
    os.utime(path, (2_000_000_000 + number, 2_000_000_000 + number))


def test_broken_data_is_kept_from_training_until_a_person_says_so(place):
    workspace, folder = place
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 1
    add(folder, problems.rows(3000, 2), 1)
    assert refresh(workspace, folder, quarantine_points=1.0)["version"] == 2
    table = problems.rows(3000, 3)
    add(folder, table.set_column(0, "size", pa.array(table["size"].to_numpy() * 100)), 2)
    with pytest.raises(Quarantined, match=r"2\.parquet differs so much .* size has numbers outside the range"):
        refresh(workspace, folder, quarantine_points=1.0)
    assert [one.version for one in product.list_versions(workspace, "towns").items] == [2, 1]
    assert refresh(workspace, folder)["version"] == 3


def test_without_drift_nothing_is_trained(place):
    workspace, folder = place
    assert refresh(workspace, folder, when="drift")["version"] == 1, "there is no champion to keep"
    done = refresh(workspace, folder, when="drift")
    assert done["is_skipped"] and "nothing that version 1 serves has changed" in done["reason"]
    assert len(product.list_versions(workspace, "towns").items) == 1
