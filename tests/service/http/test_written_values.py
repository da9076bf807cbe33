"""Values over REST and in Python are read as the CSV files of the training write them, with the options of `--columns`."""

import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from fewpass import NB
from learners.schema.encoding.encode import encode
from service import product
from service.http.api.scoring.predict import ARROW
from service.http.app import create_app
from service.product.datasets.data_sources import open_data_source
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learn
from tests.support.http import problem, stream_of

HOW = {"*": {"missing": ["?"], "decimal": ",", "thousands": "."}, "day": {"date_format": "%d.%m.%Y"}}
NAMES = ["price", "grade", "digit", "is_new", "day"]
PREDICT, JSON = "/v1/models/written/predict", "application/json"


def written_rows(n_rows):
    rng, rows = random.Random(0), []
    for _ in range(n_rows):
        price = f"{rng.uniform(0, 3000):,.2f}".translate(str.maketrans(",.", ".,"))
        day = f"{rng.randint(1, 28):02}.{rng.randint(1, 12):02}.2024"
        row = [price, rng.choice("abc"), str(rng.randint(0, 3)), rng.choice(["true", "false"]), day]
        row = [rng.choice(["?", " ? "]) if rng.random() < 0.15 else value for value in row]
        rows.append(dict(zip(NAMES, row, strict=True)))
    return rows


def write(path, rows, classes):
    lines = [";".join([*row.values(), label]) for row, label in zip(rows, classes, strict=True)]
    path.write_text("\n".join([";".join([*NAMES, "class"]), *lines]) + "\n")
    return path


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Rows as texts, a server with a model of them, the probabilities of the rows read from a file, and the folder."""
    folder = tmp_path_factory.mktemp("written")
    settings = Settings(workspace=folder / "workspace", warm_up=False)
    rows = written_rows(400)
    classes = ["yes" if (row["grade"] == "a") ^ (len(row["price"]) > 6) else "no" for row in rows]
    path = write(folder / "rows.csv", rows, classes)
    with Workspace(settings) as workspace:
        learn(workspace, path, "written", columns=HOW, holdout=0)
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        yield rows, client, folder


@pytest.fixture(scope="module")
def of_file(site):
    """Probabilities that the command line writes for the file."""
    _, _, folder = site
    with Workspace(Settings(workspace=folder / "workspace")) as workspace:
        served = product.load_served_model(workspace, "written")
        source = open_data_source(workspace, [str(folder / "rows.csv")], is_remote=False, schema=served.schema)
        return np.concatenate([served.model.predict_proba(encode(batch, served.schema)) for batch in source.batches()])


def columns_of(rows):
    return {name: [row[name] for row in rows] for name in NAMES}


def test_every_body_of_a_prediction_is_read_as_the_file(site, of_file):
    rows, client, _ = site
    table, headers = pa.table(columns_of(rows)), {"content-type": ARROW, "accept": JSON}
    coded = pa.table({name: table[name].combine_chunks().dictionary_encode() for name in NAMES})
    answers = [
        client.post(PREDICT, json={"records": rows}),
        client.post(PREDICT, json={"columns": columns_of(rows)}),
        *(client.post(PREDICT, content=stream_of(each), headers=headers) for each in (table, coded)),
    ]
    for answer in answers:
        np.testing.assert_allclose(answer.json()["probabilities"], of_file, rtol=1e-12)
    for row, expected in zip(rows[:30], of_file, strict=False):
        answer = client.post(PREDICT, json={"records": [row]}).json()
        np.testing.assert_allclose(answer["probabilities"][0], expected, rtol=1e-12)


def test_a_number_in_another_form_is_refused_with_its_text(site):
    _, client, _ = site
    body = problem(client.post(PREDICT, json={"records": [{"price": "1.5"}]}), 422)
    assert "'price' holds '1.5' (str), but the model expects a number" in body["detail"]
    answers = [client.post(PREDICT, json={"records": [{"price": value}]}).json() for value in (1.5, "1,5")]
    assert answers[0] == answers[1]


def test_rows_in_python_are_read_as_the_file(site):
    rows, _, folder = site
    model = NB(columns=HOW).fit(str(folder / "rows.csv"), "class")
    expected = model.predict_proba(str(folder / "rows.csv"))
    frame = pd.DataFrame(rows)
    for forms in (rows, frame, pa.table(columns_of(rows)), columns_of(rows)):
        np.testing.assert_allclose(model.predict_proba(forms), expected, rtol=1e-12)
    for row in range(30):
        for one in (rows[row], frame.iloc[row : row + 1]):
            np.testing.assert_allclose(model.predict_proba(one)[0], expected[row], rtol=1e-12)
