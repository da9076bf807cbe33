"""Drift of the training file itself: infinite numbers, copied columns, a model that uses no column."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.requests.problems import InvalidRequest
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace


@pytest.mark.parametrize("end", [np.inf, -np.inf])
def test_the_training_file_itself_raises_no_alarm(end, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    x = np.where(rng.random(4000) < 0.3, end, rng.normal(y, 1))
    pq.write_table(pa.table({"x": x, "z": rng.normal(y, 1), "y": np.array(["a", "b"])[y]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"x": -x, "z": rng.normal(y, 1)}), tmp_path / "other.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        request = TrainRequest(uris=[str(tmp_path / "t.parquet")], target="y", learner="nb", model="m", holdout=0)
        product.train(workspace, request)
        assert not product.drift(workspace, "m", [str(tmp_path / "t.parquet")])["is_drifting"]
        told = product.drift(workspace, "m", [str(tmp_path / "other.parquet")])
    assert any(alarm["kind"] == "out_of_range" for alarm in told["alarms"]), "the other infinity is new"


def test_copied_columns_are_no_drift(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    x = rng.normal(y, 1)
    copies = {"x1": x, "x2": x, "x3": np.where(x > 2, np.inf, x), "k": np.ones(2000)}
    unused = {"a": rng.normal(size=200).repeat(10)}
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        for name, columns in (("copies", copies), ("unused", unused)):
            path = tmp_path / f"{name}.parquet"
            pq.write_table(pa.table(columns | {"y": np.array(["a", "b"])[y]}), path)
            request = TrainRequest(uris=[str(path)], target="y", learner="nb", model=name, holdout=0)
            product.train(workspace, request)
            if name == "unused":
                with pytest.raises(InvalidRequest, match="uses no column"):
                    product.drift(workspace, name, [str(path)])
            else:
                assert product.drift(workspace, name, [str(path)])["alarms"] == []
