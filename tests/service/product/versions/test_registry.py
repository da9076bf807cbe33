"""The registry as its users know it: tags, lineage, rollback, decisions, retention, export and import."""

import io
import json
import os
import tarfile
from pathlib import Path

import duckdb
import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest

from service import product
from service.jobs.steps import run_job_steps
from service.product.promotion import Measured, promotion_verdict
from service.requests import problems
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest, PromotionRule, RefreshRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import Conflict, NotFound
from storage.models import promotions
from tests.processes import wait_for
from tests.service.asking import PATIENCE_S, job_at_end
from tests.service.cli.test_cli import fewpass
from tests.service.conftest import weather

pytestmark = pytest.mark.usefixtures("weather_set")


def train(workspace, **changes):
    values = {"dataset": "weather", "learner": "nb", "parameters": {"m": 1.0}, "model": "weather"}
    return product.train_model_version(workspace, TrainRequest.model_validate(values | changes))


def refresh(workspace, job, rule=None, **changes):
    values = {"dataset": "weather", "learner": "nb", "parameters": {"m": 1.0}, "model": "weather"} | changes
    request = RefreshRequest.model_validate({"train": values, "promotion": rule or {}})
    return run_job_steps(
        product.job_steps_by_kind(workspace)["refresh"], f"local-{job}", request.model_dump(), lambda _: None
    )


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
        ({}, {"log_loss": 0.1, "ece": 0.08}, False, "calibration error is 0.03 greater and at most 0.02"),
        ({"max_ece_increase": None}, {"log_loss": 0.1, "ece": 0.9}, True, "replaces"),
        ({}, {"log_loss": float("nan")}, False, "stays"),
        ({}, {"log_loss": float("inf")}, False, "stays"),
        ({}, {"log_loss": 0.1, "ece": float("nan")}, False, "calibration"),
        ({"min_rows": 2000}, {"log_loss": 0.1}, False, "1000 rows are fewer than the 2000 that decide"),
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
    assert first["promotion"]["is_promoted"] and product.aliases_of(workspace, "weather") == {"champion": 1}
    worse = refresh(workspace, "b", {"margin": 0.01}, parameters={"m": 5000.0})
    assert not worse["promotion"]["is_promoted"] and product.aliases_of(workspace, "weather") == {"champion": 1}
    better = refresh(workspace, "c", {"metric": "rmse", "margin": -1, "max_ece_increase": None})
    assert product.aliases_of(workspace, "weather") == {"champion": 3}
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


def test_the_newest_file_decides_and_a_class_that_is_new_is_left_to_a_person(workspace, days):
    assert refresh(workspace, "a", dataset="days", model="days")["promotion"]["is_promoted"]
    table = weather(2000, 6)
    rain = np.where(np.arange(2000) % 3 == 0, "maybe", np.array(table["class"].to_pylist()))
    write_day(days, 2, table.set_column(4, "class", [rain]))
    result = refresh(workspace, "b", dataset="days", model="days")["promotion"]
    assert [Path(file).name for file in result["measured_on"]["files"]] == ["2.parquet"]
    assert not result["is_promoted"] and "could not be measured" in result["reason"] and "'maybe'" in result["reason"]
    assert result["challenger_metrics"]["n_test_rows"] == pytest.approx(400, abs=80)
    write_day(days, 3, weather(20, 7))
    more = refresh(workspace, "c", dataset="days", model="days")["promotion"]  # twenty rows are too few, so two files
    assert [Path(file).name for file in more["measured_on"]["files"]] == ["3.parquet", "2.parquet"]


