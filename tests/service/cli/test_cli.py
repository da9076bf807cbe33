"""The command line as subprocesses: what a user types, sees, and gets as exit code."""

import json
import os
import re
import signal

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from service.settings import Settings
from tests.processes import children_of, ended, wait_for
from tests.service.forks import local_server
from tests.support.cli import as_json, fewpass, said


@pytest.fixture(scope="module")
def workspace(tmp_path_factory, weather_files):
    workspace = tmp_path_factory.mktemp("cli") / "workspace"
    command = ["train", weather_files[0], "--target", "class", "--learner", "nb", "--name", "weather"]
    version = as_json(*command, workspace=workspace)
    assert version["name"] == "weather" and version["version"] == 1
    assert version["metrics"]["zero_one_loss"] < 0.3
    return workspace


def test_predict_writes_a_parquet_file_and_keeps_an_existing_one(workspace, weather_files, tmp_path):
    scored = tmp_path / "scored.parquet"
    command = ["predict", "weather", weather_files[1], "--out", scored, "--keep", "outlook"]
    assert as_json(*command, workspace=workspace)["n_rows"] == 500
    table = pq.read_table(scored)
    assert table.column_names == ["outlook", "prediction", "probability_no", "probability_yes"]
    failed = fewpass(*command, workspace=workspace, code=1)
    assert "--force" in failed.stderr and len(failed.stderr.strip().splitlines()) == 1
    fewpass(*command, "--force", workspace=workspace)
    assert [path.name for path in tmp_path.iterdir()] == ["scored.parquet"]
    for name in ("scored.xlsx", "scored.json"):  # Parquet under the name of something else
        other = ["predict", "weather", weather_files[1], "--out", tmp_path / name]
        failed = fewpass(*other, workspace=workspace, code=1).stderr
        assert "Parquet" in failed and "scored.parquet" in failed and not (tmp_path / name).exists()


def test_predict_writes_csv_where_the_output_is_called_so(workspace, weather_files, tmp_path):
    for name in ("scored.csv", "scored.parquet"):
        fewpass("predict", "weather", weather_files[1], "-o", tmp_path / name, "--keep", "station", workspace=workspace)
    tables = pa.csv.read_csv(tmp_path / "scored.csv"), pq.read_table(tmp_path / "scored.parquet")
    assert tables[0].column_names == tables[1].column_names and tables[0].num_rows == 500
    assert tables[0]["probability_yes"].to_pylist() == tables[1]["probability_yes"].to_pylist()
    lists = fewpass(
        "predict", "weather", weather_files[1], "-o", tmp_path / "l.csv", "--top-k", 1, workspace=workspace, code=1
    )
    assert "Name the output .parquet" in " ".join(lists.stderr.split()) and not (tmp_path / "l.csv").exists()


def test_predict_looks_at_the_model_s_columns_only(workspace, weather_files, tmp_path):
    """Columns that are absent are told with those that resemble them; a class that is null or new does not matter."""

    def warning_of(table, name, code=0):
        pq.write_table(table, tmp_path / name)
        command = ["predict", "weather", tmp_path / name, "--out", tmp_path / "scored.parquet", "--force"]
        return " ".join(fewpass(*command, workspace=workspace, code=code).stderr.split())

    table = pq.read_table(weather_files[1]).slice(0, 20)
    classes = pa.array([None, "never"] * 10)
    names = ["outlok" if name == "outlook" else name for name in table.column_names]
    changed = table.set_column(names.index("class"), "class", classes).rename_columns(names)
    words = "The data lacks columns of the model: 'outlook' (similar: outlok)."
    assert words in warning_of(changed, "changed.parquet")
    assert pq.read_table(tmp_path / "scored.parquet").num_rows == 20
    hail = table.set_column(table.column_names.index("outlook"), "outlook", pa.array(["hail"] * 20))
    unseen = "Column 'outlook' has only values that training never had, such as 'hail' (known: "
    assert unseen in warning_of(hail, "hail.parquet") and unseen not in warning_of(table, "known.parquet")
    assert "none of the model's columns" in warning_of(table.select(["station"]), "others.parquet", code=1)


