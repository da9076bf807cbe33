"""XGBoost over the same routes, files and progress as the networks."""

import numpy as np
import pyarrow.parquet as pq
import pytest
from fastapi.testclient import TestClient

from learners.classifiers.baselines.boosted import BoostedModel, XGBoostParameters
from learners.classifiers.baselines.recipes import xgboost
from learners.registry import model_kinds, recipes
from service import product
from service.http.app import create_app
from service.requests.requests import EvaluateRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.models.model_file import read_model_file
from tests.classifiers.baselines.test_xgboost import rows


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A workspace with a trained model named `trees`."""
    recipe = recipes.Recipe("gradient boosted trees", XGBoostParameters, xgboost, 1)
    monkeypatch.setitem(recipes.LEARNERS, "xgboost", recipe)
    monkeypatch.setitem(model_kinds.KINDS, BoostedModel.kind, BoostedModel)
    pq.write_table(rows(2), tmp_path / "rows.parquet")
    made = Settings(workspace=tmp_path / "workspace")
    request = TrainRequest(
        uris=[str(tmp_path / "rows.parquet")],
        target="class",
        learner="xgboost",
        parameters={"rounds": 5, "external_memory": True},
        model="trees",
    )
    with Workspace(made) as workspace:
        version = product.train_model_version(workspace, request, lambda _: None)
        measured = product.evaluate_model_version(
            workspace, EvaluateRequest(model="trees", uris=request.uris), lambda _: None
        )
        header, _ = read_model_file(version.duckdb_path)
    assert version.metrics["zero_one_loss"] < 0.25
    assert measured["n_test_rows"] == 1200
    assert header["facts"]["external_memory"] is True
    return made


def test_every_way_of_asking_gives_the_same_probabilities(settings):
    record = {"word": "w1", "number": 0.5, "small": 3}
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        one = client.post("/v1/models/trees/predict", json={"records": [record]}).json()
        two = client.post("/v1/models/trees/predict", json={"records": [record, {"word": None}]}).json()
        columns = client.post("/v1/models/trees/predict", json={"columns": {k: [v] for k, v in record.items()}}).json()
        explained = client.post("/v1/models/trees/explain", json={"records": [record]}).json()
        structure = client.get("/v1/models/trees/structure").json()
    assert one["probabilities"] == columns["probabilities"] == explained["probabilities"] == two["probabilities"][:1]
    reason = explained["explanations"][0]
    assert set(reason["contributions"]) == set(record)
    assert reason["log_odds"] == pytest.approx(reason["prior"] + sum(reason["contributions"].values()))
    no, yes = sorted(explained["probabilities"][0])
    assert reason["log_odds"] == pytest.approx(np.log(yes / no), abs=1e-4)
    assert {node["name"] for node in structure["nodes"]} == {"class", *record}
    assert structure["edges"][0]["to"] == "class"
