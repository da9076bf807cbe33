"""The registry as its users know it: tags, lineage, rollback, decisions, retention, export and import."""

import json
import os
import tarfile
from functools import partial
from pathlib import Path

import duckdb
import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from service import product
from service.product.promotion import Measured, promotion_verdict
from service.product.versions import provenance
from service.requests import problems
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest, PromotionRule, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import NotFound
from storage.files.atomic_files import sha256_of_file
from storage.models import promotions
from storage.models.model_file import read_model_key_values
from tests.processes import wait_for
from tests.service.asking import PATIENCE_S, ended_job, finished, train_job
from tests.service.conftest import weather
from tests.service.product.conftest import run_refresh
from tests.support.cli import fewpass, said
from tests.support.http import problem
from tests.support.product import parts_of, rebuilt

pytestmark = pytest.mark.usefixtures("weather_set")


NB = {"dataset": "weather", "learner": "nb", "parameters": {"m": 1.0}, "model": "weather"}


def train(workspace, **changes):
    return product.train_model_version(workspace, TrainRequest.model_validate(NB | changes))


def refresh(workspace, job, rule=None, **changes):
    return run_refresh(workspace, NB | changes, job, promotion=rule or {})


def champion(workspace):
    return product.aliases_of(workspace, "weather")["champion"]


# Champion and challenger

SCORES = {"log_loss": 0.5, "rmse": 0.4, "zero_one_loss": 0.2, "ece": 0.05, "n_test_rows": 1000}
CHAMPION = Measured(1, SCORES)


@pytest.mark.parametrize(
    ("rule", "changes", "is_promoted", "words"),
    [
        ({}, {}, True, "log_loss 0.5 against 0.5, on 1000 rows"),
        ({"margin": 0.01}, {"log_loss": 0.495}, False, "0.495 against 0.5 less 0.01"),
        ({"margin": 0.01}, {"log_loss": 0.485}, True, "version 2 replaces 1 as champion"),
        ({"margin": -0.01}, {"log_loss": 0.505}, True, "plus 0.01"),
        ({"metric": "rmse"}, {"log_loss": 9.0, "rmse": 0.39}, True, "rmse 0.39 against 0.4"),
        ({"metric": "zero_one_loss"}, {"zero_one_loss": 0.21}, False, "version 1 stays champion"),
        ({}, {"log_loss": 0.1, "ece": 0.08}, False, "calibration error is 0.03 greater, more than the allowed 0.02"),
        ({"max_ece_increase": None}, {"log_loss": 0.1, "ece": 0.9}, True, "replaces"),
        ({}, {"log_loss": float("nan")}, False, "stays"),
        ({}, {"log_loss": float("inf")}, False, "stays"),
        ({}, {"log_loss": 0.1, "ece": float("nan")}, False, "calibration"),
        ({"min_rows": 2000}, {"log_loss": 0.1}, False, "1000 rows are fewer than the required 2000"),
    ],
)
def test_the_rule_decides_by_metric_margin_and_calibration(rule, changes, is_promoted, words):
    found = promotion_verdict(PromotionRule(**rule), Measured(2, SCORES | changes), CHAMPION)
    assert found.is_promoted is is_promoted and words in found.reason


def test_who_cannot_be_measured_wins_nothing():
    broken = Measured(2, None, "a new class")
    for challenger, champion in ((broken, None), (broken, CHAMPION), (CHAMPION, broken)):
        found = promotion_verdict(PromotionRule(), challenger, champion)
        assert not found.is_promoted and "version 2 could not be measured (a new class)" in found.reason


def test_a_refresh_promotes_the_better_and_keeps_the_decision(workspace):
    first = refresh(workspace, "a")
    assert first["promotion"]["is_promoted"] and champion(workspace) == 1
    worse = refresh(workspace, "b", {"margin": 0.01}, parameters={"m": 5000.0})
    assert not worse["promotion"]["is_promoted"] and champion(workspace) == 1
    better = refresh(workspace, "c", {"metric": "rmse", "margin": -1, "max_ece_increase": None})
    assert champion(workspace) == 3
    newest, middle, oldest = product.list_promotions(workspace, "weather").items
    assert (newest.challenger, newest.champion, newest.rule["metric"]) == (3, 1, "rmse")
    assert newest.champion_metrics["n_test_rows"] == newest.challenger_metrics["n_test_rows"] > 100
    assert middle.reason.startswith("version 1 stays champion: version 2 has log_loss") and oldest.champion is None
    assert better["promotion"]["reason"] == newest.reason == product.alias_history(workspace, "weather").items[0].reason
    again = refresh(workspace, "c")  # a worker that was killed after deciding
    assert again["version"] == 3 and again["promotion"]["decided_at"] == better["promotion"]["decided_at"]
    assert len(product.list_promotions(workspace, "weather").items) == 3


