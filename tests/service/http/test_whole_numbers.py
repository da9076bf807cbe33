"""Whole numbers at the limits of 64 bits, and nominal times, by every way into a server."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from learners.errors import SchemaError
from service import product
from service.http.api.scoring.predict import ARROW
from service.http.app import create_app
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service.http.test_predict import stream_of

LIMITS = [-(2**63), 2**53, 2**53 + 1, 2**63 - 1]


def train(settings, path, table):
    pq.write_table(table, path)
    request = TrainRequest(
        uris=[str(path)], target="y", learner="nb", model="whole", columns={"x": "nominal"}, holdout=0
    )
    with Workspace(settings) as workspace:
        product.train(workspace, request)


def predictions(client, values, columns, datatype):
    """What the model answers to the values by every way in."""
    path, headers = "/v1/models/whole/predict", {"content-type": ARROW, "accept": "application/json"}
    answers = [
        client.post(path, json={"records": [{"x": value} for value in values]}),
        client.post(path, json={"columns": {"x": values}}),
        *(client.post(path, content=stream_of(pa.table({"x": x})), headers=headers) for x in columns),
    ]
    tensor = {"name": "x", "shape": [len(values)], "datatype": datatype, "data": values}
    (of_tensor,) = (
        out["data"]
        for out in client.post("/v2/models/whole/infer", json={"inputs": [tensor]}).json()["outputs"]
        if out["name"] == "prediction"
    )
    return [*(answer.json()["predictions"] for answer in answers), list(map(int, of_tensor))]


def test_values_and_classes_at_the_limits_are_told_apart_by_every_way_in(tmp_path):
    whole = pa.array(LIMITS * 50)
    settings = Settings(workspace=tmp_path / "workspace")
    train(settings, tmp_path / "whole.parquet", pa.table({"x": whole, "y": whole}))
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        columns = [whole[:4], whole[:4].cast(pa.decimal128(38)), whole[:4].dictionary_encode()]
        assert predictions(client, LIMITS, columns, "INT64") == [LIMITS] * 6
        # 2^64 - 1 has the bits of -1: neither is known, and both get the same answer.
        path, headers = "/v1/models/whole/predict", {"content-type": ARROW, "accept": "application/json"}
        beyond = client.post(path, json={"records": [{"x": 2**64 - 1}, {"x": -1}]}).json()["probabilities"]
        unsigned = stream_of(pa.table({"x": pa.array([2**64 - 1], pa.uint64())}))
        by_arrow = client.post(path, content=unsigned, headers=headers).json()["probabilities"]
        assert beyond[0] == beyond[1] == by_arrow[0]


def test_training_refuses_what_it_cannot_keep_by_name(tmp_path):
    table = pa.table({"x": pa.array([5, 2**64 - 1] * 50, pa.uint64()), "y": ["a", "b"] * 50})
    with pytest.raises(SchemaError, match=r"'x' holds uint64, and 18446744073709551615 is beyond"):
        train(Settings(workspace=tmp_path / "workspace"), tmp_path / "beyond.parquet", table)


def test_a_nominal_moment_is_the_same_in_every_unit_and_text(tmp_path):
    moments = pa.array([0, 90, 86_400], pa.timestamp("s"))
    settings = Settings(workspace=tmp_path / "workspace")
    train(settings, tmp_path / "times.parquet", pa.table({"x": pa.chunked_array([moments] * 30), "y": [0, 1, 2] * 30}))
    texts = ["1970-01-01", "1970-01-01 00:01:30.000", "1970-01-02T02:00+02:00"]
    columns = [moments.cast(pa.timestamp("ns", "UTC")), moments.cast(pa.timestamp("ms")), pa.array(texts)]
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        assert predictions(client, texts, columns, "BYTES") == [[0, 1, 2]] * 6
