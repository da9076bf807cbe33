"""The command line as subprocesses: what a user types, sees, and gets as exit code."""

import json
import os
import re
import signal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.settings import Settings
from tests.processes import children_of, ended, wait_for
from tests.service import forks
from tests.service.forks import local_server


def fewpass(*arguments, workspace, code=0):
    done = forks.run([*map(str, arguments)], os.environ | {"FEWPASS_WORKSPACE": str(workspace)})
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, weather_files):
    workspace = tmp_path_factory.mktemp("cli") / "workspace"
    command = ["train", weather_files[0], "--target", "class", "--learner", "nb", "--name", "weather", "--json"]
    version = json.loads(fewpass(*command, workspace=workspace).stdout)
    assert version["name"] == "weather" and version["version"] == 1
    assert version["metrics"]["zero_one_loss"] < 0.3
    return workspace


def test_predict_writes_a_parquet_file_and_keeps_an_existing_one(workspace, weather_files, tmp_path):
    scored = tmp_path / "scored.parquet"
    command = ["predict", "weather", weather_files[1], "--out", scored, "--keep", "outlook"]
    summary = json.loads(fewpass(*command, "--json", workspace=workspace).stdout)
    assert summary["n_rows"] == 500
    table = pq.read_table(scored)
    assert table.column_names == ["outlook", "prediction", "probability_no", "probability_yes"]
    failed = fewpass(*command, workspace=workspace, code=1)
    assert "--force" in failed.stderr and len(failed.stderr.strip().splitlines()) == 1
    fewpass(*command, "--force", workspace=workspace)
    assert [path.name for path in tmp_path.iterdir()] == ["scored.parquet"]


def test_predict_looks_at_the_model_s_columns_only(workspace, weather_files, tmp_path):
    """Columns that are absent are told with those that resemble them; a class that is null or new does not matter."""
    table = pq.read_table(weather_files[1]).slice(0, 20)
    classes = pa.array([None, "never"] * 10)
    names = ["outlok" if name == "outlook" else name for name in table.column_names]
    changed = table.set_column(names.index("class"), "class", classes).rename_columns(names)
    pq.write_table(changed, tmp_path / "changed.parquet")
    told = fewpass(
        "predict", "weather", tmp_path / "changed.parquet", "--out", tmp_path / "a.parquet", workspace=workspace
    )
    assert "The data lacks columns of the model: 'outlook' (similar: outlok)." in " ".join(told.stderr.split())
    assert pq.read_table(tmp_path / "a.parquet").num_rows == 20
    pq.write_table(table.select(["station"]), tmp_path / "others.parquet")
    told = fewpass(
        "predict", "weather", tmp_path / "others.parquet", "--out", tmp_path / "b.parquet", workspace=workspace, code=1
    )
    assert "none of the model's columns" in told.stderr


@pytest.mark.parametrize("name", ["scored.csv", "scored.json"])
def test_predict_does_not_write_parquet_under_the_name_of_something_else(workspace, weather_files, tmp_path, name):
    scored = tmp_path / name
    failed = fewpass("predict", "weather", weather_files[1], "--out", scored, workspace=workspace, code=1)
    assert "Parquet" in failed.stderr and "scored.parquet" in failed.stderr and not scored.exists()


