"""`fewpass drift` and the verb behind it."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.monitoring import problems
from tests.service.cli.test_cli import fewpass


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    pq.write_table(problems.rows(8000, 1), folder / "train.parquet")
    pq.write_table(problems.rows(4000, 2), folder / "same.parquet")
    changed = problems.rows(4000, 3)
    pq.write_table(changed.set_column(0, "size", pa.array(changed["size"].to_numpy() * 100)), folder / "unit.parquet")
    with Workspace(Settings(workspace=folder / "workspace")) as opened:
        asked = {"uris": [str(folder / "train.parquet")], "target": "class"}
        product.train(opened, TrainRequest(**asked, learner="kdb", model="towns"))
        product.train(opened, TrainRequest(**asked, learner="xgboost", model="trees", parameters={"rounds": 2}))
        yield opened, folder


def test_drift_names_the_column_whose_unit_changed(workspace):
    opened, folder = workspace
    found = product.drift(opened, "towns", [str(folder / "unit.parquet")])
    assert found["is_drifting"] and found["causes"][0]["columns"] == ("size",)
    assert (found["model"], found["version"]) == ("towns", 1)
    same = product.drift(opened, "towns", [str(folder / "same.parquet")])
    assert not same["is_drifting"] and same["rows"]["counted"] == 4000


def test_other_files_may_be_the_reference(workspace):
    opened, folder = workspace
    unit, same = str(folder / "unit.parquet"), str(folder / "same.parquet")
    assert not product.drift(opened, "towns", [unit], against=[unit])["is_drifting"]
    assert product.drift(opened, "trees", [unit], against=[same])["causes"][0]["columns"] == ("size",)
    # Without files, trees are compared with the rows that were kept back and scored in training.
    assert product.drift(opened, "trees", [unit])["causes"][0]["columns"] == ("size",)


def test_the_command_tells_causes_and_may_fail_by_them(workspace):
    opened, folder = workspace
    where = {"workspace": opened.settings.workspace}
    done = fewpass("drift", "towns", str(folder / "unit.parquet"), "--json", **where)
    assert json.loads(done.stdout)["causes"][0]["kind"] == "out_of_range"
    told = fewpass("drift", "towns", str(folder / "unit.parquet"), **where).stdout
    assert "1. size has numbers outside the range of training" in " ".join(told.split())
    assert fewpass("drift", "towns", str(folder / "unit.parquet"), "--check", **where, code=3).stdout == told
    assert "no drift" in fewpass("drift", "towns", str(folder / "same.parquet"), "--check", **where).stdout
    assert np.isfinite(json.loads(done.stdout)["drift_nats"])
