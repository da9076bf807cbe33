"""Models in MLflow: logged, registered, served by its own server on loopback, and loaded back."""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import fewpass
import fewpass.mlflow
from service import product
from service.cli import app
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.processes import wait_for

mlflow = pytest.importorskip("mlflow", reason="MLflow asks for older libraries than our pins: `make interchange`")
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    late = rng.random(600) < 0.3
    frame = pd.DataFrame({"stops": rng.poisson(np.where(late, 6, 3)), "where": rng.choice(["north", "south"], 600)})
    return frame.assign(late=late.astype(str))


@pytest.fixture(scope="module")
def model(frame):
    return fewpass.KDB(k=1).fit(frame, "late")


@pytest.fixture(scope="module")
def logged(frame, model, tmp_path_factory):
    """What `log_fit` tells of a run in a store of its own."""
    folder = tmp_path_factory.mktemp("mlflow")
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment(
        experiment_id=mlflow.create_experiment("late", artifact_location=(folder / "artifacts").as_uri())
    )
    with mlflow.start_run():
        example = frame.drop(columns="late")
        return fewpass.mlflow.log_fit(model, frame, input_example=example, registered_model_name="late")


def test_a_run_remembers_parameters_metrics_and_the_report(logged):
    run = mlflow.get_run(logged.run_id)
    assert run.data.params["learner"] == "kdb" and run.data.params["k"] == "1"
    assert run.data.metrics["n_rows"] == 600 and 0 < run.data.metrics["log_loss"] < 0.7
    assert "Right" in run.data.tags["verdict"]
    assert "<html" in mlflow.artifacts.load_text(f"{run.info.artifact_uri}/report.html")


def test_a_logged_model_answers_as_before(logged, frame, model):
    rows = frame.drop(columns="late")
    expected = model.predict_proba(rows)
    again = fewpass.mlflow.load_model("models:/late/1")
    assert isinstance(again, fewpass.KDB) and np.array_equal(again.predict_proba(rows), expected)
    answers = mlflow.pyfunc.load_model("models:/late/1")
    told = answers.predict(rows)
    assert list(told) == ["prediction", "probability_False", "probability_True"]
    assert np.array_equal(told.iloc[:, 1:].to_numpy(), expected)
    assert told["prediction"].tolist() == model.predict(rows).tolist()
    holes = rows.astype({"stops": float}).assign(stops=np.nan)
    assert np.array_equal(answers.predict(holes).iloc[:, 1:].to_numpy(), model.predict_proba(holes))
    assert answers.predict(rows[["where"]]).shape == (600, 3)
    assert logged.signature.outputs.input_names() == list(told)


def test_circuits_without_a_class_tell_how_likely_rows_are(logged, frame):
    circuit = fewpass.SumProductNetwork().fit(frame)
    with mlflow.start_run():
        info = fewpass.mlflow.log_model(circuit, "circuit")
    told = mlflow.pyfunc.load_model(info.model_uri).predict(frame)
    assert np.allclose(told["log_likelihood"], circuit.score_samples(frame))


def test_what_answers_no_rows_or_is_not_ours_is_refused(logged, frame):
    posterior = fewpass.StructurePosterior().fit(frame[["where", "late"]])
    with pytest.raises(
        fewpass.mlflow.NoAnswers,
        match=r"StructurePosterior answers queries only, so MLflow cannot serve it. Log the file that `save` or `fewpass models export` writes with mlflow.log_artifact",
    ):
        fewpass.mlflow.log_model(posterior)
    with pytest.raises(fewpass.LearnerError, match="list is not an estimator of fewpass"):
        fewpass.mlflow.log_model([])

    class Foreign(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input):
            return model_input

    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(name="foreign", python_model=Foreign(), pip_requirements=[])
    with pytest.raises(fewpass.mlflow.NotOurs, match=r"was not logged by fewpass\.mlflow\.log_model"):
        fewpass.mlflow.load_model(info.model_uri)


