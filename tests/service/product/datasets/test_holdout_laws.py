"""Rows that are learned and rows that are kept back are all rows, whatever they are read from and however."""

import gzip
import json
import re

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from learners.monitoring.count_layout import Watched
from service import product
from service.jobs.steps import LOCAL, Run, ignore_report
from service.product import promotion, train_steps
from service.product.versions.evaluation_records import load_evaluation_counts
from service.requests.requests import EvaluateRequest, ForgetRequest, RefreshRequest, TrainRequest
from tests.lake_tables import WrittenTable
from tests.service.asking import model_of, run_job, training
from tests.service.product.conftest import run_refresh
from tests.support.cli import as_json

N_ROWS = 600
COLUMNS = {"id": "drop", "y": {"null_class": "none"}}
# What stands for a missing value somewhere, or for a value: every reader has its own view of these.
ODD = {"empty": '""', "NA": '"NA"', "null": '"null"', "nan": '"nan"', "plain NA": "NA", "question mark": "?"}


def rows_of(odd, first=0, n_rows=N_ROWS):
    """Lines of CSV: an id, noise, a word that is sometimes odd, a class that sometimes is."""
    random = np.random.default_rng(first)
    words, classes = np.array(["x", odd]), np.array(["p", odd])
    lines = [
        f"{first + i},{random.random():.4f},{words[random.integers(2)]},{classes[random.integers(2)]}"
        for i in range(n_rows)
    ]
    return "id,a,e,y\n" + "\n".join(lines) + "\n"


def table_of(first=0, n_rows=N_ROWS):
    random = np.random.default_rng(first)
    return pa.table(
        {
            "id": np.arange(first, first + n_rows),
            "a": np.round(random.random(n_rows), 4),
            "e": np.array(["x", "", "NA"])[random.integers(0, 3, n_rows)],
            "y": np.array(["p", "null"])[random.integers(0, 2, n_rows)],
        }
    )


def json_lines(table):
    return "\n".join(map(json.dumps, table.to_pylist())) + "\n"


def as_parquet(folder):
    pq.write_table(table_of(), folder / "t.parquet", row_group_size=128)


def as_delta(folder):
    """With rows deleted by a vector, and a column that only the log has."""
    schema = pa.schema([("id", pa.int64()), ("e", pa.string()), ("y", pa.string()), ("day", pa.date32())])
    written = WrittenTable(folder / "lake", schema, partition="day")
    for number in range(2):
        rows = table_of(number * 300, 300).select(["id", "e", "y"])
        written.append(f"{number}.parquet", rows, f"2026-01-0{number + 1}")
    written.delete("0.parquet", [0, 1, 70, 299])


def in_folders(folder):
    for number, day in enumerate(("2026-01-01", "2026-01-02", "3")):
        (folder / f"day={day}").mkdir()
        (folder / f"day={day}" / "part.csv").write_text(rows_of('"NA"', number * 200, 200))


def of_several_types(folder):
    """Numbers in one file and words in the other: the column is text in both once they are read together."""
    (folder / "a.csv").write_text("id,e,y\n" + "".join(f"{i},{i % 7},{'pq'[i % 2]}\n" for i in range(300)))
    (folder / "b.csv").write_text("id,e,y\n" + "".join(f"{i},w{i % 3},{'pq'[i % 2]}\n" for i in range(300, 600)))


FORMATS = {
    "csv": lambda folder: (folder / "t.csv").write_text(rows_of('""')),
    "csv.gz": lambda folder: (folder / "t.csv.gz").write_bytes(gzip.compress(rows_of('"null"').encode())),
    "tsv": lambda folder: (folder / "t.tsv").write_text(rows_of('"NA"').replace(",", "\t")),
    "jsonl": lambda folder: (folder / "t.jsonl").write_text(json_lines(table_of())),
    "feather": lambda folder: feather.write_feather(table_of(), str(folder / "t.feather")),
    "orc": lambda folder: orc.write_table(table_of(), str(folder / "t.orc")),
    "parquet": as_parquet,
    "folders": in_folders,
    "files of other types": of_several_types,
    "delta": as_delta,
}


@pytest.fixture
def recorded(monkeypatch):
    """Every choice of rows that a training, a measure or a promotion makes."""
    chosen = []

    def recording(*arguments):
        chosen.append(train_steps_select(*arguments))
        return chosen[-1]

    train_steps_select = train_steps.select_training_rows
    for module in (train_steps, promotion):
        monkeypatch.setattr(module, "select_training_rows", recording)
    return chosen


