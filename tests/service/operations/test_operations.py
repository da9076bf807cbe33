"""Backup, restore and doctor, on the command line, beside a running server."""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import random
import shutil
import sqlite3
import stat
import subprocess
import tarfile
import threading
import time

import pytest

from service import product
from service.jobs.worker_leases import lease_host_name
from service.jobs.worker_slots import acquire_worker_slot
from service.operations import backup, doctor
from service.requests.problems import Conflict, InvalidRequest
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.control.leases import take_lease
from storage.errors import CorruptFile
from storage.files.atomic_files import read_manifest, sha256_of_file
from storage.monitoring.monitoring_files import workspace_secret
from tests.processes import wait_for
from tests.service import forks
from tests.service.asking import finished, learned, train_job, training
from tests.service.forks import local_server
from tests.support.http import RECORD


def run(*command, workspace, code=0):
    """The JSON that a command prints."""
    ended = forks.run([*command, "--workspace", str(workspace), "--json"], dict(os.environ))
    assert ended.returncode == code, ended.stdout + ended.stderr
    return json.loads(ended.stdout or ended.stderr)


def two_versions(root, data):
    """A workspace with two versions of one model."""
    settings = Settings(workspace=root)
    with Workspace(settings) as workspace:
        learned(workspace, data, parameters={"m": 1.0}, holdout=0)
        learned(workspace, data, learner="tan", parameters={"m": 1.0}, holdout=0, aliases=["champion"])
    return settings


@pytest.fixture(scope="module")
def trained(tmp_path_factory, weather_files):
    return two_versions(tmp_path_factory.mktemp("trained") / "workspace", weather_files[0]).workspace


@pytest.fixture
def small(trained, tmp_path):
    """A copy of the trained workspace."""
    return Settings(workspace=shutil.copytree(trained, tmp_path / "workspace"))


@pytest.fixture
def copy(small, tmp_path):
    """A backup of the copy, as a folder."""
    with Workspace(small) as workspace:
        backup.back_up_workspace(workspace, tmp_path / "copy")
    return tmp_path / "copy"


