"""Refreshing, windows and forgetting, as a user does it: by command line and by REST."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source
from learners.errors import InvalidParameter
from learners.passes.sources.row_filter import select_newest_rows
from learners.schema import Kept
from service import product
from service.requests.requests import ForgetRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import CorruptFile
from tests.service.asking import finished, model_of
from tests.support.cli import fewpass
from tests.support.http import problem
from tests.support.passes import same, write
from tests.support.product import COLUMNS, OF_ROWS, n_left, register, request_of


def test_an_update_reads_new_files_only(workspace, folder):
    """Also where an entry of a column was empty, which says nothing."""
    _, passes = product.train_and_report_passes(workspace, request_of(folder, columns=COLUMNS | {"x0": {}}))
    assert {each["n_files_reused"] for each in passes} == {0}
    write(folder, 5)
    updated, passes = product.train_and_report_passes(workspace, request_of(folder))
    assert {each["stage"]: each["n_files_read"] for each in passes}["counting pairs"] == 1
    assert updated.n_rows < 1200, "a share is kept back"
    # The same rows learned by another workspace, which has nothing to reuse.
    with Workspace(Settings(workspace=folder.parent / "other")) as other:
        product.train_model_version(other, request_of(folder, model="daily"))
        (schema,) = (other.layout.model_directory("daily") / "data" / "schemas").glob("*.json")
        schema.chmod(0o644)
        schema.write_text(Kept(model_of(updated).schema).schema.to_json())
        fresh = product.train_model_version(other, request_of(folder, model="daily"))
        assert same(model_of(fresh), model_of(updated))


def test_models_of_a_data_set_share_what_is_counted(workspace, folder):
    register(workspace, folder)
    product.train_model_version(workspace, request_of(folder, **OF_ROWS))
    other = request_of(folder, **OF_ROWS, model="other", learner="tan", parameters={})
    _, passes = product.train_and_report_passes(workspace, other)
    assert {each["n_rows_read"] for each in passes if each["stage"] != "counting families"} == {0}


def test_rows_are_forgotten_and_it_is_proved(workspace, folder):
    first = product.train_model_version(workspace, request_of(folder, aliases=["champion"]))
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 3"))
    n_rows = pq.read_table(folder).num_rows
    assert done["n_rows"] == n_rows - n_left(folder) > 0
    assert [proof["is_equal"] for proof in done["proofs"]] == [True]
    assert done["still_holding"] == [f"daily@{first.version}"]
    assert done["statistics_removed"] > 0
    assert product.find_version(workspace, "daily@champion").version == done["versions"][0]["version"]
    # What comes later is not learned either: not by an update, not by a training from scratch, not in a hold-out.
    write(folder, 5)
    for update in (True, False):
        later = product.train_model_version(workspace, request_of(folder, update=update, holdout=0))
        assert later.n_rows == n_left(folder)
    again = product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 3", retrain=False))
    assert again["versions"] == []


def test_rules_that_cannot_be_read_stop_the_training(workspace, folder):
    """Learning on without them would learn what was to be forgotten."""
    product.train_model_version(workspace, request_of(folder))
    product.forget_rows(workspace, ForgetRequest(model="daily", where="user = 3", prove=False))
    path = workspace.layout.model_directory("daily") / "data" / "forgotten.json"
    path.chmod(0o644)
    path.write_text("{")
    with pytest.raises(CorruptFile, match="the rules of forgotten rows cannot be read"):
        product.train_model_version(workspace, request_of(folder))


def test_a_window_learns_the_newest_rows(workspace, folder):
    times = np.array(pq.read_table(folder)["time"].to_numpy())
    version = product.train_model_version(workspace, request_of(folder, window="1d", timestamp="time", holdout=0))
    assert version.n_rows == int((times > times.max() - np.timedelta64(1, "D")).sum())
    assert len(version.files) == 2
    last = product.train_model_version(workspace, request_of(folder, window="1f", holdout=0))
    assert last.n_rows == 300


def test_forgotten_rows_do_not_decide_where_a_window_begins(workspace, folder):
    asked = {"window": "6h", "timestamp": "time", "holdout": 0}
    product.train_model_version(workspace, request_of(folder, **asked))
    table = pq.read_table(folder)
    times = np.array(table["time"].to_numpy())
    first_forgotten = times.max() - np.timedelta64(20, "h")
    where = f"time > TIMESTAMP '{first_forgotten}'"
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where=where))
    left = times[times <= first_forgotten]
    expected = int((left > left.max() - np.timedelta64(6, "h")).sum())
    assert 0 < expected < left.size and [proof["n_rows"] for proof in done["proofs"]] == [expected]
    assert product.train_model_version(workspace, request_of(folder, **asked)).n_rows == expected
    # The model is that of files without the forgotten rows.
    (folder / "kept").mkdir()
    for path in sorted(folder.glob("*.parquet")):
        own = pq.read_table(path)
        pq.write_table(own.filter(pa.array(own["time"].to_numpy() <= first_forgotten)), folder / "kept" / path.name)
    with Workspace(Settings(workspace=folder.parent / "other")) as other:
        fresh = product.train_model_version(other, request_of(folder / "kept", **asked, cuts="fresh"))
        proved = product.find_version(workspace, f"daily@{done['versions'][0]['version']}")
        assert fresh.n_rows == expected and same(model_of(fresh), model_of(proved))


def test_the_command_line_updates_and_forgets(folder, tmp_path):
    columns, place = tmp_path / "columns.json", tmp_path / "workspace"
    columns.write_text(json.dumps(COLUMNS))
    train = ["train", folder, "-t", "class", "-n", "daily", "-l", "kdb", "--k", "2", "--columns", columns, "--update"]
    fewpass(*train, workspace=place)
    write(folder, 5)
    fewpass("models", "alias", "daily@1", "champion", workspace=place)
    updated = fewpass(*train, workspace=place)
    said = " ".join(updated.stdout.split())
    assert (
        "daily still stands for version 1, its champion. To change that: fewpass models alias daily@2 champion" in said
    )
    assert "next: fewpass query daily@2 --of class" in said
    assert "read all 1,200 rows for " in said and "; otherwise 600 came from stored counts" in said
    forget = ("forget", "daily", "--where", "user = 3")
    stays = "Alias champion of daily stays at version 1, which knows them. Move it: fewpass models alias daily@"
    assert f"{stays}VERSION champion" in " ".join(fewpass(*forget, "--dry-run", workspace=place).stdout.split())
    other = ["train", folder, "-t", "class", "-n", "other", "-l", "nb", "--columns", columns, "--alias", "champion"]
    fewpass(*other, workspace=place)
    said = " ".join(fewpass(*forget, workspace=place).stdout.split())
    assert "equals, bit for bit," in said
    assert "Versions that still know them: daily@1, daily@2, other@1" in said
    assert f"{stays}3 champion" in said
    assert (
        "Alias champion of other stays at version 1, which knows them. Forget them there, too: fewpass forget other"
        in said
    )
    wrong = fewpass("forget", "daily", "--where", "user = (SELECT 1)", workspace=place, code=1)
    assert "subquery is not allowed" in " ".join(wrong.stderr.split())
    bad = fewpass(*train, "--window", "3 days", workspace=place, code=1)
    with pytest.raises(InvalidParameter) as refused:
        select_newest_rows(Source.open([str(folder)]), "3 days", None)
    assert str(refused.value) in " ".join(bad.stderr.split())


def test_what_is_logged_does_not_stand_in_the_json(folder, tmp_path):
    place = tmp_path / "workspace"
    train = ["train", folder, "-t", "class", "-n", "daily", "-l", "kdb", "--update", "--json"]
    fewpass(*train, workspace=place)
    for statistic in (place / "models" / "daily" / "data" / "statistics").glob("*.duckdb"):
        statistic.chmod(0o644)
        statistic.write_bytes(b"junk")
    again = fewpass(*train, workspace=place)
    assert json.loads(again.stdout)["version"] == 2
    assert "a stored statistic is damaged and will be counted again" in again.stderr


def test_jobs_update_and_forget(site, folder):
    """Over REST, in the worker."""
    client = site.client
    rows = {"name": "rows", "uris": [str(folder)], "target": "class", "columns": COLUMNS}
    assert client.post("/v1/datasets", json=rows).status_code in (200, 201)
    request = {"kind": "train", "dataset": "rows", "learner": "kdb", "model": "daily", "update": True}
    finished(client, request)
    write(folder, 5)
    passes = finished(client, request)["passes"]
    assert {each["stage"]: each["n_files_read"] for each in passes}["counting pairs"] == 1
    forget = {"kind": "forget", "dataset": "rows"}
    assert finished(client, forget | {"where": "user = 3"})["proofs"][0]["is_equal"] is True
    refused = problem(client.post("/v1/jobs", json=request | {"window": "3x"}), 422)
    assert "window='3x' must be a number and a unit" in refused["detail"]
    refused = problem(client.post("/v1/jobs", json=forget | {"where": "1 = 1"}), 422)
    assert refused["title"] == "Invalid condition"