def contents(source):
    """The rows, by id: every value as text, as types are the reader's."""
    rows = [row for batch in source.batches() for row in batch.to_pylist()]
    return {int(row["id"]): {name: str(value) for name, value in row.items() if name != "id"} for row in rows}


def require_partition(rows, n_rows=None):
    """Learned by the first choice and kept back by the last are all rows, each once, with the content they have in the files."""
    learned, kept_back = rows[0].learned.source, rows[-1].kept_back
    ours, theirs = contents(learned), contents(kept_back)
    whole = contents(rows[0].learned.raw)
    assert not ours.keys() & theirs.keys()
    assert ours | theirs == whole
    assert n_rows in (None, len(whole))
    assert 0.1 * len(whole) < len(theirs) < 0.3 * len(whole)
    return len(ours), len(theirs)


def require_told(version, n_learned, n_kept_back):
    """What a version says of itself, and the counts that monitoring compares with."""
    assert (version.n_rows, version.metrics["n_test_rows"]) == (n_learned, n_kept_back)
    counts = load_evaluation_counts(version, Watched(model_of(version)))
    assert counts is not None and counts.n_rows == n_kept_back


def train(workspace, path, **more):
    return product.train_model_version(workspace, training(path, target="y", **more))


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("options", [{}, {"*": {"missing": ["?"]}}, {"*": {"quote": ""}}, {"e": "nominal"}])
def test_words_that_a_reader_may_take_for_missing_move_no_row(odd, options, workspace, tmp_path, recorded):
    (tmp_path / "t.csv").write_text(rows_of(ODD[odd]))
    columns = options | {"id": "drop", "y": {"null_class": "none"}}
    version = train(workspace, tmp_path / "t.csv", columns=columns)
    require_told(version, *require_partition(recorded, N_ROWS))


@pytest.mark.parametrize("written", FORMATS)
def test_every_format_divides_into_two_parts(written, workspace, tmp_path, recorded):
    folder = tmp_path / "data"
    folder.mkdir()
    FORMATS[written](folder)
    path = folder / "lake" if written == "delta" else folder
    version = train(workspace, path, columns=COLUMNS, update=True)
    n_rows = 596 if written == "delta" else N_ROWS
    require_told(version, *require_partition(recorded, n_rows))
    first = recorded[0]
    recorded.clear()
    require_told(train(workspace, path, columns=COLUMNS, update=True), *require_partition([first, *recorded], n_rows))


@pytest.mark.parametrize("written", ["csv", "jsonl", "folders", "parquet"])
def test_a_file_that_comes_moves_no_row(written, workspace, tmp_path, recorded):
    folder = tmp_path / "data"
    folder.mkdir()
    FORMATS[written](folder)
    train(workspace, folder, columns=COLUMNS, update=True)
    kept_back = contents(recorded[-1].kept_back)
    if written == "folders":
        (folder / "day=Sunday").mkdir()  # the column of the folders is no time any more
        (folder / "day=Sunday" / "part.csv").write_text(rows_of('"NA"', 600, 200))
    elif written == "csv":
        (folder / "u.csv").write_text(rows_of("?", N_ROWS, 200))
    elif written == "jsonl":
        (folder / "u.jsonl").write_text(json_lines(table_of(N_ROWS, 200)))
    else:
        pq.write_table(table_of(N_ROWS, 200), folder / "u.parquet")
    recorded.clear()
    require_told(
        train(workspace, folder, columns=COLUMNS, update=True, parameters={}), *require_partition(recorded, 800)
    )
    assert {row for row in contents(recorded[-1].kept_back) if row < N_ROWS} == kept_back.keys()


def test_deleting_rows_of_a_lake_table_moves_no_other_row(workspace, tmp_path, recorded):
    as_delta(tmp_path)
    plain = WrittenTable(tmp_path / "plain", pa.schema([("id", pa.int64()), ("e", pa.string()), ("y", pa.string())]))
    plain.append("0.parquet", table_of().select(["id", "e", "y"]))
    train(workspace, tmp_path / "plain", columns=COLUMNS, update=True)
    before = contents(recorded[-1].kept_back).keys()
    gone = [0, 3, 64, 65, 200, 599]
    plain.delete("0.parquet", gone)
    recorded.clear()
    train(workspace, tmp_path / "plain", columns=COLUMNS, update=True)
    require_partition(recorded, N_ROWS - len(gone))
    assert contents(recorded[-1].kept_back).keys() == before - set(gone)


