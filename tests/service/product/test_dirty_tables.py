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
from service.settings import Settings
from tests.service.asking import learned, training
from tests.support.cli import fewpass


def dirty(path, n_rows=400):
    values = [str(row // 4) for row in range(n_rows)]
    values[7] = "?"
    path.write_text("x,y\n" + "".join(f"{value},{'ab'[2 * row // n_rows]}\n" for row, value in enumerate(values)))
    return path


def train(workspace, path, **known):
    warnings: list[str] = []
    request = training(path, "dirty", target="y", holdout=0, **known)
    product.train_and_report_passes(workspace, request, lambda _: None, warnings.append)
    return warnings


def test_training_tells_the_row_and_the_model_remembers_the_option(workspace, tmp_path):
    path = dirty(tmp_path / "t.csv")
    told = train(workspace, path)
    assert any("399 of 400 values of 'x' are numbers; row 8 holds '?'" in warning for warning in told)
    told = train(workspace, path, columns={"*": {"missing": ["?"]}})
    assert not any("holds" in warning for warning in told)
    out = tmp_path / "out.parquet"
    assert product.predict_files(workspace, "dirty", [str(path)], out) == 400
    assert pq.read_table(out)["prediction"].to_pylist()[:7] == ["a"] * 7
    path.write_text("x,y\n1,a\n2,a\n-,a\n")
    reason = r"t\.csv: the model needs numbers in column 'x'\. 2 of 3 .*row 3 holds '-'"
    with pytest.raises(SourceError, match=reason):
        product.predict_files(workspace, "dirty", [str(path)], tmp_path / "more.parquet")


def test_where_no_column_is_left_the_error_says_which_value_made_it_text(workspace, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{row},{'ab'[row // 50]}\n" for row in range(99)) + "?,b\n")
    with pytest.raises(SchemaError, match=r"an identifier.* 99 of 100 values of 'x' are numbers; row 100 holds '\?'"):
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
    first = pq.read_table(tmp_path / "out.parquet").slice(0, 2).select(["ville", "prediction"])
    assert first.to_pydict() == {"ville": ["Orléans", "Nancy"], "prediction": ["oui", "non"]}
    with TestClient(create_app(Settings(workspace=workspace)), base_url="http://127.0.0.1") as client:

        def registered(name, columns, *paths, status=201):
            body = {"name": name, "uris": list(map(str, paths)), "target": "réponse", "columns": columns}
            answer = client.post("/v1/datasets", json=body)
            assert answer.status_code == status, answer.text
            return answer.json()["detail"] if status == 422 else client.get(f"/v1/datasets/{name}/schema").json()

        refusal = registered("survey", {"*": {"encoding": "latin-1", "delimiter": "^"}}, path, status=422)
        assert "has 1 names in its first line" in refusal
        schema = registered("survey", said, path)
        assert [each["name"] for each in schema["attributes"]] == ["ville", "sexe", "sexe_2"]
        assert schema["classes"] == ["non", "oui"]
        more = tmp_path / "more.csv"
        more.write_bytes(path.read_bytes().replace(b"sexe^sexe", "sexe^âge".encode("latin-1")))
        assert '{"*": {"columns_of": "union"}}' in registered("both", said, path, more, status=422)
        schema = registered("both", said | {"*": written | {"columns_of": "union"}}, path, more)
        assert [each["name"] for each in schema["attributes"]] == ["ville", "sexe", "sexe_2", "âge"]


def test_weights_count_rows_as_if_repeated_and_a_refresh_goes_on_with_them(workspace, tmp_path):
    folder, rng = tmp_path / "rows", np.random.default_rng(0)
    folder.mkdir()
    weighted = {"n": {"weight": True}}

    def write(name):
        x, n = rng.choice(["a", "b", "c"], 200), rng.integers(0, 4, 200)
        y = np.where((x == "a") ^ (rng.random(200) < 0.2), "yes", "no")
        z = rng.normal(size=200) + (y == "yes")
        pq.write_table(pa.table({"x": x, "z": z, "n": n, "y": y}), folder / f"{name}.parquet")

    def predictions():
        product.predict_files(workspace, "dirty", [str(folder)], tmp_path / "out.parquet", replace=True)
        return pq.read_table(tmp_path / "out.parquet").to_pylist()

    def answers(files=folder, *, update=False, **known):
        learned(workspace, files, "dirty", "kdb", "y", holdout=0, update=update, **known)
        return predictions()

    def repeated():
        table = pq.read_table(folder)
        whole = table.drop(["n"]).take(pa.array(np.repeat(np.arange(table.num_rows), table["n"].to_numpy())))
        pq.write_table(whole, tmp_path / "whole.parquet")
        return tmp_path / "whole.parquet"

    write("1")
    train = ["train", folder, "-t", "y", "-l", "kdb", "-n", "dirty", "--holdout", 0, "--weight", "n", "--update"]
    fewpass(*train, workspace=workspace.layout.root)
    of_command = predictions()
    plain = answers(columns={"n": "drop"})
    assert of_command == answers(repeated()) != plain
    answers(update=True, columns=weighted)
    write("2")
    refreshed = answers(update=True)  # what was said of the columns still holds
    served = product.load_served_model(workspace, "dirty")
    assert refreshed != of_command and [entry.name for entry in served.schema.left_out] == ["n"]
    assert served.model.facts["n_rows"] == pq.read_table(repeated()).num_rows
    with pytest.raises(SchemaError, match=r"1\.parquet: Column 'z' is the row weight and holds"):
        answers(columns={"z": {"weight": True}})
    answers(update=True, columns={"n": {}, "z": "drop"})
    left_out = product.load_served_model(workspace, "dirty").schema.left_out
    assert "the weight of the rows" not in {entry.reason for entry in left_out}, "an empty entry takes it back"
