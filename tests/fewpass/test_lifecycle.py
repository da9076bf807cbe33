"""A model's life in Python: saved, loaded, published, opened; and the same file in the service."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone

import fewpass
from fewpass.estimators import ESTIMATORS
from learners.errors import LearnerError
from service import product
from service.requests.problems import InvalidRequest
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import CorruptFile, InvalidName, NotFound

QUICK = {
    "spn": {"structure": "chow-liu", "leaves": "gaussian"},
    "gibbs": {"iterations": 20, "draws": 5},
    "xgboost": {"rounds": 5},
}
CLASSIFIERS = [name for name in ESTIMATORS if name != "orders"]


@pytest.fixture(scope="module")
def kdb(frame):
    return fewpass.KDB(k=2).fit(frame, "class")


def fitted(name, frame):
    made = ESTIMATORS[name](**QUICK.get(name, {}))
    return made.fit(frame) if name == "orders" else made.fit(frame, "class")


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_every_classifier_answers_as_before(name, frame, tmp_path):
    model = fitted(name, frame)
    rows = pd.concat([frame.head(50).drop(columns="class"), frame.head(20)[["size"]]])
    model.save(tmp_path / "model.fewpass")
    version = fewpass.publish(model, "income@champion", workspace=tmp_path / "workspace", tags={"by": "me"})
    assert (version.name, version.version, version.tags) == ("income", 1, {"by": "me"})
    loaded = fewpass.load(tmp_path / "model.fewpass")
    for again in (loaded, fewpass.open("income@champion", workspace=tmp_path / "workspace")):
        assert type(again) is type(model)
        assert np.array_equal(again.predict_proba(rows), model.predict_proba(rows))
        assert again.classes_.tolist() == model.classes_.tolist() == ["no", "yes"]
        assert again.feature_names_in_.tolist() == ["size", "word", "same", "small"]
        assert np.array_equal(again.feature_importances_, model.feature_importances_)
        assert again.target == "class"
        assert again.get_params() == loaded.get_params()
    assert np.array_equal(clone(loaded).fit(frame).predict_proba(rows), model.predict_proba(rows))


def test_sql_of_a_network_is_text_and_a_file(kdb, tmp_path):
    text = kdb.to_sql("people", dialect="bigquery", view="mart.odds", key="id", path=tmp_path / "odds.sql")
    assert text == (tmp_path / "odds.sql").read_text() and "CREATE VIEW `mart`.`odds` AS" in text
    assert text == kdb.to_sql("people", dialect="bigquery", view="mart.odds", key=["id"])


def reloaded(model, folder):
    model.save(folder / "model.fewpass")
    return fewpass.load(folder / "model.fewpass")


def test_posteriors_over_structures_too(frame, tmp_path):
    model = fitted("orders", frame.drop(columns="same"))
    loaded = reloaded(model, tmp_path)
    assert np.array_equal(loaded.edge_probabilities_, model.edge_probabilities_)
    assert loaded.query(fewpass.Edges()) == model.query(fewpass.Edges()) and loaded.to_network() == model.to_network()


def test_circuits_without_a_class_draw_rows_as_before(frame, tmp_path):
    model = fewpass.SumProductNetwork(structure="chow-liu", leaves="gaussian").fit(frame.drop(columns="class"))
    loaded = reloaded(model, tmp_path)
    assert loaded.sample(5, random_state=1).to_pandas().equals(model.sample(5, random_state=1))
    assert np.array_equal(loaded.score_samples(frame), model.score_samples(frame))


def test_columns_of_arrays_are_known_by_their_place(tmp_path):
    x = np.random.default_rng(0).normal(size=(100, 3))
    model = fewpass.NB().fit(x, (x[:, 1] > 0).astype(int))
    loaded = reloaded(model, tmp_path)
    assert np.array_equal(loaded.predict_proba(x), model.predict_proba(x)) and loaded.n_features_in_ == 3
    assert not hasattr(loaded, "feature_names_in_")


def test_a_process_that_knows_nothing_of_the_first_loads_it(kdb, frame, tmp_path):
    kdb.save(tmp_path / "model.fewpass")
    code = "import fewpass; print(*fewpass.load('model.fewpass').predict_proba({'word': 'u'})[0].tolist())"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [float(p) for p in done.stdout.split()] == kdb.predict_proba({"word": "u"})[0].tolist()


def test_the_service_takes_files_of_python_and_python_those_of_the_service(kdb, frame, tmp_path):
    kdb.save(tmp_path / "python.fewpass")
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "table.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as here:
        assert product.import_version(here, tmp_path / "python.fewpass", "mine").n_rows == 300
        data = {"uris": [str(tmp_path / "table.parquet")], "target": "class", "holdout": 0}
        product.train_model_version(here, TrainRequest(model="theirs", learner="kdb", parameters={"k": 2}, **data))
        product.write_export(here, "theirs", tmp_path / "service.tar")
        assert product.version_lineage(here, "mine")["libraries"]["fewpass"] == fewpass.__version__
    theirs = fewpass.load(tmp_path / "service.tar")
    opened = [fewpass.open(name, workspace=tmp_path / "workspace") for name in ("mine", "theirs@1")]
    for model in (theirs, *opened):
        assert np.array_equal(model.predict_proba(frame), kdb.predict_proba(frame)) and model.k == 2


def test_saved_files_are_not_replaced_unasked(kdb, tmp_path):
    path = tmp_path / "model.fewpass"
    path.write_text("mine")
    with pytest.raises(InvalidRequest, match=r"already exists\. Choose another name"):
        kdb.save(path)
    assert path.read_text() == "mine"
    kdb.save(path, replace=True)
    assert isinstance(fewpass.load(path), fewpass.KDB) and [p.name for p in tmp_path.iterdir()] == ["model.fewpass"]


def test_publishing_again_makes_the_next_version_and_moves_the_alias(kdb, tmp_path):
    assert [fewpass.publish(kdb, "a@champion", workspace=tmp_path).version for _ in range(2)] == [1, 2]
    with Workspace(Settings(workspace=tmp_path)) as here:
        assert product.aliases_of(here, "a") == {"champion": 2}


def test_loaded_models_have_no_rows_to_add_others_to(kdb, frame, tmp_path):
    loaded = reloaded(kdb, tmp_path)
    with pytest.raises(
        LearnerError,
        match=r"A loaded model cannot be updated, because it has no counts of its rows. Fit it again on all rows",
    ):
        loaded.partial_fit(frame, "class")
    assert loaded.fit(frame).partial_fit(frame).model_.facts["n_rows"] == 600


def damaged(path, change):
    """The members of a file, changed."""
    with tarfile.open(path) as tar:
        members = {info.name: tar.extractfile(info).read() for info in tar}
    manifest = json.loads(members["manifest.json"])
    change(manifest)
    members["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda manifest: manifest.update(format_version=2), r"its manifest is of format \('fewpass-model', 2\)"),
        (lambda manifest: manifest.update(sha256="0" * 64), "does not have the SHA-256 in its manifest"),
        (lambda manifest: manifest.pop("format"), "its manifest cannot be read"),
        (lambda manifest: manifest.update(n_rows=-1), "its manifest was not written by `export`"),
    ],
)
def test_damaged_and_later_files_are_refused(change, message, kdb, tmp_path):
    path = tmp_path / "model.fewpass"
    kdb.save(path)
    damaged(path, change)
    with pytest.raises(CorruptFile, match=message):
        fewpass.load(path)


def test_foreign_and_cut_files_are_refused(kdb, tmp_path):
    path = tmp_path / "model.fewpass"
    path.write_bytes(b"\x80\x04pickle")
    with pytest.raises(CorruptFile, match="it is not a tar file written by `export`"):
        fewpass.load(path)
    kdb.save(path, replace=True)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(CorruptFile, match="is damaged"):
        fewpass.load(path)
    with pytest.raises(NotFound, match=r"There is no file '.*/none.fewpass'"):
        fewpass.load(tmp_path / "none.fewpass")
    with pytest.raises(NotFound, match=r"There is no file '.*xx'"):
        fewpass.load(tmp_path / ("x" * 300))


def test_wrong_names_and_models_are_refused(kdb, tmp_path):
    for model, name, error, message in (
        (kdb, "income@3", InvalidRequest, "'income@3' names a version"),
        (kdb, "In come", InvalidName, "'In come' is not a valid name for a model"),
        (kdb, "income@latest", InvalidName, "'latest' is not a valid name for an alias"),
        ({}, "income", LearnerError, "dict is not an estimator of fewpass"),
    ):
        with pytest.raises(error, match=message):
            fewpass.publish(model, name, workspace=tmp_path)
    with pytest.raises(InvalidRequest, match="There is no workspace at"):
        fewpass.open("income", workspace=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    fewpass.publish(kdb, "income", workspace=tmp_path)
    with pytest.raises(NotFound, match="There is no model 'outcome'"):
        fewpass.open("outcome", workspace=tmp_path)
    assert not list(Path(tmp_path).glob("models/outcome*"))