def test_the_reader_of_a_model_changes_no_choice_of_a_promotion(workspace, tmp_path, recorded):
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "1.csv").write_text(rows_of('""'))
    job = {"uris": [str(folder)], "target": "y", "learner": "nb", "model": "m", "columns": {"id": "drop"}}
    request = RefreshRequest.model_validate({"train": job | {"columns": COLUMNS}})
    steps = product.job_steps_by_kind(workspace)["refresh"]
    run = Run(f"{LOCAL}law", request.model_dump(), {}, ignore_report)
    for name, step in steps.items():
        run.receipts[name] = step(run)
    assert len(recorded) >= 3  # to learn, to measure, to decide
    for measured in recorded[1:]:
        require_partition([recorded[0], measured], N_ROWS)


def test_a_window_and_weights_divide_the_rows_that_count(workspace, tmp_path, recorded):
    lines = [f"{i},2026-01-{1 + i // 30:02},{'NA' if i % 5 else '?'},{1 + i % 2},{'pq'[i % 2]}" for i in range(600)]
    (tmp_path / "t.csv").write_text("id,day,e,w,y\n" + "\n".join(lines) + "\n")
    columns = {"id": "drop", "w": {"weight": True}, "*": {"missing": ["?"]}}
    train(workspace, tmp_path / "t.csv", columns=columns, window="10d", timestamp="day")
    ours, theirs = contents(recorded[0].learned.source), contents(recorded[-1].kept_back)
    assert not ours.keys() & theirs.keys()
    assert ours.keys() | theirs.keys() == set(range(300, 600))


def test_commands_and_jobs_count_all_rows(site, tmp_path):
    """The file of the report: coin flips, and a text column whose missing-looking word is in quotes."""
    path = tmp_path / "t.csv"
    path.write_text(rows_of('""'))
    columns = {"id": "drop", "y": {"null_class": "none"}}
    command = ["train", path, "-t", "y", "-l", "nb", "-n", "byhand", "--columns", json.dumps(columns)]
    by_hand = as_json(*command, workspace=tmp_path / "workspace")
    job = {"kind": "train", "uris": [str(path)], "target": "y", "learner": "nb", "model": "byjob", "columns": columns}
    by_job = run_job(site.client, job)
    assert by_job["state"] == "succeeded", by_job
    n_test = by_hand["metrics"]["n_test_rows"]
    assert by_hand["n_rows"] + n_test == N_ROWS
    assert by_job["result"]["metrics"]["n_test_rows"] == n_test


def alternating(first=0, n_rows=2_000):
    """Rows an hour apart whose class goes with `e`, and the other way round from row 1,500 to 2,500."""
    random = np.random.default_rng(first)
    hours = np.arange(first, first + n_rows)
    e = random.integers(0, 2, n_rows)
    y = np.where(random.random(n_rows) < 0.9, e, 1 - e) ^ ((hours >= 1_500) & (hours < 2_500))
    moments = np.datetime64("2026-01-01T00", "us") + hours.astype("timedelta64[h]")
    return pa.table({"id": hours, "when": moments, "e": e.astype(str), "y": np.array(["no", "yes"])[y]})


def refreshed(workspace, folder, promotion=None, **more):
    job = {"uris": [str(folder)], "target": "y", "learner": "nb", "model": "m", "columns": {"id": "drop"}}
    return run_refresh(workspace, TrainRequest(**job | more), promotion=promotion or {})["promotion"]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    pq.write_table(alternating(), tmp_path / "data" / "0.parquet")
    return tmp_path / "data"


def test_newest_rows_are_learned_after_the_measure_and_the_measure_is_of_the_model_before(workspace, folder):
    how = {"columns": {"id": "drop"}, "learner": "nb"}
    learned = train(workspace, folder, model="m", **how)
    before = train(workspace, folder, model="before", update=True, **how)
    whole = train(workspace, folder, model="whole", holdout=0, **how)
    assert (learned.n_rows, before.n_rows, whole.n_rows) == (2_000, 1_600, 2_000)
    losses = [{name: one.metrics[name] for name in ("log_loss", "n_test_rows", "rmse")} for one in (learned, before)]
    assert losses[0] == losses[1]
    assert learned.metrics["evaluated_on"] == "newest rows, learned afterwards"
    (_, ours), (_, theirs) = (model_of(one).to_arrays() for one in (learned, whole))
    assert ours.keys() == theirs.keys() and all(np.array_equal(ours[name], theirs[name]) for name in ours)
    evaluated = product.evaluate_model_version(workspace, EvaluateRequest(model="m", uris=[str(folder)]))
    assert evaluated["log_loss"] < 0.9 * learned.metrics["log_loss"]
    assert "m@1 has learned rows of" in evaluated["warnings"][0] and "0.parquet" in evaluated["warnings"][0]
    counts = load_evaluation_counts(learned, Watched(model_of(learned)))
    assert counts is not None and counts.n_rows == 400