@pytest.fixture
def days(workspace, tmp_path):
    folder = tmp_path / "days"
    folder.mkdir()
    write_day(folder, 1, weather(3000, 5))
    product.register_dataset(workspace, DatasetRequest(name="days", uris=[str(folder)], target="class"))
    return folder


def write_day(folder, day, table):
    """A file that has changed on that day: which one is the newest, is told by that."""
    path = folder / f"{day}.parquet"
    pq.write_table(table, path)
    os.utime(path, (day * 86_400, day * 86_400))


def deciding_files(result):
    return [Path(file).name for file in result["promotion"]["measured_on"]["files"]]


OF_DAYS = {"dataset": "days", "model": "days"}


def test_the_newest_file_decides_and_rows_of_a_class_that_is_new_count_as_wrong(workspace, days):
    assert refresh(workspace, "a", **OF_DAYS)["promotion"]["is_promoted"]
    table = weather(2000, 6)
    rain = np.where(np.arange(2000) % 3 == 0, "maybe", np.array(table["class"].to_pylist()))
    write_day(days, 2, table.set_column(4, "class", [rain]))
    told = refresh(workspace, "b", **OF_DAYS)
    assert deciding_files(told) == ["2.parquet"]
    result = told["promotion"]
    assert result["is_promoted"] and "version 2 replaces 1 as champion" in result["reason"]
    challenger, before = result["challenger_metrics"], result["champion_metrics"]
    assert challenger["n_test_rows"] == before["n_test_rows"] == pytest.approx(400, abs=80)
    assert before["n_unknown_class_rows"] == pytest.approx(400 / 3, abs=30) and "n_unknown_class_rows" not in challenger
    assert before["zero_one_loss"] * before["n_test_rows"] >= before["n_unknown_class_rows"]
    write_day(days, 3, weather(20, 7))
    more = refresh(workspace, "c", **OF_DAYS)  # twenty rows are too few, so two files
    assert deciding_files(more) == ["3.parquet", "2.parquet"]


def test_a_refresh_that_updates_reads_new_files_only(workspace, days):
    refresh(workspace, "a", **OF_DAYS, update=True)
    write_day(days, 2, weather(1000, 6))
    told = refresh(workspace, "b", **OF_DAYS, update=True, cuts="kept")
    assert {account["n_rows_read"] for account in told["passes"]} == {1000} and deciding_files(told) == ["2.parquet"]


def test_a_champion_that_is_moved_meanwhile_is_measured_anew(workspace, monkeypatch):
    train(workspace)
    train(workspace)
    product.set_alias(workspace, "weather", "champion", 1)
    record, moves = promotions.record_promotion, iter([2])

    def interrupted(control, decision):
        for version in moves:
            product.set_alias(workspace, "weather", "champion", version)
        return record(control, decision)

    monkeypatch.setattr(promotions, "record_promotion", interrupted)
    assert refresh(workspace, "a")["promotion"]["champion"] == 2


def test_an_evaluation_set_is_used_instead(workspace, weather_files):
    product.register_dataset(workspace, DatasetRequest(name="judge", uris=[str(weather_files[1])], target="class"))
    result = refresh(workspace, "a", {"dataset": "judge"}, holdout=0)["promotion"]
    assert result["measured_on"]["dataset"] == "judge" and result["challenger_metrics"]["n_test_rows"] == 500


# Retention


def test_pruning_keeps_the_newest_and_what_aliases_point_at(workspace):
    versions = [train(workspace) for _ in range(4)]
    product.set_alias(workspace, "weather", "champion", 1)
    prune = partial(product.prune_model_versions, workspace, "weather")
    assert prune() == [] and product.retention_of(workspace, "weather") is None
    product.set_retention(workspace, "weather", 2)
    assert prune() == [2]
    assert not versions[1].duckdb_path.exists() and versions[0].duckdb_path.exists()
    assert [version.version for version in product.list_versions(workspace, "weather").items] == [4, 3, 1]
    result = refresh(workspace, "a", {"margin": 50})  # the rule of retention holds after each refresh
    assert result["pruned"] == [3] and not result["promotion"]["is_promoted"]
    assert prune(1) == [4]
    with pytest.raises(NotFound, match="no model 'nothing'"):
        product.set_retention(workspace, "nothing", 3)


# Export and import


@pytest.fixture
def exported(workspace, tmp_path):
    train(workspace, tags={"team": "sky"})
    product.write_export(workspace, "weather", tmp_path / "weather.tar")
    return tmp_path / "weather.tar"