def contents(root):
    return {str(path.relative_to(root)): sha256_of_file(path) for path in sorted(root.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("name", ["copy", "copy.tar"])
def test_a_backup_beside_a_busy_server_restores_to_a_workspace_that_answers_the_same(site, tmp_path, name):
    stop = threading.Event()
    codes: list[int] = []

    def train():  # versions come and go while the copy is made
        while not stop.is_set():
            version = finished(site.client, train_job(site.train, "busy"))["version"]
            codes.append(site.client.delete(f"/v1/models/busy/versions/{version}").status_code)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        wait_for(lambda: codes)
        done = run("backup", str(tmp_path / name), workspace=site.workspace)
    finally:
        stop.set()
        thread.join()
    assert set(codes) == {204}
    assert done["n_versions"] >= 1 and done["has_control"] and (tmp_path / name).exists()
    restored = tmp_path / "restored"
    assert run("restore", str(tmp_path / name), workspace=restored)["n_versions"] == done["n_versions"]
    asked = {"records": [RECORD, {}]}
    expected = site.client.post("/v1/models/weather/predict", json=asked).json()
    with Workspace(Settings(workspace=restored)) as workspace:
        served = product.load_served_model(workspace, "weather")
        answers = [served.classify(record).tolist() for record in asked["records"]]
        assert answers == expected["probabilities"]
        n_sound = sum(1 for _ in backup.all_model_versions(workspace.control))
    assert n_sound == done["n_versions"]
    assert not any(path.name.startswith((".backup", ".restore")) for path in tmp_path.iterdir())
    assert all(finding["state"] != "failed" for finding in run("doctor", workspace=restored))


def test_sha256sum_can_check_a_backup(copy):
    subprocess.run(["sha256sum", "--check", "--quiet", backup.MANIFEST], cwd=copy, check=True)


def test_a_backup_that_is_not_whole_is_refused_and_leaves_nothing(copy, tmp_path):
    target = tmp_path / "restored"
    for path in [copy / "control.sqlite", next(copy.rglob("*.arrow")), copy / backup.ABOUT]:
        whole = path.read_bytes()
        damage(path, -1)
        with pytest.raises(CorruptFile, match="is damaged"):
            backup.restore_workspace(copy, target)
        path.unlink()
        with pytest.raises(CorruptFile, match="cannot be read"):
            backup.restore_workspace(copy, target)
        path.write_bytes(whole)
        assert not target.exists()
    (tmp_path / "short.tar").write_bytes(b"no archive")
    with pytest.raises(CorruptFile, match="is damaged"):
        backup.restore_workspace(tmp_path / "short.tar", target)
    with pytest.raises(InvalidRequest, match="No backup found at"):
        backup.restore_workspace(tmp_path / "nothing", target)
    assert backup.restore_workspace(copy, target).n_versions == 2
    before = contents(target)
    with pytest.raises(Conflict, match="not empty"):
        backup.restore_workspace(copy, target)
    assert contents(target) == before


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("../victim.duckdb", "outside of the workspace"),
        ("models/m/9.duckdb", "which the backup lacks. Use another backup"),
    ],
)
def test_a_backup_that_names_what_is_not_in_it_is_refused(copy, tmp_path, path, reason):
    """Whoever deleted such a model later would remove files outside of the workspace."""
    with contextlib.closing(sqlite3.connect(copy / "control.sqlite")) as connection, connection:
        connection.execute("UPDATE model_versions SET duckdb_path = ? WHERE version = 1", (path,))
    lines = {name: sha256_of_file(copy / name) for name in read_manifest(copy / backup.MANIFEST)}
    (copy / backup.MANIFEST).write_text("".join(f"{sha256}  {name}\n" for name, sha256 in lines.items()))
    with pytest.raises(CorruptFile, match=reason):
        backup.restore_workspace(copy, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("kind", ["file", "link", "link of a folder"])
def test_a_backup_brings_in_nothing_that_its_manifest_does_not_name(copy, tmp_path, kind):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "file").write_text("secret")
    if kind == "file":
        (copy / "models" / "more").write_text("unchecked")
    else:
        (copy / "models" / "more").symlink_to(tmp_path / "secret" / ("file" if kind == "link" else ""))
    with pytest.raises(CorruptFile, match="copy is damaged: it holds 'models/more', which its manifest does not name"):
        backup.restore_workspace(copy, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


@pytest.mark.parametrize("text", ["[]", "{}", "null", "x", '{"has_control": true}', "[" * 100_000])
def test_a_backup_that_says_nothing_of_itself_is_refused(copy, tmp_path, text):
    (copy / backup.ABOUT).write_text(text)
    lines = {name: sha256_of_file(copy / name) for name in read_manifest(copy / backup.MANIFEST)}
    (copy / backup.MANIFEST).write_text("".join(f"{sha256}  {name}\n" for name, sha256 in lines.items()))
    with pytest.raises(CorruptFile, match=r"backup\.json is damaged"):
        backup.restore_workspace(copy, tmp_path / "restored")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_an_archive_that_ends_early_is_refused(copy, tmp_path, pack):
    with tarfile.open(tmp_path / "whole.tar", "w") as archive:
        archive.add(copy, arcname=".")
    packed = pack((tmp_path / "whole.tar").read_bytes())
    (tmp_path / "short.tar").write_bytes(packed[: len(packed) - 1000])
    with pytest.raises(CorruptFile, match=r"short\.tar is damaged: .*\. Use another backup\.$"):
        backup.restore_workspace(tmp_path / "short.tar", tmp_path / "restored")


def test_a_backup_overwrites_nothing_and_does_not_hide_damage(small, tmp_path):
    with Workspace(small) as workspace:
        (tmp_path / "taken").mkdir()
        with pytest.raises(Conflict, match="already exists"):
            backup.back_up_workspace(workspace, tmp_path / "taken")
        with pytest.raises(InvalidRequest, match="outside"):
            backup.back_up_workspace(workspace, small.workspace / "copy")
        damage(next(small.workspace.rglob("*.duckdb")))
        with pytest.raises(CorruptFile, match="SHA-256"):
            backup.back_up_workspace(workspace, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def damage(path, place=None):
    """Flip a bit, in the middle of the file if nothing else is said."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2 if place is None else place] ^= 1
    path.chmod(0o644)
    path.write_bytes(content)


# Doctor


def examined(settings, *, repair=False):
    return [vars(item) for item in doctor.run_doctor_checks(settings, is_repairing=repair)]


def finding(found, check, state):
    of_check = [item for item in found if (item["check"], item["state"]) == (check, state)]
    assert of_check, found
    return of_check[0]


def sql(small, statement):
    with sqlite3.connect(small.workspace / "control.sqlite") as connection:
        connection.execute(statement)


def test_a_sound_workspace_is_found_sound(small):
    found = run("doctor", workspace=small.workspace)
    assert {item["state"] for item in found} <= {"ok", "warning"}
    assert "2 versions verified" in finding(found, "models", "ok")["detail"]
    for check in ("workspace", "control database", "migrations", "clock", "workers", "API keys"):
        finding(found, check, "ok")


def file_of(small, form):
    return next((small.workspace / "models" / "m").glob(f"2-*.{form}"))


def test_a_damaged_compiled_form_is_found_and_made_anew(small):
    damage(file_of(small, "arrow"))
    found = run("doctor", workspace=small.workspace, code=1)
    assert "--repair" in finding(found, "models", "failed")["remedy"]
    examined(small, repair=True)
    assert "2 versions verified" in finding(run("doctor", workspace=small.workspace), "models", "ok")["detail"]


def overwrite_pages(small):
    path = small.workspace / "control.sqlite"
    sql(small, "PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[4096 : 3 * 4096] = random.Random(0).randbytes(2 * 4096)
    path.write_bytes(content)


LATER = "UPDATE model_versions SET created_at = '2999-01-01 00:00:00.000000'"


@pytest.mark.parametrize(
    ("harm", "check", "state", "words"),
    [
        (lambda small: damage(file_of(small, "duckdb")), "models", "failed", "m@2"),
        (overwrite_pages, "control database", "failed", "fewpass restore"),
        (lambda small: sql(small, "UPDATE schema_version SET version_num = '9999'"), "migrations", "failed", "later"),
        (lambda small: sql(small, LATER), "clock", "warning", "future"),
    ],
    ids=["a model", "the control database", "a newer one", "a clock that went back"],
)
def test_what_is_damaged_is_found_and_not_made_up(small, harm, check, state, words):
    harm(small)
    for is_repaired in (False, True):
        found = finding(examined(small, repair=is_repaired), check, state)
        assert words in found["detail"] + found["remedy"]


def test_what_a_crash_has_left_is_found(small):
    """What is kept of data is no orphan: whoever removed it by hand would make what was forgotten be learned again."""
    folder = small.workspace / "models" / "m"
    (folder / "data").mkdir()
    rules = folder / "data" / "forgotten.json"
    rules.write_text('{"rules": []}')
    os.utime(rules, (time.time() - 7200,) * 2)
    assert "orphans" not in {found["check"] for found in examined(small)}
    orphan = folder / "9-00000000.duckdb"
    orphan.write_bytes(b"left")
    assert str(orphan) in finding(examined(small), "orphans", "warning")["detail"]
    assert "1 file " in finding(examined(small, repair=True), "orphans", "ok")["detail"] and not orphan.exists()


def test_a_damaged_note_is_found(small, weather_files):
    """Of data files and of jobs: one changed letter that is still JSON."""
    with Workspace(small) as workspace:
        product.register_dataset(workspace, DatasetRequest(name="d", uris=[str(weather_files[0])], target="class"))
        train = {"dataset": "d", "learner": "nb", "model": "m", "parameters": {"m": 1.0}, "verify": True}
        product.train_model_version(workspace, TrainRequest(**train))
    finding(examined(small), "notes", "ok")
    data = small.workspace / "datasets" / "d"
    notes = [data / "columns.json", data / "contents.json"]
    notes += [next(data.glob("schemas/*.json")), next(data.glob("statistics/*.json"))]
    for note in notes:
        whole = note.read_bytes()
        damage(note, whole.rindex(b'"') - 1)
        found = finding(examined(small), "notes", "warning")
        assert str(note) in found["detail"] and "Remove the file" in found["remedy"]
        note.write_bytes(whole)


def test_jobs_without_a_worker_are_found(small, weather_files):
    with Workspace(small) as workspace:
        product.submit_job(workspace, training(weather_files[0], "waiting"), is_remote=False)
    found = finding(examined(small), "workers", "warning")
    assert (
        "1 job waiting" in found["detail"]
        and "fewpass worker" not in found["detail"]
        and "fewpass worker" in found["remedy"]
    )
    slot, lock = acquire_worker_slot(small.workspace / "workers")
    with lock, Workspace(small) as workspace:
        take_lease(workspace.control, "w", lease_host_name(), slot, 30)
        assert "1 worker running" in finding(examined(small), "workers", "ok")["detail"]


def test_a_workspace_that_is_none_or_full_or_open_is_found(tmp_path, small, monkeypatch):
    assert "does not exist" in finding(examined(Settings(workspace=tmp_path / "none")), "workspace", "failed")["detail"]
    finding(examined(small.model_copy(update={"host": "0.0.0.0"})), "API keys", "failed")
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: usage._replace(free=5_000_000))
    assert "fewpass models delete" in finding(examined(small), "disk space", "failed")["remedy"]


@pytest.fixture
def umask_022():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def read_by_others(root):
    """What another user of this machine could read if the workspace itself were open."""
    closed = {folder for folder in root.rglob("*") if folder.is_dir() and not mode(folder) & stat.S_IRWXO}
    files = [path for path in root.rglob("*") if path.is_file() and mode(path) & stat.S_IRWXO]
    return {str(path.relative_to(root)) for path in files if not set(path.parents) & closed}


def test_other_users_of_the_machine_read_nothing(umask_022, weather_files, tmp_path):
    small = two_versions(tmp_path / "workspace", weather_files[0])
    with Workspace(small) as workspace:
        made = product.create_webhook(workspace, "http://8.8.8.8/hook", [])
        workspace_secret(small.workspace)
        backup.back_up_workspace(workspace, tmp_path / "copy.tar")
    root = small.workspace
    assert mode(root) == 0o700 and made["secret"]
    assert read_by_others(root) == set()
    secrets = [root / "control.sqlite", root / "monitoring" / "secret", root / "monitoring/.records/webhooks.json"]
    assert [mode(path) for path in secrets] == [0o600] * 3
    assert mode(tmp_path / "copy.tar") == 0o400
    finding(examined(small), "permissions", "ok")
    for path in (root, *secrets):
        before = mode(path)
        path.chmod(before | 0o044)
        found = finding(examined(small), "permissions", "warning")
        assert str(path) in found["detail"] and found["remedy"] == f"chmod -R o-rwx {root}"
        subprocess.run(found["remedy"].split(), check=True)
        finding(examined(small), "permissions", "ok")
        path.chmod(before)


def test_a_restored_workspace_is_closed_although_the_backup_was_open(umask_022, copy, tmp_path):
    for path in (copy, copy / "control.sqlite"):
        path.chmod(0o755)
    backup.restore_workspace(copy, tmp_path / "restored")
    assert mode(tmp_path / "restored") == 0o700
    assert mode(tmp_path / "restored" / "control.sqlite") == 0o600


def test_a_folder_that_a_group_may_write_stays_shared_with_the_group(tmp_path):
    shared, before = tmp_path / "shared", os.umask(0o002)
    try:
        shared.mkdir()
        shared.chmod(0o2775)
        with Workspace(Settings(workspace=shared)) as workspace:
            workspace.control.close()
    finally:
        os.umask(before)
    assert mode(shared / "models") & 0o777 == 0o770
    assert mode(shared / "control.sqlite") == 0o660


def test_kernels_that_others_may_write_are_found(small, tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    found = finding(examined(small), "compiled kernels", "warning")
    assert "other users may write" in found["detail"] and "NUMBA_CACHE_DIR" in found["remedy"]


def test_doctor_works_beside_a_server(small):
    with local_server(small) as server:
        wait_for(lambda: "worker started" in server.log.read_text())
        assert "1 worker running" in finding(examined(small), "workers", "ok")["detail"]


def test_with_the_control_database_elsewhere_a_backup_holds_the_files_it_names(tmp_path, weather_files):
    elsewhere = f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"  # as PostgreSQL would be
    settings = Settings(workspace=tmp_path / "workspace", control_url=elsewhere)
    with Workspace(settings) as workspace:
        learned(workspace, weather_files[0], parameters={"m": 1.0}, holdout=0)
        done = backup.back_up_workspace(workspace, tmp_path / "copy")
    assert (done.n_versions, done.has_control) == (1, False)
    restored = settings.model_copy(update={"workspace": tmp_path / "restored"})
    assert backup.restore_workspace(tmp_path / "copy", restored.workspace).n_versions == 1
    assert not (restored.workspace / "control.sqlite").exists()
    with Workspace(restored) as workspace:
        assert product.load_served_model(workspace, "m").version == 1
    assert all(item["state"] != "failed" for item in examined(restored))
