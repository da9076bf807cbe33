"""Dirty CSV through the product: what training says, and what the model remembers."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from learners.errors import SchemaError, SourceError
from service import product
from service.http.app import create_app
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service.cli.test_cli import fewpass


def dirty(path, n_rows=400):
    values = [str(row // 4) for row in range(n_rows)]
    values[7] = "?"
    path.write_text("x,y\n" + "".join(f"{value},{'ab'[2 * row // n_rows]}\n" for row, value in enumerate(values)))
    return path


def train(workspace, path, **known):
    told: list[str] = []
    request = TrainRequest(uris=[str(path)], target="y", learner="nb", model="dirty", holdout=0, **known)
    product.train_and_report_passes(workspace, request, lambda _: None, told.append)
    return told


def test_training_tells_the_row_and_the_model_remembers_the_option(tmp_path):
    path = dirty(tmp_path / "t.csv")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        told = train(workspace, path)
        assert any("399 of 400 values of 'x' are numbers; row 8 holds '?'" in warning for warning in told)
        told = train(workspace, path, columns={"*": {"missing": ["?"]}})
        assert not any("holds" in warning for warning in told)
        out = tmp_path / "out.parquet"
        assert product.predict_files(workspace, "dirty", [str(path)], out) == 400
        assert pq.read_table(out)["prediction"].to_pylist()[:7] == ["a"] * 7
        path.write_text("x,y\n1,a\n2,a\n-,a\n")
        with pytest.raises(
            SourceError, match=r"t\.csv: the model needs numbers in column 'x'\. 2 of 3 .*row 3 holds '-'"
        ):
            product.predict_files(workspace, "dirty", [str(path)], tmp_path / "more.parquet")


def test_where_no_column_is_left_the_error_says_which_value_made_it_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{row},{'ab'[row // 50]}\n" for row in range(99)) + "?,b\n")
    with (
        Workspace(Settings(workspace=tmp_path / "workspace")) as workspace,
        pytest.raises(SchemaError, match=r"an identifier.* 99 of 100 values of 'x' are numbers; row 100 holds '\?'"),
    ):
        train(workspace, path)


def test_dialect_and_null_classes_are_said_once_and_the_model_remembers_them(tmp_path):
    path, workspace = tmp_path / "survey.csv", tmp_path / "workspace"
    rows = "Orléans^f^1^oui\nNancy^m^2^non\nLille^m^3^\n" * 50
    path.write_bytes(("Survey of 2024\n\nville^sexe^sexe^réponse\n" + rows).encode("latin-1"))
    written = {"delimiter": "^", "encoding": "latin-1", "header": 3, "names": "unique"}
    train = ["train", path, "-t", "réponse", "-l", "nb", "-n", "survey"]

    def refused(*more):
        return " ".join(fewpass(*train, *more, workspace=workspace, code=1).stderr.split())

    assert '{"*": {"encoding": "windows-1252"}}' in refused()
    assert '{"réponse": {"null_class": "drop"}}' in refused("--columns", json.dumps({"*": written}))
    said = {"*": written, "réponse": {"null_class": "drop"}}
    options = ["--null-class", "drop", "--columns-of", "first"]
    fewpass(*train, "--columns", json.dumps({"*": written}), *options, workspace=workspace)
    metrics = json.loads(fewpass("evaluate", "survey", path, "--json", workspace=workspace).stdout)
    assert metrics["n_test_rows"] == 100 and metrics["log_loss"] < 0.1
    fewpass("predict", "survey", path, "-o", tmp_path / "out.parquet", "--keep", "ville", workspace=workspace)
    assert pq.read_table(tmp_path / "out.parquet").slice(0, 2).select(["ville", "prediction"]).to_pydict() == {
        "ville": ["Orléans", "Nancy"], "prediction": ["oui", "non"]
    }  # fmt: skip
    with TestClient(create_app(Settings(workspace=workspace)), base_url="http://127.0.0.1") as client:
        asked = {"name": "survey", "uris": [str(path)], "target": "réponse"}
        some = {"*": {"encoding": "latin-1", "delimiter": "^"}}
        answer = client.post("/v1/datasets", json=asked | {"columns": some})
        assert answer.status_code == 422 and "has 1 names in its first line" in answer.json()["detail"]
        assert client.post("/v1/datasets", json=asked | {"columns": said}).status_code == 201
        schema = client.get("/v1/datasets/survey/schema").json()
        assert [each["name"] for each in schema["attributes"]] == ["ville", "sexe", "sexe_2"]
        assert schema["classes"] == ["non", "oui"]
        (tmp_path / "more.csv").write_text(
            path.read_bytes().decode("latin-1").replace("sexe^sexe", "sexe^âge"), "latin-1"
        )
        asked |= {"name": "both", "uris": [str(path), str(tmp_path / "more.csv")], "columns": said}
        answer = client.post("/v1/datasets", json=asked)
        assert answer.status_code == 422 and '{"*": {"columns_of": "union"}}' in answer.json()["detail"]
        asked["columns"] = said | {"*": written | {"columns_of": "union"}}
        assert client.post("/v1/datasets", json=asked).status_code == 201
        schema = client.get("/v1/datasets/both/schema").json()
        assert [each["name"] for each in schema["attributes"]] == ["ville", "sexe", "sexe_2", "âge"]


def test_weights_count_rows_as_if_repeated_and_a_refresh_goes_on_with_them(tmp_path):
    folder, rng = tmp_path / "rows", np.random.default_rng(0)
    folder.mkdir()
    weighted = {"n": {"weight": True}}

    def write(name):
        x, n = rng.choice(["a", "b", "c"], 200), rng.integers(0, 4, 200)
        y = np.where((x == "a") ^ (rng.random(200) < 0.2), "yes", "no")
        pq.write_table(
            pa.table({"x": x, "z": rng.normal(size=200) + (y == "yes"), "n": n, "y": y}), folder / f"{name}.parquet"
        )

    write("1")
    fewpass(
        *("train", folder, "-t", "y", "-l", "kdb", "-n", "dirty", "--holdout", 0, "--weight", "n", "--update"),
        workspace=tmp_path / "workspace",
    )
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:

        def answers(files=folder, *, update=False, **known):
            request = TrainRequest(
                uris=[str(files)], target="y", learner="kdb", model="dirty", holdout=0, update=update, **known
            )
            product.train_model_version(workspace, request)
            return predictions()

        def predictions():
            product.predict_files(workspace, "dirty", [str(folder)], tmp_path / "out.parquet", replace=True)
            return pq.read_table(tmp_path / "out.parquet").to_pylist()

        def repeated():
            table = pq.read_table(folder)
            whole = table.drop(["n"]).take(pa.array(np.repeat(np.arange(table.num_rows), table["n"].to_numpy())))
            pq.write_table(whole, tmp_path / "whole.parquet")
            return tmp_path / "whole.parquet"

        of_command = predictions()
        plain = answers(columns={"n": "drop"})
        assert of_command == answers(repeated()) != plain
        answers(update=True, columns=weighted)
        write("2")
        refreshed = answers(update=True)  # what was said of the columns still holds
        schema = product.load_served_model(workspace, "dirty").schema
        assert refreshed != of_command and [entry.name for entry in schema.left_out] == ["n"]
        assert product.load_served_model(workspace, "dirty").model.facts["n_rows"] == pq.read_table(repeated()).num_rows
        with pytest.raises(SchemaError, match=r"1\.parquet: Column 'z' is the weight of the rows"):
            answers(columns={"z": {"weight": True}})
        answers(update=True, columns={"n": {}, "z": "drop"})
        left_out = product.load_served_model(workspace, "dirty").schema.left_out
        assert "the weight of the rows" not in {entry.reason for entry in left_out}, "an empty entry takes it back"
