"""What commands say at the end, and in 80 columns: sentences, ids that can be copied, what comes next."""

import json
import socket

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from learners.schema import Schema
from service import product
from service.cli import app
from service.cli.evaluation import (
    evaluation_summary_line,
    forgetting_price_line,
    quietly_left_out_line,
    rows_read_summary,
    suggested_next_commands,
    worse_than_shares_warning,
)
from service.http.connections import ServerConfig
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest
from service.settings import Settings
from service.terminal_output import nested_value_text, print_table
from service.workspace import Workspace
from tests.service.asking import learn
from tests.service.conftest import weather

KEPT_BACK = {"zero_one_loss": 0.199, "log_loss": 0.43, "class_shares_log_loss": 0.61, "n_test_rows": 3000}


def run(*arguments, code=0):
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder of files, with a workspace of two versions of a model."""
    folder = tmp_path_factory.mktemp("verdicts")
    pq.write_table(weather(600, 1), folder / "a.parquet")
    pq.write_table(weather(400, 2), folder / "test.parquet")
    with Workspace(Settings(workspace=folder / "workspace")) as workspace:
        for m in (1.0, 500.0):
            learn(workspace, folder / "a.parquet", "rain", parameters={"m": m})
    return folder


def test_a_structure_without_edges_is_told_in_words(trained, monkeypatch):
    found: dict = {"nodes": [{"name": "a"}, {"name": "b"}], "edges": []}
    monkeypatch.setattr(product, "version_structure", lambda *_: found)
    asked = ("models", "structure", "m", "-w", trained / "workspace")
    assert "No edge joins any two of 2 columns. No column depends on another, given the class." in " ".join(
        run(*asked).split()
    )
    found["circuit"] = {"nodes": 3}
    assert "It is a circuit: fewpass models circuit m shows its nodes." in " ".join(run(*asked).split())


def test_train_ends_with_a_sentence_and_what_comes_next(trained):
    where = trained / "workspace"
    asked = ["train", trained / "a.parquet", "-t", "class", "-n", "other", "-l", "nb", "--update", "-w", where]
    printed = run(*asked)
    assert "(largest class " in printed and " s of it for training alone" in " ".join(printed.split())
    printed = " ".join(printed.split())  # lines of 80 columns
    assert "right " in printed and "log loss" in printed and "(class shares " in printed and "rows kept back" in printed
    assert f"next: fewpass query other --of class -w {where} · fewpass serve -w {where}" in printed
    assert (
        "zero_one_loss" not in printed
        and "read all 600 rows, since no earlier training has stored counts that fit;" in printed
    )
    pq.write_table(weather(100, 3), trained / "b.parquet")
    printed = run(*asked[:2], trained / "b.parquet", *asked[2:])
    assert "read 100 new rows; 600 came from stored counts" in printed


def test_two_versions_side_by_side(trained):
    place = (trained / "test.parquet", "-w", trained / "workspace")
    both = ("evaluate", "rain@1", "rain@2", *place)
    compared = json.loads(run(*both, "--json"))
    singly = [json.loads(run("evaluate", f"rain@{n}", *place, "--json")) for n in (1, 2)]
    for each, alone in zip(compared["models"], singly, strict=True):
        assert each.items() <= alone.items()
    (difference,) = compared["differences"]
    assert difference["log_loss"] == pytest.approx(singly[1]["log_loss"] - singly[0]["log_loss"])
    assert 0 < difference["standard_error"] < abs(difference["log_loss"])
    shown = run(*both)
    assert "rain@2 has the higher log loss, by" in shown and f"{difference['log_loss']:+.4f}" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    run("evaluate", "rain@1", "rain@2", "-w", trained / "workspace", code=2)
    assert "rain@1 and rain@1 have the same log loss." in run("evaluate", "rain@1", "rain@1", *place)
    pq.write_table(weather(1, 5), trained / "one.parquet")
    shown = run("evaluate", "rain@1", "rain@2", trained / "one.parquet", *place[1:])
    assert "which chance alone can explain" in " ".join(shown.split()), "one row has no standard error"


def test_models_of_different_columns_are_not_put_side_by_side(trained):
    with Workspace(Settings(workspace=trained / "workspace")) as workspace:
        learn(workspace, trained / "a.parquet", "sky", target="outlook", columns={"outlook": {"null_class": "drop"}})
        with pytest.raises(InvalidRequest, match="rain@1 predicts 'class', and sky@1 predicts 'outlook'"):
            product.evaluate_versions(workspace, ["rain@1", "sky@1"], [str(trained / "test.parquet")])


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({}, ""),
        (
            KEPT_BACK | {"evaluated_on": "hold-out"},
            "right 80.1%, log loss 0.430 (class shares 0.610), 3,000 rows kept back",
        ),
        (
            KEPT_BACK | {"log_loss_error": 0.0123},
            "right 80.1%, log loss 0.430 ± 0.012 (class shares 0.610), 3,000 rows measured",
        ),
        ({"log_likelihood": -3.25, "n_test_rows": 7}, "log likelihood -3.250 per row, 7 rows measured"),
    ],
)
def test_the_verdict(metrics, words):
    assert evaluation_summary_line(metrics) == words


def test_what_comes_next_is_what_the_model_answers():
    of_trees = suggested_next_commands("m", "xgboost", "y", None)
    assert "predict" in of_trees and "query" not in of_trees
    assert suggested_next_commands("m", "orders", None, None).startswith("next: fewpass models structure m ·")
    assert rows_read_summary([]) == "No rows were read: all counts were stored."
    first = [{"stage": "pairs", "n_rows_read": 1200, "n_rows_reused": 0}]
    assert rows_read_summary(first) == "read 1,200 rows"
    assert rows_read_summary(first, is_update=True).startswith(
        "read all 1,200 rows, since no earlier training has stored counts that fit;"
    )
    later = [{"stage": "pairs", "n_rows_read": 30, "n_rows_reused": 1200}]
    assert rows_read_summary(later, is_update=True) == "read 30 new rows; 1,200 came from stored counts"


def test_ids_of_jobs_are_never_broken(trained):
    for _ in range(2):
        job = {"kind": "train", "uris": [str(trained / "a.parquet")], "target": "class", "model": "queued"}
        run("jobs", "submit", json.dumps(job), "-w", trained / "workspace")
    ids = [each["id"] for each in json.loads(run("jobs", "list", "--json", "-w", trained / "workspace"))]
    lines = run("jobs", "list", "-w", trained / "workspace").splitlines()
    assert len(ids) == 2 and all(len(line) <= 80 for line in lines)
    assert [line.split()[0] for line in lines if not line.startswith(" ")] == ids


def test_an_interrupted_training_says_so(trained, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(product, "train_and_report_passes", interrupted, raising=False)
    printed = run("train", trained / "a.parquet", "-t", "class", "-n", "x", "-w", trained / "workspace", code=130)
    assert "Interrupted. No version was added" in printed


def test_a_port_in_use_is_one_sentence():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidRequest, match=f"Port {port} is in use by another program. Choose another one"):
            ServerConfig("any", host="127.0.0.1", port=port).bind_socket()
    with pytest.raises(InvalidRequest, match=r"cannot listen on 192\.0\.2\.1"):
        ServerConfig("any", host="192.0.2.1", port=0).bind_socket()
    free = ServerConfig("any", host="127.0.0.1", port=0).bind_socket()
    assert free.getsockname()[1] > 0
    free.close()


def test_a_query_answers_first_in_words(trained):
    lines = run("query", "rain", "--given", "humidity=2.5", "-w", trained / "workspace").splitlines()
    assert "class" in lines[1] and lines[-1].startswith("log probability of the evidence (natural log): ")
    assert not any("-inf" in line or "log_" in line for line in lines)


def test_words_that_look_like_json_are_evidence_where_they_are_values(tmp_path):
    """`e=null` was taken for an unknown value, and the answer for everything known was that for nothing known."""
    words = ["null", "NaN", "1.50", "b"] * 50
    table = pa.table({"e": words, "class": [["n", "p"][word in ("null", "1.50")] for word in words]})
    pq.write_table(table, tmp_path / "words.parquet")
    here = ["-w", tmp_path / "workspace"]
    run("train", tmp_path / "words.parquet", "-t", "class", "-n", "words", "-l", "nb", *here)
    for word, expected in (("null", "p"), ("NaN", "n"), ("1.50", "p")):
        answer = json.loads(run("query", "words", "--of", "class", "--given", f"e={word}", *here, "--json"))
        assert answer["distributions"]["class"][expected] > 0.9


def test_values_within_values_can_be_told_apart():
    assert nested_value_text({"k": 2, "m": None, "alpha": 0.25}) == "k=2, alpha=0.25"
    assert (
        nested_value_text({"rounds": {"from": 32, "alone": 116}, "left": [1, 2]})
        == "rounds: from=32, alone=116; left: 1, 2"
    )
    assert nested_value_text(["Networks, weighted together.", "No trees."]) == "Networks, weighted together. No trees."
    assert nested_value_text(["a", "b"]) == "a, b"


@pytest.mark.parametrize("n", [1, 3, 6])
def test_tables_of_any_width_break_no_words(n, capsys):
    """80 columns have room for one and three, side by side; six stand below each other."""
    names, cells = [f"column-{i}" for i in range(n)], [f"job-{i}a1fb751a1b of-Europe/Berlin" for i in range(n)]
    print_table("jobs", names, [cells])
    said = capsys.readouterr().out
    assert all(word in said for cell in cells for word in cell.split())
    assert max(map(len, said.splitlines())) <= 80
    assert ("row 1" in said) == (n == 6)


def test_the_price_of_forgetting_is_said():
    price = {"model": "late@2", "cut_points_move": ["number"], "n_rows_again": 15000}
    assert forgetting_price_line(price) == "late@2: cut points of 'number' move, so 15,000 rows are read again"
    assert forgetting_price_line(price | {"cut_points_move": [], "n_rows_again": 0}) == (
        "late@2: no cut point moves, so the counts of these rows are subtracted"
    )


def test_a_name_of_a_data_set_and_of_a_model_of_other_files_is_not_guessed(tmp_path):
    for name in ("a", "b"):
        pq.write_table(weather(300, 1), tmp_path / f"{name}.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        product.register_dataset(workspace, DatasetRequest(name="rain", uris=[str(tmp_path / "a.parquet")]))
        learn(workspace, tmp_path / "b.parquet", "rain")
    asked = ("forget", "rain", "--where", "outlook = 'rain' AND windy", "--dry-run", "-w", tmp_path / "workspace")
    refused = " ".join(run(*asked, code=2).replace("│", "").split())
    assert "'rain' is a data set, and a model whose newest version, rain@1, was not trained on that" in refused
    assert "Models that would be trained again: rain" in run(*asked, "--name-of", "model")
    assert "Models that would be trained again: none" in run(*asked, "--name-of", "dataset")


def test_training_names_columns_left_out_without_a_warning(tmp_path):
    """Constants, screened and dropped columns are named by reason, at most eight of them."""
    n = 200
    columns = {f"c{i}": ["same"] * n for i in range(9)} | {"gone": ["a", "b"] * (n // 2), "y": ["no", "yes"] * (n // 2)}
    pq.write_table(pa.table(columns | {"x": ["u", "v"] * (n // 2)}), tmp_path / "t.parquet")
    said = run(
        *("train", tmp_path / "t.parquet", "-t", "y", "-n", "m", "-l", "nb", "-w", tmp_path / "w"),
        *("--columns", json.dumps({"gone": "drop"})),
    )
    words = " ".join(said.split())
    assert "left out: c0, c1, c2, c3, c4, c5, c6, c7 (one value only); and 2 more" in words
    said = run("models", "tag", "m@1", "owner", "-w", tmp_path / "w", code=2)
    assert "m@1 has no tag 'owner' to remove. To set it, give its value" in " ".join(said.replace("│", "").split())
    assert not quietly_left_out_line(Schema((), "y", ("no", "yes"), "string"))


def test_probabilities_worse_than_the_class_shares_are_a_warning():
    said = worse_than_shares_warning
    assert "worse than the class shares" in said(
        {"log_loss": 0.78, "log_loss_error": 0.04, "class_shares_log_loss": 0.68}
    )
    assert not said({"log_loss": 0.75, "log_loss_error": 0.04, "class_shares_log_loss": 0.68}), "chance explains it"
    assert not said(KEPT_BACK) and not said({"log_likelihood": -3.0})
