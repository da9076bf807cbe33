"""A column by class, as training has counted it."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from service import product
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.monitoring import problems


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("histograms")
    pq.write_table(problems.rows(2000, 1), folder / "train.parquet")
    with Workspace(Settings(workspace=folder / "workspace")) as opened:
        product.register_dataset(
            opened, DatasetRequest(name="towns", uris=[str(folder / "train.parquet")], target="class")
        )
        for learner in ("kdb", "xgboost"):
            product.train(opened, TrainRequest(dataset="towns", learner=learner, model=learner, holdout=0))
        yield opened


def test_counts_are_those_of_the_rows(workspace):
    found = product.class_histogram(workspace, "kdb", "road")
    table = problems.rows(2000, 1).select(["class", "road"]).group_by(["class", "road"]).aggregate([([], "count_all")])
    wanted = {(row["class"], row["road"]): row["count_all"] for row in table.to_pylist()}
    own = {
        (klass, label): n
        for klass, counts in zip(found["classes"], found["counts"], strict=True)
        for label, n in zip(found["labels"], counts, strict=True)
        if n
    }
    assert own == wanted


def test_the_newest_network_of_the_data_counts(workspace):
    version = product.counting_version(workspace, "towns")
    assert version is not None and version.name == "kdb", "trees keep no counts"
    assert product.counting_version(workspace, "nothing") is None
    with pytest.raises(InvalidRequest, match="has no column 'rode'"):
        product.class_histogram(workspace, "kdb", "rode")
    with pytest.raises(InvalidRequest, match="keeps no counts of its training"):
        product.class_histogram(workspace, "xgboost", "road")
