"""The audit log as an administrator reads it: over REST with keys, by the command line, and by `fewpass doctor`."""

import json
import sqlite3

import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from service import product
from service.cli import app
from service.http.app import create_app
from service.settings import Settings
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role
from tests.service.asking import learn
from tests.service.conftest import weather
from tests.support.http import problem


def run(*arguments, code=0):
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(map(str, arguments)))
    assert done.exit_code == code, done.output
    return done.output


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server that needs keys, the tokens of each role, and its workspace with a model."""
    folder = tmp_path_factory.mktemp("audited")
    pq.write_table(weather(400, 1), folder / "a.parquet")
    settings = Settings(workspace=folder / "workspace", require_keys=True, warm_up=False, data_roots=(str(folder),))
    with Workspace(settings) as workspace:
        learn(workspace, folder / "a.parquet", "rain", parameters={"m": 1.0})
        tokens = {role: product.create_key(workspace, role.value, role)[1] for role in Role}
    with TestClient(create_app(settings), client=("127.0.0.9", 5)) as client:

        def ask(role, method, path, **more):
            return client.request(method, path, headers={"authorization": f"Bearer {tokens[role]}"}, **more)

        yield ask, settings, folder


def acts(ask, **parameters):
    return ask(Role.ADMIN, "GET", "/v1/audit", params=parameters).json()["items"]


def test_acts_of_keys_jobs_and_commands_stand_in_one_log(served):
    ask, settings, folder = served
    assert ask(Role.TRAIN, "PUT", "/v1/models/rain/aliases/best", json={"version": 1}).status_code < 300
    request_id = ask(Role.TRAIN, "DELETE", "/v1/models/rain/aliases/best").headers["x-request-id"]
    job = {"kind": "train", "uris": [str(folder / "a.parquet")], "target": "class", "learner": "nb", "model": "queued"}
    submitted = ask(Role.TRAIN, "POST", "/v1/jobs", json=job).json()["id"]
    assert ask(Role.TRAIN, "POST", f"/v1/jobs/{submitted}/cancel").status_code == 200
    newest = [(line["actor"], line["action"], line["subject"]) for line in acts(ask, limit=4)]
    assert newest == [
        ("key train", "job cancelled", submitted),
        ("key train", "job submitted", submitted),
        ("key train", "alias deleted", "rain@best"),
        ("key train", "alias moved", "rain@best"),
    ]
    deleted = acts(ask, limit=3)[2]
    assert (deleted["role"], deleted["origin"], deleted["request_id"]) == ("train", "127.0.0.9", request_id)
    run("keys", "create", "by-hand", "--role", "read", "-w", settings.workspace)
    assert acts(ask, limit=1)[0]["actor"].startswith("user ")
    published = [line for line in acts(ask, limit=1000) if line["action"] == "version published"]
    assert published[0]["subject"] == "rain@1"
    assert {line["actor"] for line in acts(ask, actor="key train")} == {"key train"}


def test_acts_that_a_child_process_performs_are_those_of_the_key(served):
    ask, _, folder = served
    made = ask(Role.TRAIN, "POST", "/v1/datasets", json={"name": "mine", "uris": [str(folder / "a.parquet")]})
    assert made.status_code == 201, made.text
    (line,) = acts(ask, limit=1)
    assert (line["action"], line["subject"]) == ("dataset registered", "mine")
    assert (line["actor"], line["role"], line["origin"]) == ("key train", "train", "127.0.0.9")
    assert line["request_id"] == made.headers["x-request-id"]


def test_uploads_and_sessions_are_acts(served):
    ask, _, folder = served
    content = (folder / "a.parquet").read_bytes()
    assert ask(Role.TRAIN, "PUT", "/v1/datasets/mine/files/more.parquet", content=content).status_code == 201
    (line,) = acts(ask, limit=1)
    assert (line["actor"], line["action"], line["subject"]) == ("key train", "file uploaded", "mine/more.parquet")
    assert line["detail"] == {"bytes": len(content)}


def test_a_page_follows_the_other_without_gaps(served):
    ask, _, _ = served
    first = ask(Role.ADMIN, "GET", "/v1/audit", params={"limit": 2}).json()
    second = ask(Role.ADMIN, "GET", "/v1/audit", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    ids = [line["id"] for line in first["items"] + second["items"]]
    assert ids == list(range(ids[0], ids[0] - 4, -1))


@pytest.mark.parametrize("role", [Role.READ, Role.PREDICT, Role.TRAIN])
def test_only_administrators_read_it(served, role):
    problem(served[0](role, "GET", "/v1/audit"), 403)


def test_commands_show_and_check_it(served, tmp_path):
    _, settings, _ = served
    assert "key created" in run("audit", "-w", settings.workspace)
    shown = run("audit", "--json", "-n", 1, "-w", settings.workspace)  # the server in this process may log before it
    assert json.loads(shown[shown.index("[\n") :])[0]["sha256"]
    assert run("audit", "--verify", "-w", settings.workspace).endswith("The audit log is intact.\n")


def test_a_changed_line_is_found_by_commands_and_doctor(tmp_path):
    where = tmp_path / "workspace"
    for name in ("ana", "bob"):
        run("keys", "create", name, "--role", "read", "-w", where)
    with sqlite3.connect(where / "control.sqlite") as database:
        database.execute("UPDATE audit_log SET subject = 'eve' WHERE id = 1")
    assert json.loads(run("audit", "--verify", "--json", "-w", where, code=1)) == {"faults": ["Line 1 was changed."]}
    assert "Line 1 was changed." in run("doctor", "-w", where, code=1)