def test_a_refresh_that_updates_reads_new_files_only(workspace, days):
    refresh(workspace, "a", dataset="days", model="days", update=True)
    write_day(days, 2, weather(1000, 6))
    result = refresh(workspace, "b", dataset="days", model="days", update=True)
    assert {account["n_rows_read"] for account in result["passes"]} == {1000}
    assert [Path(file).name for file in result["promotion"]["measured_on"]["files"]] == ["2.parquet"]


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
    assert (
        product.prune_model_versions(workspace, "weather") == [] and product.retention_of(workspace, "weather") is None
    )
    product.set_retention(workspace, "weather", 2)
    assert product.prune_model_versions(workspace, "weather") == [2]
    assert not versions[1].duckdb_path.exists() and versions[0].duckdb_path.exists()
    assert [version.version for version in product.list_versions(workspace, "weather").items] == [4, 3, 1]
    result = refresh(workspace, "a", {"margin": 50})  # the rule of retention holds after each refresh
    assert result["pruned"] == [3] and not result["promotion"]["is_promoted"]
    assert product.prune_model_versions(workspace, "weather", 1) == [4]
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
        assert (
            product.version_lineage(elsewhere, "copied")["files"]
            == product.version_lineage(workspace, "weather")["files"]
        )
    product.write_export(workspace, "weather", tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    with pytest.raises(InvalidRequest, match="exists already"):
        product.write_export(workspace, "weather", exported)


def parts_of(bundle):
    """The manifest and the model of an export."""
    with tarfile.open(bundle) as tar:
        manifest, model = (tar.extractfile(name).read() for name in tar.getnames())
    return json.loads(manifest), model


def rebuilt(manifest, model, names=("manifest.json", "model.duckdb")):
    written = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in zip(names, (written, model, b"more"), strict=False):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_what_is_damaged_or_made_up_is_refused(workspace, exported, tmp_path):
    sound = exported.read_bytes()
    manifest, model = parts_of(exported)
    evil = tmp_path / "evil.duckdb"
    with duckdb.connect(str(evil)) as connection:  # would read a file of the server
        connection.execute(
            "CREATE VIEW header AS SELECT content AS json, 'x' AS sha256 FROM read_text('/etc/hostname')"
        )
    from storage.files.atomic_files import sha256_of_file

    flipped = bytearray(sound)
    flipped[len(sound) // 2] ^= 1
    cases = {
        "not a tar": b"nothing of the kind" * 100,
        "is missing, or in another place": rebuilt(manifest, model, ("model.duckdb", "manifest.json")),
        "holds more than": rebuilt(manifest, model, ("manifest.json", "model.duckdb", "more")),
        "does not have the SHA-256": bytes(flipped),
        "manifest cannot be read": rebuilt(b"{", model),
        "is of format": rebuilt(manifest | {"format_version": 2}, model),
        "not one that `export` writes": rebuilt(manifest | {"tags": {"a": 1}}, model),
        "is a view": rebuilt(manifest | {"sha256": sha256_of_file(evil)}, evil.read_bytes()),
    }
    for words, content in cases.items():
        (tmp_path / "bad.tar").write_bytes(content)
        with pytest.raises(InvalidRequest, match=words):
            product.import_version(workspace, tmp_path / "bad.tar", "bad")
    for length in (0, 100, 600, len(sound) // 2, len(sound) - 2000):
        (tmp_path / "bad.tar").write_bytes(sound[:length])
        with pytest.raises(InvalidRequest, match="Nothing was imported"):
            product.import_version(workspace, tmp_path / "bad.tar", "bad")
    with pytest.raises(NotFound, match="There is no"):
        product.find_version(workspace, "bad")
    assert not list(workspace.layout.models.glob("bad/*"))


# Over REST


def test_tags_lineage_rollback_and_pictures_over_rest(site):
    client = site.client
    body = {"uris": [str(site.train)], "target": "class", "learner": "nb", "model": "registered", "kind": "train"}
    jobs = [client.post("/v1/jobs", json=body).json()["id"] for _ in range(2)]
    assert {job_at_end(site.client, job)["state"] for job in jobs} == {"succeeded"}
    path = "/v1/models/registered"
    assert client.put(f"{path}@1/tags/checked-by", json={"value": "Ana"}).json()["tags"] == {"checked-by": "Ana"}
    assert client.put(f"{path}@1/tags/{'x' * 65}", json={"value": "Ana"}).status_code == 422
    assert client.delete(f"{path}@1/tags/checked-by").json()["tags"] == {}
    assert client.delete(f"{path}@1/tags/checked-by").status_code == 404
    lineage = client.get(f"{path}@1/lineage").json()
    assert lineage["job_id"] == jobs[0] and lineage["files"][0]["path"] == str(site.train)
    assert lineage["schema"]["target"] == "class" and lineage["provenance"]["learner"] == "nb"
    assert "duckdb" in lineage["libraries"]
    picture = client.get(f"{path}/structure.svg")
    assert picture.headers["content-type"].startswith("image/svg+xml") and "<svg" in picture.text
    for version in (1, 2):
        client.put(f"{path}/aliases/champion", json={"version": version})
    assert client.post(f"{path}/aliases/champion/rollback").json() == {"aliases": {"champion": 1}}
    assert client.post(f"{path}/predict", json={"records": [{}]}).json()["version"] == 1
    assert client.post(f"{path}/aliases/champion/rollback").status_code == 409
    moves = client.get(f"{path}/history?limit=2").json()
    assert [(move["version"], move["reason"]) for move in moves["items"]] == [(1, "rolled back"), (2, "")]
    assert client.get("/v1/models/nothing/history").status_code == 404
    assert client.get("/v1/models/nothing/promotions").status_code == 404
    assert moves["next_cursor"] and client.get(f"{path}/promotions").json()["items"] == []
    assert client.put(f"{path}/retention", json={"keep": 1}).json() == client.get(f"{path}/retention").json()
    client.delete(f"{path}/aliases/champion")
    assert client.post(f"{path}/prune").json() == {"removed": [1]}
    assert client.put(f"{path}/retention", json={"keep": 0}).status_code == 422


def test_a_model_is_not_deleted_under_a_job(workspace):
    train(workspace)
    job, _ = product.job_queue(workspace).submit("query", {"model": "weather@1"})
    with pytest.raises(problems.Conflict, match=job.id):
        product.delete_model(workspace, "weather")
    product.job_queue(workspace).cancel(job.id)
    assert product.delete_model(workspace, "weather") == [1]


def test_a_model_is_deleted_whole(site):
    client = site.client
    body = {"uris": [str(site.train)], "target": "class", "learner": "nb", "model": "doomed", "kind": "train"}
    job_at_end(client, client.post("/v1/jobs", json=body | {"aliases": ["champion"]}).json()["id"])
    folder = site.workspace / "models" / "doomed"
    assert client.post("/v1/models/doomed/predict", json={"records": [{}]}).status_code == 200 and any(folder.iterdir())
    assert client.delete("/v1/models/doomed").json() == {"removed": [1]}
    assert client.delete("/v1/models/doomed").status_code == client.get("/v1/models/doomed").status_code == 404
    assert client.post("/v1/models/doomed/predict", json={"records": [{}]}).status_code == 404
    assert not list(folder.glob("*.duckdb")) and not list(folder.glob("*.arrow"))
    job = job_at_end(client, client.post("/v1/jobs", json=body).json()["id"])
    assert job["result"]["version"] == 2  # numbers go on
    assert client.get("/v1/models/doomed/history").json()["items"] == []


def test_export_and_import_over_rest(site, tmp_path):
    client, tar = site.client, {"content-type": "application/x-tar"}
    exported = client.get("/v1/models/weather@1/export")
    assert exported.headers["content-disposition"] == 'attachment; filename="weather-1.fewpass.tar"'
    assert len(exported.content) > 200_000  # more than any other body may have here
    imported = client.post("/v1/models/imported/import", content=exported.content, headers=tar)
    assert imported.status_code == 201, imported.text
    assert imported.headers["location"] == "/v1/models/imported@1"
    record = {"records": [{"outlook": "rain"}]}
    answers = [client.post(f"/v1/models/{name}/predict", json=record).json() for name in ("weather@1", "imported")]
    assert answers[0]["probabilities"] == answers[1]["probabilities"]
    refused = client.post("/v1/models/imported/import", content=exported.content[:-9000], headers=tar)
    assert refused.status_code == 422 and "Nothing was imported" in refused.json()["detail"]
    assert client.post("/v1/models/imported/import", content=b"x").status_code == 415
    assert client.post("/v1/models/NOT/import", content=exported.content, headers=tar).status_code == 422
    # They go when the request was answered; processes have folders of their own beside them.
    wait_for(lambda: not list((site.workspace / "scratch").glob(".*/upload.tar")))
    url = f"{site.server.url}/v1/models/imported/import"
    with pytest.raises(httpx.HTTPError):  # a client that goes away in the middle

        def breaking():
            yield exported.content[:1000]
            raise httpx.ReadError("gone")

        httpx.post(url, content=breaking(), headers=tar, timeout=PATIENCE_S)
    assert client.get("/v1/models/imported").json()["version"] == 1


def test_the_registry_on_the_command_line(tmp_path, weather_files):
    workspace = tmp_path / "workspace"
    for _ in range(2):
        fewpass("train", weather_files[0], "--target", "class", "--learner", "nb", "--name", "weather", "--alias",
                "champion", workspace=workspace)  # fmt: skip
    tags = fewpass("models", "tag", "weather@1", "checked-by", "Ana", "--json", workspace=workspace).stdout
    assert json.loads(tags) == {"checked-by": "Ana"}
    assert "train.parquet" in "".join(fewpass("models", "lineage", "weather", workspace=workspace).stdout.split())
    assert "version 1 again" in fewpass("models", "rollback", "weather", workspace=workspace).stdout
    assert "rolled back" in fewpass("models", "history", "weather", workspace=workspace).stdout
    moves = json.loads(fewpass("models", "history", "weather", "--json", workspace=workspace).stdout)
    assert moves[0]["reason"] == "rolled back"
    assert "none yet" in fewpass("models", "promotions", "weather", workspace=workspace).stdout
    assert "newest 1" in fewpass("models", "retention", "weather", "--keep", 1, workspace=workspace).stdout
    assert "nothing to remove" in fewpass("models", "prune", "weather", workspace=workspace).stdout
    fewpass("models", "export", "weather@2", "--out", tmp_path / "two.tar", workspace=workspace)
    assert "weather@3" in fewpass("models", "import", tmp_path / "two.tar", workspace=workspace).stdout
    (tmp_path / "two.tar").chmod(0o644)
    (tmp_path / "two.tar").write_bytes(b"damaged")
    failed = fewpass("models", "import", tmp_path / "two.tar", workspace=workspace, code=1)
    assert "Nothing was imported" in failed.stderr
    assert "--all" in fewpass("models", "delete", "weather", workspace=workspace, code=2).stderr
    assert "version" in fewpass("models", "delete", "weather@3", "--all", workspace=workspace, code=2).stderr
    fewpass("models", "delete", "weather@3", workspace=workspace)
    assert "2, 1" in fewpass("models", "delete", "weather", "--all", workspace=workspace).stdout
    assert "no models" in fewpass("models", workspace=workspace).stdout


def test_a_decision_about_another_champion_is_refused(workspace):
    train(workspace)
    train(workspace)
    product.set_alias(workspace, "weather", "champion", 2)
    decision = promotions.Promotion("weather", "champion", 2, 1, True, "", {}, None, None, {}, "job-x")
    with pytest.raises(Conflict, match="was moved in the meantime"):
        promotions.record_promotion(workspace.control, decision)
    assert promotions.list_promotions(workspace.control, "weather").items == ()
