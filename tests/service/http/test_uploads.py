"""Uploads: together they stay within their quota, and a body that is not the whole file is refused."""

import pytest
from starlette.testclient import TestClient

from service import product
from service.http.app import create_app
from service.settings import Settings
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role
from storage.errors import NotFound
from storage.files.atomic_files import draft_file_path
from tests.support.http import problem

QUOTA = 100_000


@pytest.fixture
def served(tmp_path):
    settings = Settings(
        workspace=tmp_path / "w",
        require_keys=True,
        warm_up=False,
        job_workers=0,
        data_roots=(str(tmp_path / "data"),),
        upload_quota_bytes=QUOTA,
    )
    (tmp_path / "data").mkdir()
    with Workspace(settings) as workspace:
        tokens = {role: product.create_key(workspace, role.value, role)[1] for role in Role}
    with TestClient(create_app(settings)) as client:

        def ask(method, path, role=Role.TRAIN, headers=(), **more):
            own = {"authorization": f"Bearer {tokens[role]}", **dict(headers)}
            return client.request(method, path, headers=own, **more)

        yield ask, settings, tmp_path / "data" / "uploads"


def put(ask, file, content, **more):
    return ask("PUT", f"/v1/datasets/days/files/{file}", content=content, **more)


@pytest.mark.parametrize("pieces", [lambda n: b"x" * n, lambda n: iter([b"x" * 1000] * (n // 1000))])
def test_uploads_together_stay_within_the_quota_until_some_are_deleted(served, pieces):
    ask, _, folder = served
    assert put(ask, "a.csv", pieces(60_000)).status_code == 201
    refused = problem(put(ask, "b.csv", pieces(60_000)), 507)
    assert "FEWPASS_UPLOAD_QUOTA_BYTES" in refused["detail"] and "DELETE /v1/datasets" in refused["detail"]
    assert (refused["quota_bytes"], refused["free_bytes"]) == (QUOTA, 40_000)
    assert put(ask, "c.csv", pieces(40_000)).status_code == 201, "the rest can be used up"
    assert sorted(path.name for path in (folder / "days").iterdir()) == ["a.csv", "c.csv"]
    assert (folder / "days" / "c.csv").stat().st_size == 40_000
    problem(ask("DELETE", "/v1/datasets/days/files/a.csv"), 403)
    assert ask("DELETE", "/v1/datasets/days/files/a.csv", Role.ADMIN).status_code == 204
    problem(ask("DELETE", "/v1/datasets/days/files/a.csv", Role.ADMIN), 404)
    assert put(ask, "b.csv", pieces(60_000)).status_code == 201
    acts = [line["action"] for line in ask("GET", "/v1/audit", Role.ADMIN).json()["items"]]
    assert acts[:4] == ["file uploaded", "file deleted", "file uploaded", "file uploaded"]


def test_empty_files_use_up_the_quota(served):
    ask, _, _ = served
    codes = [put(ask, f"{k}.csv", b"").status_code for k in range(QUOTA // 4096 + 1)]
    assert codes == [201] * (QUOTA // 4096) + [507]


def test_concurrent_uploads_share_the_quota_and_abandoned_ones_free_it(served):
    _, settings, folder = served
    with Workspace(settings) as workspace, draft_file_path(folder / "days", "a") as first:
        first.touch()
        assert product.reserve_upload_space(workspace, first, 60_000, 60_000) == 60_000
        with draft_file_path(folder / "days", "b") as second:
            second.touch()
            assert product.reserve_upload_space(workspace, second, 1, 50_000) == 40_000, "as much as there is"
            with pytest.raises(ValueError, match="leave 40,000 of 100,000"):
                product.reserve_upload_space(workspace, second, 40_001, 50_000)
        killed = folder / "days" / f".{'0' * 16}.partial"  # whose lock no process holds
        killed.mkdir()
        (killed / "c").write_bytes(b"x" * 90_000)
        assert product.reserve_upload_space(workspace, first, 90_000, 90_000) == 90_000
        assert not killed.exists()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"content-range": "bytes 0-0/5"}, 400),
        ({"content-encoding": "gzip"}, 415),
        ({"content-encoding": "identity, br"}, 415),
        ({"content-type": 'multipart/form-data; boundary="x"'}, 415),
    ],
)
def test_a_body_that_is_not_the_whole_file_is_refused(served, headers, status):
    ask, _, folder = served
    problem(put(ask, "a.csv", b"x", headers=headers), status)
    assert not list(folder.rglob("a.csv"))
    assert put(ask, "a.csv", b"x", headers={"content-encoding": "identity"}).status_code == 201


def test_a_part_of_a_json_body_is_refused(served):
    ask, _, _ = served
    problem(ask("PUT", "/v1/models/m/monitor", json={}, headers={"content-range": "bytes 0-1/9"}), 400)


def test_uploads_cannot_make_their_folder_a_lake_table(served):
    ask, _, folder = served
    refused = ask("PUT", "/v1/datasets/metadata/files/v1.metadata.json", content=b"{}")
    assert "Iceberg" in problem(refused, 422)["detail"] and not (folder / "metadata").exists()
    for name in ("_delta_log", ".hidden", "a=b", "_metadata"):
        problem(ask("PUT", f"/v1/datasets/{name}/files/a.json", content=b"{}"), 422)
        problem(put(ask, name, b"{}"), 422)
    assert put(ask, "a.csv", b"size,class\n" + b"1,yes\n2,no\n" * 30).status_code == 201
    made = ask("POST", "/v1/datasets", json={"name": "all", "uris": [str(folder)], "target": "class"})
    assert made.status_code == 201 and len(made.json()["files"]) == 1, made.text


@pytest.mark.parametrize("file", ["..", "a/../../a.csv", "link.csv", "folder", "a\n", ""])
def test_only_uploaded_files_are_deleted(served, file):
    _, settings, folder = served
    (folder / "days" / "folder").mkdir(parents=True)
    outside = folder.parent / "a.csv"
    outside.write_text("x")
    (folder / "days" / "link.csv").symlink_to(outside)
    with Workspace(settings) as workspace, pytest.raises(NotFound, match="uploaded file"):
        product.delete_upload(workspace, "days", file)
    assert outside.exists()