def test_evaluate_models_and_schema_print_json_and_tables(workspace, weather_files):
    metrics = json.loads(fewpass("evaluate", "weather@1", weather_files[1], "--json", workspace=workspace).stdout)
    assert metrics["n_test_rows"] == 500 and 0 < metrics["log_loss"] < 1
    told = fewpass("evaluate", "weather", weather_files[1], workspace=workspace).stdout
    assert "share of wrong answers" in told and re.search(r"^weather@1: right \d\d\.\d%, log loss \.?\d", told)
    pq.write_table(pq.read_table(weather_files[1]).drop_columns(["outlook"]), workspace / "fewer.parquet")
    told = fewpass("evaluate", "weather", workspace / "fewer.parquet", workspace=workspace)
    assert (
        "The data lacks columns of the model: 'outlook'" in " ".join(told.stderr.split())
        and "share of wrong answers" in told.stdout
    )
    assert json.loads(fewpass("models", "--json", workspace=workspace).stdout)[0]["name"] == "weather"
    assert "weather" in fewpass("models", workspace=workspace).stdout
    assert json.loads(fewpass("models", "alias", "weather@1", "best", "--json", workspace=workspace).stdout) == {
        "best": 1
    }
    assert json.loads(fewpass("models", "show", "weather@best", "--json", workspace=workspace).stdout)["version"] == 1
    assert json.loads(fewpass("models", "structure", "weather", "--json", workspace=workspace).stdout)["edges"]
    schema = json.loads(fewpass("schema", weather_files[0], "--target", "class", "--json", workspace=workspace).stdout)
    assert schema["classes"] == ["no", "yes"]
    assert "station" in fewpass("schema", weather_files[0], "-t", "class", workspace=workspace).stdout
    assert json.loads(fewpass("jobs", "--json", workspace=workspace).stdout) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "/no/such.parquet", "-t", "class", "-n", "m"], "/no/such.parquet"),
        (["train", "{train}", "-t", "clas", "-n", "m"], "'clas'"),
        (["train", "{train}", "-t", "class", "-n", "m", "-l", "magic"], "magic"),
        (["train", "{train}", "-t", "class", "-n", "m", "-l", "nb", "--set", "depth=3"], "depth"),
        (["predict", "nothing", "{train}", "--out", "x.parquet"], "nothing"),
        (["evaluate", "weather@9", "{train}"], "weather@9"),
        (["models", "show", "nothing"], "nothing"),
        (["models", "delete", "weather@best"], "best"),
        (["jobs", "show", "job-1"], "job-1"),
    ],
)
def test_failures_are_one_clear_line_and_exit_code_1(workspace, weather_files, arguments, words):
    filled = [argument.replace("{train}", str(weather_files[0])) for argument in arguments]
    failed = fewpass(*filled, workspace=workspace, code=1)
    assert words in failed.stderr and len(failed.stderr.strip().splitlines()) == 1, failed.stderr
    failed = fewpass(*filled, "--json", workspace=workspace, code=1)
    assert words in json.loads(failed.stderr)["detail"] and failed.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["models"],
        ["models", "show", "weather"],
        ["jobs"],
        ["schedules"],
        ["keys", "list"],
        ["query", "weather", "marginal"],
        ["predict", "weather", "x.parquet", "--out", "y.parquet"],
        ["evaluate", "weather", "x.parquet"],
        ["forget", "weather", "--where", "a = 1"],
        ["backup", "b.tar"],
    ],
)
def test_a_mistyped_workspace_is_not_made(tmp_path, arguments):
    nowhere = tmp_path / "wrokspace"
    failed = fewpass(*arguments, workspace=nowhere, code=1)
    assert f"no workspace at {nowhere}" in " ".join(failed.stderr.split()) and not nowhere.exists()


def test_a_wrong_command_line_is_exit_code_2(workspace):
    fewpass("train", "x.parquet", workspace=workspace, code=2)
    fewpass("dance", workspace=workspace, code=2)


def test_serve_ends_its_workers(tmp_path):
    with local_server(Settings(workspace=tmp_path / "workspace", warm_up=False)) as server:
        (worker,) = wait_for(lambda: children_of(server.pid, "worker"))
        os.kill(server.pid, signal.SIGTERM)
        wait_for(lambda: ended([worker.pid]))


def test_a_cluster_learns_a_stream_in_shards(tmp_path):
    """One for each worker, once the first 20,000 rows are learned."""
    rows = [i * i % 7 % 2 for i in range(24_000)]
    table = pa.table({"a": rows, "b": rows[1:] + rows[:1]})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2000)
    command = ["train", tmp_path / "rows.parquet", "--learner", "spn", "--set", "learning=bmm", "--set", "states=2"]
    command += ["--holdout", 0]
    done = fewpass(*command, "--name", "pairs", "--cluster", "local:2", "--json", workspace=tmp_path / "workspace")
    assert json.loads(done.stdout)["name"] == "pairs"
    told = json.loads(fewpass("models", "structure", "pairs", "--json", workspace=tmp_path / "workspace").stdout)
    assert told["facts"] == {"shards": 2}
