"""A running server from Python: what the client gives is what the estimator says."""

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fewpass
from fewpass.client import _plain
from service import product
from service.requests.problems import InvalidRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service.forks import local_server


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("client")
    settings = Settings(workspace=folder / "workspace", warm_up=False, data_roots=[str(folder)])
    with Workspace(settings) as workspace:
        _, key = product.create_key(workspace, "tests", "admin")
    with local_server(settings) as server, fewpass.Client(server.url, key) as opened:
        opened.folder = folder
        yield opened


def test_a_model_of_a_notebook_is_published_asked_and_opened(client, frame):
    model = fewpass.KDB(k=1).fit(frame, "class")
    assert client.publish(model, "notebook@champion")["version"] == 1
    rows = frame.drop(columns="class").head(40)
    expected = model.predict_proba(rows)
    records = rows.astype(object).where(rows.notna(), None).to_dict("records")
    for form in (rows, pa.Table.from_pandas(rows, preserve_index=False), records):
        found = client.predict("notebook@champion", form)
        assert (found.model, found.version, found.classes) == ("notebook", 1, ["no", "yes"])
        np.testing.assert_allclose(found.probabilities, expected, atol=1e-12)
    assert found.predicted == model.predict(rows).tolist()
    np.testing.assert_array_equal(client.open("notebook").predict_proba(rows), expected)
    (answer,) = client.query("notebook", [fewpass.Conditional(("class",), {"word": "u"})])
    assert sum(answer["distributions"]["class"].values()) == pytest.approx(1.0)
    assert "notebook" in [one["name"] for one in client.models()]
    assert client.model("notebook@1")["learner"] == "kdb"


def test_a_model_is_trained_on_the_files_of_the_server(client, frame):
    path = client.folder / "train.parquet"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    heard = []
    client.train([str(path)], "class", model="trained", learner="nb", advance=heard.append, holdout=0)
    assert client.model("trained")["version"] == 1
    scored = client.score("trained", [{"size": 1.0, "word": "u"}])
    assert scored["version"] == 1
    filled = client.impute("trained", [{"size": 1.0, "word": None}])
    assert filled["version"] == 1
    record = {"size": np.float64(1.0), "word": pd.NA}
    assert client.predict("trained", [record, {"size": np.nan}]).probabilities.shape == (2, 2)
    with pytest.raises(TypeError, match="is not a value of a row"):
        client.predict("trained", [{"size": object()}])


def test_values_of_other_libraries_are_written_as_pythons_own():
    moment = pd.Timestamp("2024-01-02 03:04")
    written = msgspec.json.encode([np.int64(3), np.nan, pd.NA, pd.NaT, moment, np.str_("a")], enc_hook=_plain)
    assert written == b'[3,null,null,null,"2024-01-02T03:04:00","a"]'


def test_what_the_server_refuses_is_said_in_its_words(client, frame):
    with pytest.raises(InvalidRequest, match="names a version"):
        client.publish(fewpass.NB().fit(frame, "class"), "notebook@7")
    with pytest.raises(fewpass.ServerError, match="There is no model 'nobody'") as error:
        client.predict("nobody", [{"a": 1}])
    assert error.value.status == 404 and error.value.problem["type"].startswith("urn:fewpass:problem:")
    with pytest.raises(fewpass.ServerError, match=r"missing\.parquet"):
        client.train([str(client.folder / "missing.parquet")], "class", model="none", learner="nb")
    url = str(client._http.base_url)
    with fewpass.Client(url, "fp_wrong") as stranger, pytest.raises(fewpass.ServerError, match="key"):
        stranger.models()
    nobody = fewpass.Client("http://127.0.0.1:9", timeout_s=5)
    with nobody, pytest.raises(fewpass.ServerError, match="does not answer"):
        nobody.models()
