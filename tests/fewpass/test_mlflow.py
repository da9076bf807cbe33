"""Models in MLflow: logged, registered, served by its own server on loopback, and loaded back."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest

import fewpass
import fewpass.mlflow
from tests.processes import wait_for

mlflow = pytest.importorskip("mlflow", reason="MLflow is no part of dev: it asks for older libraries than the rest")
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
    with pytest.raises(fewpass.mlflow.NoAnswers, match="StructurePosterior answers queries and no rows"):
        fewpass.mlflow.log_model(posterior)
    with pytest.raises(fewpass.LearnerError, match="list is no estimator of fewpass"):
        fewpass.mlflow.log_model([])

    class Foreign(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input: list[str]):
            return model_input

    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(name="foreign", python_model=Foreign(), pip_requirements=[])
    with pytest.raises(fewpass.mlflow.NotOurs, match=r"was not logged by fewpass\.mlflow\.log_model"):
        fewpass.mlflow.load_model(info.model_uri)


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
