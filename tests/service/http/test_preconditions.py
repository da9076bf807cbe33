"""ETag, If-Match and If-None-Match as two clients use them who change the same alias, tag or schedule."""

import pytest
from starlette.testclient import TestClient

from service import product
from service.http.api.preconditions import Preconditions
from service.http.app import create_app
from service.requests.problems import PreconditionFailed
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.support.http import problem

ALIASES = "/v1/models/play/aliases"
SCHEDULE = {
    "name": "nightly",
    "cron": "0 3 * * *",
    "job": {"kind": "train", "uris": [], "target": "y", "model": "play"},
}


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preconditions")
    (folder / "rows.csv").write_text("a,y\n" + "x,yes\nz,no\n" * 40)
    SCHEDULE["job"]["uris"] = [str(folder / "rows.csv")]
    settings = Settings(workspace=folder / "workspace", warm_up=False, monitoring="off", job_workers=0)
    with Workspace(settings) as workspace:
        for _ in range(3):
            request = TrainRequest(
                uris=SCHEDULE["job"]["uris"], target="y", learner="nb", model="play", holdout=0, aliases=[]
            )
            product.train_model_version(workspace, request)
    with TestClient(create_app(settings), base_url="http://127.0.0.1") as client:
        yield client


def refused(answer):
    found = problem(answer, 412)
    assert found["type"] == "urn:fewpass:problem:precondition-failed"
    return found


def test_of_two_who_move_an_alias_after_one_look_the_second_is_refused(client):
    assert client.put(f"{ALIASES}/eu", json={"version": 1}).status_code == 200
    seen = client.get(ALIASES)
    headers = {"if-match": seen.headers["etag"]}
    first = client.put(f"{ALIASES}/eu", json={"version": 2}, headers=headers)
    assert first.status_code == 200 and first.headers["etag"] != seen.headers["etag"]
    for method, path, body in (("PUT", "eu", {"version": 3}), ("DELETE", "eu", None), ("POST", "eu/rollback", None)):
        found = refused(client.request(method, f"{ALIASES}/{path}", json=body, headers=headers))
        assert "The aliases of play changed after you read it" in found["detail"]
        assert found["etag"] == first.headers["etag"]
    assert client.get(ALIASES).json()["aliases"]["eu"] == 2
    rolled = client.post(f"{ALIASES}/eu/rollback", headers={"if-match": first.headers["etag"]})
    assert rolled.status_code == 200 and rolled.json()["aliases"]["eu"] == 1
    assert client.delete(f"{ALIASES}/eu", headers={"if-match": rolled.headers["etag"]}).status_code == 204


def test_an_alias_that_comes_back_to_a_version_has_another_etag(client):
    """A client that has read version 1 learns that somebody has moved the alias and back in between."""
    first = client.put(f"{ALIASES}/back", json={"version": 1}).headers["etag"]
    client.put(f"{ALIASES}/back", json={"version": 2})
    assert client.put(f"{ALIASES}/back", json={"version": 1}).headers["etag"] != first


def test_an_alias_is_created_only_once(client):
    headers = {"if-none-match": "*"}
    assert client.put(f"{ALIASES}/once", json={"version": 1}, headers=headers).status_code == 200
    found = refused(client.put(f"{ALIASES}/once", json={"version": 2}, headers=headers))
    assert "Alias play@once already exists" in found["detail"]
    assert client.get(ALIASES).json()["aliases"]["once"] == 1


def test_a_tag_follows_the_version_that_was_read(client):
    etag = client.get("/v1/models/play@1").headers["etag"]
    tags = "/v1/models/play@1/tags"
    assert client.put(f"{tags}/by", json={"value": "Ana"}, headers={"if-match": etag}).status_code == 200
    refused(client.put(f"{tags}/by", json={"value": "Ben"}, headers={"if-match": etag}))
    refused(client.put(f"{tags}/by", json={"value": "Ben"}, headers={"if-none-match": "*"}))
    refused(client.delete(f"{tags}/by", headers={"if-match": etag}))
    etag = client.get("/v1/models/play@1").headers["etag"]
    assert client.delete(f"{tags}/by", headers={"if-match": f'"other", {etag}'}).status_code == 200


def test_a_schedule_follows_the_definition_that_was_read(client):
    path = "/v1/schedules/nightly"
    made = client.post("/v1/schedules", json=SCHEDULE, headers={"if-none-match": "*"})
    assert made.status_code == 201, made.text
    etag = made.headers["etag"]
    assert client.get(path).headers["etag"] == etag
    refused(client.post("/v1/schedules", json=SCHEDULE, headers={"if-none-match": "*"}))
    headers = {"if-match": etag}
    changed = client.patch(path, json={"cron": "0 4 * * *"}, headers=headers)
    assert changed.status_code == 200 and changed.headers["etag"] != etag
    refused(client.patch(path, json={"cron": "0 5 * * *"}, headers=headers))
    refused(client.post(f"{path}/pause", headers=headers))
    refused(client.post(f"{path}/resume", headers=headers))
    refused(client.delete(path, headers=headers))
    assert client.get(path).json()["cron"] == "0 4 * * *"
    assert client.delete(path, headers={"if-match": changed.headers["etag"]}).status_code == 204
    assert client.patch(path, json={"cron": "0 5 * * *"}, headers=headers).status_code == 404


@pytest.mark.parametrize("headers", [{"if-match": "no quotes"}, {"if-none-match": '"abc"'}])
def test_headers_that_cannot_be_read_are_refused(client, headers):
    found = problem(client.put(f"{ALIASES}/odd", json={"version": 1}, headers=headers), 422)
    assert found["field"].lower() == next(iter(headers))
    assert "odd" not in client.get(ALIASES).json()["aliases"]


def test_a_weak_etag_never_matches():
    """RFC 9110, 13.1.1: If-Match compares strongly."""
    with pytest.raises(PreconditionFailed, match="It changed after you read it"):
        Preconditions('W/"a"').check_matches("It", '"a"')
    Preconditions("*").check_matches("It", '"a"')
    with pytest.raises(PreconditionFailed, match="does not exist"):
        Preconditions("*").check_matches("It", None)
