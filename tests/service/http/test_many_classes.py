"""Thousands of classes from the command line to a server: trained, measured, scored, served and watched, within bounds."""

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from service.http.api.scoring.predict import ARROW
from service.settings import Settings
from tests.service.asking import client_of
from tests.service.forks import local_server
from tests.support.classifiers import table
from tests.support.cli import fewpass
from tests.support.http import problem, stream_of

N_CLASSES = 10_000
PATH = "/v1/models/articles/predict"


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A workspace with a model of 10,000 classes, and its files."""
    folder = tmp_path_factory.mktemp("shop")
    pq.write_table(table(40_000, N_CLASSES), folder / "train.parquet", row_group_size=10_000)
    pq.write_table(table(20_000, N_CLASSES, seed=1).slice(0, 300), folder / "new.parquet")
    trained = fewpass(
        "train", folder / "train.parquet", "--target", "article", "--name", "articles", "--learner", "kdb", "--json",
        workspace=folder / "workspace",
    )  # fmt: skip
    metrics = json.loads(trained.stdout)["metrics"]
    assert metrics["n_test_rows"] > 5000 and metrics["zero_one_loss"] < 0.2
    assert 0 < metrics["n_unknown_class_rows"] < 500, "classes of few rows, all of them kept back"
    return folder


@pytest.fixture(scope="module")
def client(shop):
    settings = Settings(
        workspace=shop / "workspace", slow_request_s=600, request_timeout_s=600, monitoring="rows", job_workers=0
    )
    with local_server(settings) as server, client_of(server) as client:
        yield client


def test_files_are_scored_with_the_most_probable_classes(shop):
    place = {"workspace": shop / "workspace"}
    command = ["predict", "articles", shop / "new.parquet", "--out", shop / "out.parquet"]
    said = " ".join(fewpass(*command, code=1, **place).stderr.split())
    assert re.search(r"The model has 9,\d\d\d classes, and each would be a column.*--top-k 5", said)
    fewpass(*command, "--top-k", "3", "--keep", "article", **place)
    scored = pq.read_table(shop / "out.parquet")
    assert scored.column_names == ["article", "prediction", "top_classes", "top_probabilities"]
    top, probabilities = scored["top_classes"].to_pylist(), np.array(scored["top_probabilities"].to_pylist())
    assert scored["prediction"].to_pylist() == [row[0] for row in top]
    assert all(len(set(row)) == 3 for row in top)
    assert (np.diff(probabilities, axis=1) <= 0).all() and (probabilities.sum(axis=1) <= 1 + 1e-9).all()
    right = scored.filter(pc.equal(scored["article"], scored["prediction"].cast(pa.int64())))["article"]
    assert len(right) > 0.8 * scored.num_rows
    rows = pq.read_table(shop / "new.parquet")
    pq.write_table(rows.filter(pc.is_in(rows["article"], right.combine_chunks())), shop / "known.parquet")
    measured = json.loads(fewpass("evaluate", "articles", shop / "known.parquet", "--json", **place).stdout)
    assert measured["n_test_rows"] >= len(right) and measured["zero_one_loss"] < 0.2


def rows_of(shop, n_rows):
    whole = pq.read_table(shop / "new.parquet").drop_columns(["article"])
    return pa.concat_tables([whole] * (1 + n_rows // whole.num_rows)).slice(0, n_rows)


def test_a_row_is_answered_with_all_classes_or_the_most_probable_ones(shop, client):
    record = rows_of(shop, 1).to_pylist()[0]
    whole = client.post(PATH, json={"records": [record]}).json()
    assert 9000 < len(whole["classes"]) == len(whole["probabilities"][0]) < N_CLASSES
    assert sum(whole["probabilities"][0]) == pytest.approx(1)
    top = client.post(PATH, params={"top_k": 4}, json={"records": [record]}).json()
    assert top["predictions"] == whole["predictions"] and "classes" not in top
    best = np.argsort(-np.array(whole["probabilities"][0]), kind="stable")[:4]
    assert top["top_classes"] == [[whole["classes"][code] for code in best]]
    assert top["probabilities"][0] == [whole["probabilities"][0][code] for code in best]


def test_answers_are_bounded(shop, client):
    rows = rows_of(shop, 900)
    columns = {"columns": rows.slice(0, 300).to_pydict()}
    refused = problem(client.post(PATH, json=columns), 422)
    assert re.search(r"Send at most 2\d\d rows at once or ask for the most probable classes", refused["detail"])
    assert "MiB of probabilities" in refused["detail"] and 200 < refused["max_rows"] < 240
    accepted = client.post(PATH, params={"top_k": 2}, json=columns)
    assert [len(row) for row in accepted.json()["top_classes"]] == [2] * 300
    problem(client.post(PATH, params={"top_k": 2}, json={"columns": rows.to_pydict()}), 422)
    arrow = {"content": stream_of(rows.slice(0, 50)), "headers": {"content-type": ARROW}}
    assert "each would be a column" in problem(client.post(PATH, **arrow), 422)["detail"]
    batch = pa.ipc.open_stream(client.post(PATH, params={"top_k": 2}, **arrow).content).read_all()
    assert batch["top_classes"].to_pylist() == accepted.json()["top_classes"][:50]
    inputs = [
        {"name": name, "shape": [300], "datatype": "FP64" if name == "weight" else "BYTES", "data": values}
        for name, values in columns["columns"].items()
    ]
    problem(client.post("/v2/models/articles/infer", json={"inputs": inputs}), 422)
    problem(client.post("/v1/models/articles/explain", json=columns), 422)
    for top_k in ("0", "-1", "many", "10001"):
        refused = problem(client.post(PATH, params={"top_k": top_k}, json={"columns": {}}), 422)
        assert "top_k" in refused["detail"]


def test_intervals_labels_and_reasons_of_many_classes_and_their_monitoring(shop, client):
    body = {"json": {"records": rows_of(shop, 1).to_pylist()}}
    assert "256" in problem(client.post(PATH, params={"interval": 0.9}, **body), 422)["detail"]
    both = problem(client.post(PATH, params={"interval": 0.9, "top_k": 2}, **body), 422)
    assert both["detail"] == "Intervals cover all classes: request them without top_k."
    kept = problem(client.post(PATH, params={"id": "true"}, **body), 422)
    assert "classes are counted but not kept for labels; omit the id" in kept["detail"]
    reasons = client.post("/v1/models/articles/explain", **body).json()["explanations"][0]
    assert reasons["log_odds"] == pytest.approx(reasons["prior"] + sum(reasons["contributions"].values()))
    watched = client.get("/v1/models/articles/monitoring")
    assert watched.status_code == 200, watched.text
    page = client.get("/console/models/articles", follow_redirects=True)
    assert page.status_code == 200 and len(page.content) < 2_000_000