def test_an_exported_version_answers_elsewhere_as_it_did(workspace, exported, tmp_path):
    with tarfile.open(exported) as tar:
        assert tar.getnames() == ["manifest.json", "model.duckdb"]
    record = {"outlook": "sunny", "humidity": 52.0}
    before = product.load_served_model(workspace, "weather").classify(record)
    with Workspace(Settings(workspace=tmp_path / "elsewhere")) as elsewhere:
        version = product.import_version(elsewhere, exported)
        assert (version.name, version.version) == ("weather", 1)
        assert version.tags == {"team": "sky", "imported_from": "weather@1"}
        assert version.sha256 == product.find_version(workspace, "weather").sha256
        assert product.import_version(elsewhere, exported, "copied").version == 1
        assert product.import_version(elsewhere, exported).version == 2
        assert np.array_equal(product.load_served_model(elsewhere, "weather@2").classify(record), before)
        ours, theirs = product.version_lineage(workspace, "weather"), product.version_lineage(elsewhere, "copied")
        assert ours["files"] == theirs["files"]
    product.write_export(workspace, "weather", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    with pytest.raises(InvalidRequest, match="already exists"):
        product.write_export(workspace, "weather", exported)


def test_what_is_damaged_or_made_up_is_refused(workspace, exported, tmp_path):
    sound = exported.read_bytes()
    manifest, model = parts_of(exported)
    evil = tmp_path / "evil.duckdb"
    with duckdb.connect(str(evil)) as connection:  # would read a file of the server
        file = "SELECT content AS json, 'x' AS sha256 FROM read_text('/etc/hostname')"
        connection.execute(f"CREATE VIEW header AS {file}")
    flipped = bytearray(sound)
    flipped[len(sound) // 2] ^= 1
    cases = {
        "not a tar": b"nothing of the kind" * 100,
        "is missing or misplaced": rebuilt(manifest, model, ("model.duckdb", "manifest.json")),
        "contains files other than": rebuilt(manifest, model, ("manifest.json", "model.duckdb", "more")),
        "does not have the SHA-256": bytes(flipped),
        "manifest cannot be read": rebuilt(b"{", model),
        "is of format": rebuilt(manifest | {"format_version": 2}, model),
        "its manifest was not written by `export`": rebuilt(manifest | {"tags": {"a": 1}}, model),
        "is a view": rebuilt(manifest | {"sha256": sha256_of_file(evil)}, evil.read_bytes()),
    }
    for content, words in [
        *((content, words) for words, content in cases.items()),
        *((sound[:length], "Nothing was imported") for length in (0, 100, 600, len(sound) // 2, len(sound) - 2000)),
    ]:
        (tmp_path / "bad.tar").write_bytes(content)
        with pytest.raises(InvalidRequest, match=words):
            product.import_version(workspace, tmp_path / "bad.tar", "bad")
    with pytest.raises(NotFound, match="There is no"):
        product.find_version(workspace, "bad")
    assert not list(workspace.layout.models.glob("bad/*"))


# Over REST


def test_the_provenance_that_was_just_written_is_that_of_the_file(workspace, monkeypatch):
    version = train(workspace)
    with monkeypatch.context() as unread:
        unread.setattr(provenance, "read_model_key_values", lambda *_: pytest.fail("read"))
        written = provenance.stored_provenance(version)
    assert dict(written) == read_model_key_values(version.duckdb_path, "provenance")


def test_tags_lineage_rollback_and_pictures_over_rest(site):
    client = site.client
    body = train_job(site.train, "registered")
    first, _ = (ended_job(client, body) for _ in range(2))
    path = "/v1/models/registered"
    assert client.put(f"{path}@1/tags/checked-by", json={"value": "Ana"}).json()["tags"] == {"checked-by": "Ana"}
    assert client.put(f"{path}@1/tags/{'x' * 65}", json={"value": "Ana"}).status_code == 422
    assert client.delete(f"{path}@1/tags/checked-by").json()["tags"] == {}
    assert client.delete(f"{path}@1/tags/checked-by").status_code == 404
    lineage = client.get(f"{path}@1/lineage").json()
    assert lineage["job_id"] == first["id"] and lineage["files"][0]["path"] == str(site.train)
    assert lineage["schema"]["target"] == "class" and lineage["provenance"]["learner"] == "nb"
    assert "duckdb" in lineage["libraries"]
    picture = client.get(f"{path}/structure.svg")
    assert picture.headers["content-type"].startswith("image/svg+xml") and "<svg" in picture.text
    for version in (1, 2):
        client.put(f"{path}/aliases/champion", json={"version": version})
    assert client.post(f"{path}/aliases/champion/rollback").json() == {"aliases": {"champion": 1}}
    assert client.post(f"{path}/predict", json={"records": [{}]}).json()["version"] == 1
    moves = client.get(f"{path}/history?limit=2").json()
    assert [(move["version"], move["reason"]) for move in moves["items"]] == [(1, "rolled back"), (2, "")]
    assert moves["next_cursor"] and client.get(f"{path}/promotions").json()["items"] == []
    problem(client.post(f"{path}/aliases/champion/rollback"), 409)
    for absent in ("history", "promotions"):
        problem(client.get(f"/v1/models/nothing/{absent}"), 404)
    assert client.put(f"{path}/retention", json={"keep": 1}).json() == client.get(f"{path}/retention").json()
    client.delete(f"{path}/aliases/champion")
    assert client.post(f"{path}/prune").json() == {"removed": [1]}
    problem(client.put(f"{path}/retention", json={"keep": 0}), 422)


def test_a_model_is_not_deleted_under_a_job(workspace):
    train(workspace)
    job, _ = product.job_queue(workspace).submit("query", {"model": "weather@1"})
    with pytest.raises(problems.Conflict, match=job.id):
        product.delete_model(workspace, "weather")
    product.job_queue(workspace).cancel(job.id)
    assert product.delete_model(workspace, "weather") == [1]


def test_a_model_is_deleted_whole(site):
    client = site.client
    body, path, rows = train_job(site.train, "doomed"), "/v1/models/doomed", {"records": [{}]}
    finished(client, body | {"aliases": ["champion"]})
    folder = site.workspace / "models" / "doomed"
    assert client.post(f"{path}/predict", json=rows).status_code == 200 and any(folder.iterdir())
    assert client.delete(path).json() == {"removed": [1]}
    for gone in (client.delete(path), client.get(path), client.post(f"{path}/predict", json=rows)):
        problem(gone, 404)
    assert not list(folder.glob("*.duckdb")) and not list(folder.glob("*.arrow"))
    assert finished(client, body)["version"] == 2  # numbers go on
    assert client.get(f"{path}/history").json()["items"] == []


def test_export_and_import_over_rest(site, tmp_path):
    client, path = site.client, "/v1/models/imported/import"
    tar = {"headers": {"content-type": "application/x-tar"}}
    exported = client.get("/v1/models/weather@1/export")
    assert exported.headers["content-disposition"] == 'attachment; filename="weather-1.fewpass.tar"'
    assert len(exported.content) > 200_000  # more than any other body may have here
    imported = client.post(path, content=exported.content, **tar)
    assert imported.status_code == 201, imported.text
    assert imported.headers["location"] == "/v1/models/imported@1"
    record = {"records": [{"outlook": "rain"}]}
    answers = [client.post(f"/v1/models/{name}/predict", json=record).json() for name in ("weather@1", "imported")]
    assert answers[0]["probabilities"] == answers[1]["probabilities"]
    refused = problem(client.post(path, content=exported.content[:-9000], **tar), 422)
    assert "Nothing was imported" in refused["detail"]
    problem(client.post(path, content=b"x"), 415)
    problem(client.post("/v1/models/NOT/import", content=exported.content, **tar), 422)
    # They go when the request was answered; processes have folders of their own beside them.
    wait_for(lambda: not list((site.workspace / "scratch").glob(".*/upload.tar")))
    with pytest.raises(httpx.HTTPError):  # a client that goes away in the middle

        def breaking():
            yield exported.content[:1000]
            raise httpx.ReadError("gone")

        httpx.post(f"{site.server.url}{path}", content=breaking(), timeout=PATIENCE_S, **tar)
    assert client.get("/v1/models/imported").json()["version"] == 1


def test_the_registry_on_the_command_line(tmp_path, weather_files):
    workspace, bundle = tmp_path / "workspace", tmp_path / "two.tar"
    models = partial(said, "models", workspace=workspace)
    for _ in range(2):
        train = ["train", weather_files[0], "-t", "class", "-l", "nb", "-n", "weather", "--alias", "champion"]
        fewpass(*train, workspace=workspace)
    assert json.loads(models("tag", "weather@1", "checked-by", "Ana", "--json")) == {"checked-by": "Ana"}
    assert "train.parquet" in "".join(models("lineage", "weather").split())
    assert "version 1 again" in models("rollback", "weather")
    assert "rolled back" in models("history", "weather")
    assert json.loads(models("history", "weather", "--json"))[0]["reason"] == "rolled back"
    assert "none yet" in models("promotions", "weather")
    assert "newest 1" in models("retention", "weather", "--keep", 1)
    assert "nothing to remove" in models("prune", "weather")
    models("export", "weather@2", "--out", bundle)
    assert "weather@3" in models("import", bundle)
    bundle.chmod(0o644)
    bundle.write_bytes(b"damaged")
    assert "Nothing was imported" in models("import", bundle, code=1)
    assert "--all" in models("delete", "weather", code=2)
    assert "version" in models("delete", "weather@3", "--all", code=2)
    models("delete", "weather@3")
    assert "2, 1" in models("delete", "weather", "--all")
    assert "no models" in models()