def test_what_a_forgetting_learns_again_has_the_newest_rows_too(workspace, folder):
    train(workspace, folder, model="m", columns={"id": "drop"})
    done = product.forget_rows(workspace, ForgetRequest(model="m", where="id < 100"))
    assert [(proof["is_equal"], proof["n_rows"]) for proof in done["proofs"]] == [(True, 1_900)]
    assert product.find_version(workspace, "m@latest").n_rows == 1_900


def test_a_promotion_leaves_out_what_a_champion_has_learned_or_says_it(workspace, folder):
    train(workspace, folder, model="m", columns={"id": "drop"}, aliases=["champion"])
    told = refreshed(workspace, folder)
    assert told["reason"].endswith("; version 1 has learned 400 of these 400 rows, so its loss is too low"), told[
        "reason"
    ]
    pq.write_table(alternating(2_000, 400), folder / "1.parquet")
    told = refreshed(workspace, folder, {"newest_files": 2}, holdout=0.5)
    assert told["challenger_metrics"]["n_test_rows"] == told["champion_metrics"]["n_test_rows"] == 400
    assert told["reason"].endswith("; 800 rows that version 1 has learned are left out"), told["reason"]


@pytest.mark.parametrize(("more", "is_said"), [({"seed": 1}, True), ({"holdout": 0}, True), ({}, False)])
def test_a_champion_that_kept_back_other_rows_at_random_has_no_advantage_in_silence(more, is_said, workspace, folder):
    how = {"holdout_by": "random"}
    train(workspace, folder, model="m", columns={"id": "drop"}, aliases=["champion"], **how | more)
    told = refreshed(workspace, folder, **how)
    words = "version 1 has learned" in told["reason"]
    assert words is is_said, told["reason"]


def test_a_file_that_grows_may_hold_rows_that_the_champion_has_learned(workspace, folder):
    how = {"holdout_by": "random"}
    train(workspace, folder, model="m", columns={"id": "drop"}, aliases=["champion"], **how)
    pq.write_table(alternating(2_150), folder / "0.parquet")
    decision = refreshed(workspace, folder, **how)
    words = r"; version 1 may have learned (\d+) of these \1 rows, as \S+0\.parquet has changed since, so its loss may be too low$"
    assert re.search(words, decision["reason"]), decision["reason"]
    product.set_alias(workspace, "m", "champion", 1)
    pq.write_table(alternating(2_000, 400), folder / "1.parquet")
    decision = refreshed(workspace, folder, {"newest_files": 2}, holdout=0.5, **how)
    assert re.search(
        r"; [\d,]+ rows that version 1 may have learned are left out, as \S+ has changed since", decision["reason"]
    )
    for model in ("m@1", "m@2"):
        evaluated = product.evaluate_model_version(
            workspace, EvaluateRequest(model=model, uris=[str(folder / "0.parquet")])
        )
        rows = "an earlier content" if model == "m@1" else "rows"
        assert f"{model} has learned {rows} of " in evaluated["warnings"][0]


def in_duckdb(folder, monkeypatch, rows):
    with duckdb.connect(str(folder / "shop.db")) as database:
        database.register("rows", rows)
        database.execute("CREATE OR REPLACE TABLE t AS FROM rows")
    return f"duckdb://{folder}/shop.db?table=t"


def in_postgresql(folder, monkeypatch, rows):
    dbapi = pytest.importorskip("adbc_driver_postgresql.dbapi")
    url = folder.joinpath("url").read_text()
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS holdout")
        cursor.adbc_ingest("holdout", rows)
        connection.commit()
    monkeypatch.setenv("FEWPASS_CREDENTIALS_PG", url)
    return "credentials://pg?query=SELECT * FROM holdout ORDER BY id"


@pytest.mark.parametrize("put", [in_duckdb, in_postgresql])
@pytest.mark.parametrize("holdout_by", ["random", "order"])
def test_rows_of_a_database_divide_into_two_parts(put, holdout_by, request, workspace, tmp_path, monkeypatch, recorded):
    if put is in_postgresql:
        (tmp_path / "url").write_text(request.getfixturevalue("postgres"))
    how = {"columns": COLUMNS, "update": True, "holdout_by": holdout_by}
    for n_rows in (N_ROWS, N_ROWS + 200):  # the table grows: what is read anew is another file
        uri = put(tmp_path, monkeypatch, table_of(0, n_rows))
        recorded.clear()
        version = train(workspace, uri, **how)
        require_told(version, *require_partition(recorded, n_rows))
    evaluated = product.evaluate_model_version(workspace, EvaluateRequest(model="m", uris=[uri]))
    assert "has learned rows of" in evaluated["warnings"][0]
