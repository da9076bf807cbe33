"""TAN averaged over all trees as a user has it: by REST, refreshed and forgotten."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from tests.service.asking import finished, train_job
from tests.service.conftest import weather
from tests.support.http import problem


def test_it_is_trained_served_and_forgets(site, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for day in range(2):
        pq.write_table(weather(300, day), data / f"{day}.parquet")
    job = train_job(data, "average", "tan", update=True, cuts="kept", parameters={"average": True})
    assert finished(site.client, job)["metrics"]["zero_one_loss"] < 0.3
    pq.write_table(weather(300, 2), data / "2.parquet")
    assert {each["n_files_read"] for each in finished(site.client, job)["passes"]} == {1}

    rows = {"records": [{"outlook": "sunny", "humidity": 50.0, "windy": False}, {"outlook": "rain"}, {}]}
    told = site.client.post("/v1/models/average/predict", json=rows).json()
    assert told["predictions"][:2] == ["yes", "no"]
    np.testing.assert_allclose(np.sum(told["probabilities"], axis=1), 1.0)
    structure = site.client.get("/v1/models/average/structure").json()
    assert [edge["rank"] for edge in structure["edges"]].count(1) == 2
    assert "<svg" in site.client.get("/v1/models/average/structure.svg").text
    for one in site.client.post("/v1/models/average/explain", json=rows).json()["explanations"]:
        assert one["log_odds"] == pytest.approx(one["prior"] + sum(one["contributions"].values()))
    refused = site.client.post("/v1/models/average/query", json={"queries": [{"kind": "marginal"}]})
    assert "no joint distribution" in problem(refused, 422)["detail"]

    done = finished(site.client, {"kind": "forget", "model": "average", "where": "outlook = 'rain'"})
    assert done["n_rows"] == pq.read_table(data)["outlook"].to_pylist().count("rain")
    assert [proof["is_equal"] for proof in done["proofs"]] == [True]
