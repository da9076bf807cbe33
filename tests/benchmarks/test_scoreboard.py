"""The scoreboard on one tiny table: real processes, every column of the page, and the page before."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.measuring import NotDone, run_command
from benchmarks.scoreboard import __main__ as scoreboard
from benchmarks.scoreboard import page, tables
from benchmarks.scoreboard.measuring import quality


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    columns = {
        "number": np.round(3 * y + rng.normal(size=300), 2),
        "word": np.array(["u", "v"])[y ^ (rng.random(300) < 0.2)],
    }
    table = pa.table(
        columns | {"day": pa.array((400 * y + rng.integers(0, 900, 300)).astype(np.int32)).cast(pa.date32())}
    )
    table = table.append_column("class", pa.array(np.array(["no", "yes"])[y]))
    pq.write_table(table, tmp_path / "adult.parquet")
    monkeypatch.setattr(tables, "SETS", tmp_path)
    return table


def test_a_board_of_one_table(tiny, tmp_path, capsys):
    given = ["--tables", "adult", "letter", "--learners", "nb", "xgboost", "--missing", "0.7"]
    given += ["--output", str(tmp_path / "out")]
    scoreboard.main(given)
    shown = capsys.readouterr().out
    assert "No file, and so left out: letter." in shown
    found = json.loads((tmp_path / "out" / "scoreboard.json").read_text())
    assert found["before"] is None
    board = found["latest"]
    assert [(entry["table"], entry["learner"], entry["note"]) for entry in board["entries"]] == [
        ("adult", "nb", ""),
        ("adult", "xgboost", ""),
    ]
    assert board["n_invalid"] == 0
    for entry in board["entries"]:
        assert list(entry["scores"]) == ["0", "70"]
        assert entry["scores"]["0"]["log_loss"] < 0.6
        rows_per_cpu_s = entry["rows_per_cpu_s"]  # None where so few rows take no time beyond the start
        assert rows_per_cpu_s is None or rows_per_cpu_s > 0
        assert min(entry[name] for name in page.COSTS if name != "rows_per_cpu_s") > 0
    page.keep(board, tmp_path / "out")  # of the same run: nothing was before
    assert json.loads((tmp_path / "out" / "scoreboard.json").read_text()) == found
    page.keep(board | {"commit": "later"}, tmp_path / "out")
    written = (tmp_path / "out" / "scoreboard.md").read_text()
    assert (
        written.index("Commit later") < written.index("## The one before") < written.index(f"Commit {board['commit']}")
    )


def test_what_takes_too_long_is_not_done():
    with pytest.raises(NotDone, match="more than 1 s"):
        run_command(["sleep", "60"], timeout_s=1)
    with pytest.raises(NotDone, match="No such file"):
        run_command(["ls", "/nowhere"])
    board = {"commit": "", "date": "", "machine": {}, "n_invalid": 0, "absent": []}
    entry = {"table": "adult", "learner": "auto", "scores": {}, "note": "more than 120 s"}
    assert "not done: more than 120 s" in page.markdown(board | {"entries": [entry]})


def test_rows_that_are_no_distribution_are_counted(tmp_path):
    answers = pa.table({"probability_no": [0.9, np.nan, 0.5], "probability_yes": [0.1, 0.5, 0.4]})
    pq.write_table(answers, tmp_path / "answers.parquet")
    scores, n_invalid = quality(tmp_path / "answers.parquet", ["no", "yes", "never seen"])
    assert n_invalid == 2
    assert scores["error"] == pytest.approx(2 / 3)


def test_columns_are_hidden_once_for_a_table(tiny, tmp_path):
    files = [tables.split("t", tiny, "class", tmp_path / name, (0.3, 0.7), 1, None) for name in "ab"]
    for share, n_left in ((0.0, 3), (0.3, 2), (0.7, 1)):
        names = [pq.read_schema(split.tests[share]).names for split in files]
        assert names[0] == names[1]
        assert len(names[0]) == n_left
    assert pq.read_metadata(files[0].train).num_rows == 210


def test_generated_tables_have_the_class_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(tables, "INTERACTIONS", 50)
    monkeypatch.setattr(tables, "ORDERS", 50)
    for name, target, table in tables.tables(["real", "nulls", "interactions"], 50):
        assert table is not None and target in table.column_names, name
        assert sum(column.null_count > 0 for column in table.columns) >= {"real": 4, "nulls": 15}.get(name, 0)