def test_evaluate_models_and_schema_print_json_and_tables(workspace, weather_files):
    train, test = weather_files
    metrics = as_json("evaluate", "weather@1", test, workspace=workspace)
    assert metrics["n_test_rows"] == 500 and 0 < metrics["log_loss"] < 1
    table = said("evaluate", "weather", test, workspace=workspace)
    assert "share of wrong answers" in table and re.search(
        r"^weather@1: right \d\d\.\d% \(largest class \d\d\.\d%\), log loss \.?\d", table
    )
    pq.write_table(pq.read_table(test).drop_columns(["outlook"]), workspace / "fewer.parquet")
    fewer = fewpass("evaluate", "weather", workspace / "fewer.parquet", workspace=workspace)
    assert "The data lacks columns of the model: 'outlook'" in " ".join(fewer.stderr.split())
    assert "share of wrong answers" in fewer.stdout
    assert as_json("models", workspace=workspace)[0]["name"] == "weather"
    assert "weather" in said("models", workspace=workspace)
    assert as_json("models", "alias", "weather@1", "best", workspace=workspace) == {"best": 1}
    assert as_json("models", "show", "weather@best", workspace=workspace)["version"] == 1
    assert as_json("models", "structure", "weather", workspace=workspace)["edges"]
    assert as_json("schema", train, "--target", "class", workspace=workspace)["classes"] == ["no", "yes"]
    assert "station" in said("schema", train, "-t", "class", workspace=workspace)
    assert as_json("jobs", workspace=workspace) == []


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("train /no/such.parquet -t class -n m", "/no/such.parquet"),
        ("train {train} -t clas -n m", "'clas'"),
        ("train {train} -t class -n m -l magic", "magic"),
        ("train {train} -t class -n m -l nb --set depth=3", "depth"),
        ("predict nothing {train} --out x.parquet", "nothing"),
        ("evaluate weather@9 {train}", "weather@9"),
        ("models show nothing", "nothing"),
        ("models delete weather@best", "best"),
        ("jobs show job-1", "job-1"),
    ],
)
def test_failures_are_one_clear_line_and_exit_code_1(workspace, weather_files, command, words):
    arguments = command.format(train=weather_files[0]).split()
    failed = fewpass(*arguments, workspace=workspace, code=1)
    assert words in failed.stderr and len(failed.stderr.strip().splitlines()) == 1, failed.stderr
    failed = fewpass(*arguments, "--json", workspace=workspace, code=1)
    assert words in json.loads(failed.stderr)["detail"] and failed.stdout == ""


LOOKING = ["models", "models show weather", "jobs", "schedules", "keys list", "query weather marginal", "backup b.tar"]


LOOKING += ["predict weather x.parquet --out y.parquet", "evaluate weather x.parquet", "forget weather --where a=1"]


@pytest.mark.parametrize("command", LOOKING)
def test_a_mistyped_workspace_is_not_made(tmp_path, command):
    nowhere = tmp_path / "wrokspace"
    failed = fewpass(*command.split(), workspace=nowhere, code=1)
    assert f"no workspace at {nowhere}" in " ".join(failed.stderr.split()) and not nowhere.exists()


def test_a_wrong_command_line_is_exit_code_2(workspace):
    fewpass("train", "x.parquet", workspace=workspace, code=2)
    fewpass("dance", workspace=workspace, code=2)


@pytest.mark.parametrize(
    ("group", "asked"), [("keys", "fewpass keys create nightly"), ("webhooks", "fewpass webhooks add https")]
)
def test_groups_list_by_themselves_and_what_is_missing_has_an_example(workspace, group, asked):
    assert as_json(group, workspace=workspace) == as_json(group, "list", workspace=workspace) == []
    verb = asked.split()[2]
    failed = fewpass(group, verb, workspace=workspace, code=2)
    assert asked in " ".join(failed.stderr.replace("│", " ").split())


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
    command += ["--holdout", 0, "--name", "pairs", "--cluster", "local:2"]
    assert as_json(*command, workspace=tmp_path / "workspace")["name"] == "pairs"
    structure = as_json("models", "structure", "pairs", workspace=tmp_path / "workspace")
    assert structure["facts"] == {"shards": 2}