def test_nothing_is_left_of_what_was_loaded(logged, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fewpass.mlflow.load_model("models:/late/1")
    with pytest.raises(fewpass.mlflow.MLflowRefused, match=r"nowhere: MLflow says: .*Check the name"):
        fewpass.mlflow.load_model((tmp_path / "nowhere").as_uri())
    assert not list(tmp_path.iterdir())


def fewpass_models(*words):
    return CliRunner().invoke(app, ["models", *words])


def test_commands_take_versions_to_its_registry_and_back(logged, frame, tmp_path):
    path, place = tmp_path / "late.parquet", str(tmp_path / "workspace")
    frame.to_parquet(path)
    with Workspace(Settings(workspace=Path(place), threads=1)) as workspace:
        asked = TrainRequest(uris=[str(path)], target="late", learner="kdb", parameters={"k": 1}, model="late")
        version = product.train_model_version(workspace, asked)
    done = fewpass_models("export", "late@1", "--out", "models:/late-by-command", "-w", place, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["out"] == "models:/late-by-command/1"
    answers = mlflow.pyfunc.load_model("models:/late-by-command/1")
    rows = frame.drop(columns="late").head(5)
    expected = fewpass.open("late@1", workspace=place).predict_proba(rows)
    assert np.array_equal(answers.predict(rows).iloc[:, 1:], expected)
    run = mlflow.get_run(answers.metadata.run_id)
    assert run.data.params["k"] == "1" and run.data.tags["fewpass"] == "late@1"
    assert run.data.metrics["log_loss"] == pytest.approx(version.metrics["log_loss"])
    assert "<html" in mlflow.artifacts.load_text(f"{run.info.artifact_uri}/report.html")
    back = fewpass_models("import", "models:/late-by-command/1", "--name", "again", "-w", place)
    assert back.exit_code == 0 and "imported as again@1" in back.output
    assert np.array_equal(fewpass.open("again@1", workspace=place).predict_proba(rows), expected)


def test_what_commands_cannot_take_is_told(logged, frame, tmp_path):
    fewpass.publish(fewpass.StructurePosterior().fit(frame[["where", "late"]]), "posterior", workspace=tmp_path)
    for words, told in {
        ("import", "models:/nobody/1"): "models:/nobody/1: MLflow says: .*Check the name",
        (
            "export",
            "posterior",
            "--out",
            "models:/posterior",
        ): "posterior@1 answers queries only, so MLflow cannot serve it. Log the file that `save` or `fewpass models export` writes with mlflow.log_artifact",
        (
            "export",
            "posterior",
            "--out",
            "models:/posterior/3",
        ): "does not name a model. Write models:/NAME; MLflow assigns the version number",
    }.items():
        assert re.search(told, str(fewpass_models(*words, "-w", str(tmp_path)).exception), re.DOTALL), words


def test_autolog_makes_a_run_of_each_fit(logged, frame):
    fewpass.mlflow.autolog()
    try:
        with mlflow.start_run() as outer:
            for k in (1, 2):
                fewpass.KDB(k=k).fit(frame, "late")
            fewpass.StructurePosterior().fit(frame[["where", "late"]])
    finally:
        fewpass.mlflow.autolog(disable=True)
    found = mlflow.search_runs(filter_string=f"tags.`mlflow.parentRunId` = '{outer.info.run_id}'")
    assert sorted(found["params.learner"]) == ["kdb", "kdb", "orders"]
    assert (found["metrics.training_log_loss"].dropna() < 0.7).sum() == 2
    n_runs = len(mlflow.search_runs())
    fewpass.KDB(k=1).fit(frame, "late")
    assert len(mlflow.search_runs()) == n_runs


@pytest.mark.faults
def test_mlflow_serves_a_logged_model(logged, frame, model):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "models", "serve", "-m", "models:/late/1", "--env-manager", "local"]
    environment = os.environ | {"MLFLOW_TRACKING_URI": mlflow.get_tracking_uri(), "PYTHONPATH": str(ROOT)}
    environment["PATH"] = os.pathsep.join((str(Path(sys.executable).parent), environment["PATH"]))
    server = subprocess.Popen([*command, "-h", "127.0.0.1", "-p", str(port)], env=environment, start_new_session=True)
    try:

        def answers():
            try:
                return httpx.get(f"http://127.0.0.1:{port}/ping").status_code == 200
            except httpx.TransportError:
                assert server.poll() is None
                return False

        wait_for(answers)
        rows = frame.drop(columns="late").head(20)
        asked = {"dataframe_split": rows.to_dict(orient="split")}
        told = httpx.post(f"http://127.0.0.1:{port}/invocations", json=asked, timeout=60).json()["predictions"]
        assert [row["probability_True"] for row in told] == pytest.approx(model.predict_proba(rows)[:, 1].tolist())
    finally:
        os.killpg(server.pid, 15)
        server.wait()
