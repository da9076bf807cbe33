"""What a hostile client sends: each is refused in words, none is a fault of ours, and the server goes on."""

import asyncio
import base64
import gzip
import io
import os
import tarfile
import threading
import time

import httpx
import pyarrow.parquet as pq
import pytest

from service.http.api.resources import Openings, Threads
from service.settings import Settings
from tests.processes import children_of, wait_for
from tests.service.asking import PATIENCE_S, client_of, connected, run_apart, run_job
from tests.service.conftest import weather
from tests.service.forks import local_server
from tests.support.http import is_answered, problem

JSON = {"content-type": "application/json"}
TOO_DEEP = b'{"a":' * 20_000 + b"1" + b"}" * 20_000
TRAIN = b'{"kind": "train", "model": "x", "learner": "nb", "target": "class", "uris": ["x"], %s}'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/weather/infer", b'{"inputs": [], "parameters": %s}' % TOO_DEEP),
        ("/v1/jobs", TRAIN % b'"parameters": %s' % TOO_DEEP),
        ("/v1/models/weather/predict", b'{"records": %s}' % (b"[" * 50_000 + b"]" * 50_000)),
    ],
)
def test_deep_nesting_is_refused(site, path, body):
    answer = site.client.post(path, content=body, headers=JSON)
    assert answer.status_code in (400, 422)
    detail = problem(answer, answer.status_code)["detail"]
    assert "nested too deeply" in detail or "Expected `object`, got `array`" in detail
    assert site.client.get("/readyz").status_code == 200


@pytest.mark.parametrize("path", ["/v1/models/weather/predict", "/v1/jobs"])
def test_a_compressed_body_is_called_so_and_a_name_is_told_back_in_part(site, path):
    body = gzip.compress(b'{"records": [{}]}')
    refusal = problem(site.client.post(path, content=body, headers=JSON | {"content-encoding": "gzip"}), 415)
    assert refusal["detail"] == "Content-Encoding 'gzip' is not supported. Send the body uncompressed."
    assert problem(site.client.post(path, content=body, headers=JSON | {"content-encoding": "no such"}), 415)
    refusal = problem(site.client.post(path, content=body, headers=JSON), 400)
    assert "It is compressed by gzip: send it uncompressed" in refusal["detail"]
    marked = b"\xef\xbb\xbf" + b'{"records": [{}]}'
    assert site.client.post(path, content=marked, headers=JSON).status_code in (200, 422)  # it is JSON all the same
    answer = site.client.post("/v1/models/weather/predict", json={"records": [{"k" * 100_000: 1}]})
    assert "knows no column" in problem(answer, 422)["detail"] and len(answer.content) < 2_000


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/jobs", TRAIN % rb'"tags": {"a": "\ud800"}'),
        ("/v1/jobs", TRAIN % rb'"tags": {"\uDFFF": "a"}'),
        ("/v1/datasets", rb'{"name": "x", "uris": ["/tmp/\ud800"]}'),
    ],
)
def test_half_a_character_is_no_text(site, path, body):
    assert "unpaired surrogate" in problem(site.client.post(path, content=body, headers=JSON), 400)["detail"]
    whole = site.client.post(path, content=body.replace(rb"\ud800", rb"\ud83d\ude00"), headers=JSON)
    assert b"DFFF" in body or "unpaired surrogate" not in whole.text


@pytest.mark.parametrize("place", [b"-1", b"9" * 30, b"x"])
def test_a_cursor_that_no_page_has_is_refused(site, place):
    cursor = base64.urlsafe_b64encode(b"2026-11-21T11:11:11|" + place).decode()
    assert "cursor" in problem(site.client.get("/v1/jobs", params={"cursor": cursor}), 422)["detail"]


def test_odd_files_are_no_data_sets(site, tmp_path):
    os.mkfifo(tmp_path / "pipe.parquet")
    (tmp_path / "loop.parquet").symlink_to("loop.parquet")
    for uri, status, words in (
        (str(tmp_path / "pipe.parquet"), 422, "a pipe, a socket or a device"),
        (str(tmp_path / "loop.parquet"), 403, "cannot be opened: its symbolic links form a cycle"),
        ("", 403, "is not a path"),
        ("/tmp/\0", 403, "is not a path"),
    ):
        answer = site.client.post("/v1/datasets", json={"name": "odd", "uris": [uri]})
        assert words in problem(answer, status)["detail"]


def test_work_that_hangs_takes_no_more_places_than_there_are_and_gives_them_back():
    async def ask():
        threads, gate, running = Threads(2), threading.Event(), []

        def hang(number):
            running.append(number)
            gate.wait(PATIENCE_S)
            return number

        asked = [asyncio.create_task(threads.run(hang, number)) for number in range(4)]
        while len(running) < 2:
            await asyncio.sleep(0.01)
        asked[0].cancel()  # its client is told; its thread goes on, and keeps its place
        asked[3].cancel()  # it had none
        await asyncio.wait([asked[0], asked[3]])
        assert sorted(running) == [0, 1] and asked[0].cancelled() and asked[3].cancelled()
        gate.set()
        assert [await task for task in asked[1:3]] == [1, 2] and sorted(running) == [0, 1, 2]
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        assert [await threads.run(hang, number) for number in range(5, 9)] == [5, 6, 7, 8]

    run_apart(ask())


def test_stores_that_may_hang_are_opened_apart():
    openings = Openings(1)
    assert openings.of([]) is openings.of(["/data/*.parquet", "FILE:///data"]) is openings.here
    assert openings.of(["s3://bucket/x"]) is openings.elsewhere


def test_an_import_with_a_deep_manifest_is_refused(site):
    content, tar = b"[" * 100_000, io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as file:
        member = tarfile.TarInfo("manifest.json")
        member.size = len(content)
        file.addfile(member, io.BytesIO(content))
    answer = site.client.post(
        "/v1/models/x/import", content=tar.getvalue(), headers={"content-type": "application/x-tar"}
    )
    assert "manifest cannot be read" in problem(answer, 422)["detail"]


@pytest.mark.parametrize("path", ["/", "/healthz", "/readyz", "/metrics", "/v1/models", "/v1/models/weather"])
def test_head_is_get_without_a_body(site, path):
    answer = site.client.head(path)
    assert answer.status_code == 200 and answer.content == b""
    assert answer.headers["content-type"] == site.client.get(path).headers["content-type"]
    assert site.client.head("/v1/jobs/job-1/events").status_code == 405  # it would not end


def test_a_server_whose_workspace_is_gone_accepts_nothing_more(tmp_path):
    settings = Settings(workspace=tmp_path / "workspace", job_workers=1, warm_up=False, generation_poll_s=0.05)
    body = {"kind": "train", "model": "x", "learner": "nb", "uris": [str(tmp_path / "t.parquet")], "target": "class"}
    pq.write_table(weather(100, 1), tmp_path / "t.parquet")
    with local_server(settings) as server, client_of(server) as client:
        assert run_job(client, body)["state"] == "succeeded"
        (tmp_path / "workspace").rename(tmp_path / "away")
        for answer in (client.post("/v1/jobs", json=body), client.get("/v1/jobs"), client.get("/v1/models")):
            assert "was removed or replaced" in problem(answer, 507)["detail"]
        wait_for(lambda: client.get("/readyz").json().get("status") == "degraded")
        wait_for(lambda: not children_of(server.pid, "worker"))
        assert not (tmp_path / "workspace").exists(), "no worker has made an empty one"
        (tmp_path / "away").rename(tmp_path / "workspace")  # it was not lost
        wait_for(lambda: client.get("/readyz").json().get("status") == "ok")
        assert run_job(client, body)["state"] == "succeeded"
        assert len(client.get("/v1/jobs").json()["items"]) == 2


@pytest.mark.faults  # takes many seconds
def test_a_head_that_does_not_come_or_does_not_end_is_given_up(site):
    whole = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    options = {"job_workers": 0, "warm_up": False, "predict_only": True}
    # Long enough for a busy machine to answer those who ask as they should.
    settings = Settings(workspace=site.workspace, request_timeout_s=3.0, **options)
    with local_server(settings) as server:
        started = time.monotonic()
        with connected(server) as silent, connected(server) as slow, connected(server) as kept:
            slow.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nx-")
            assert is_answered(kept, whole)
            assert silent.recv(10) == b"" and slow.recv(10) == b""
            assert time.monotonic() - started >= 2.9
            assert is_answered(kept, whole)  # at rest is not late
            kept.sendall(whole[:30])
            assert kept.recv(10) == b""
        with connected(server) as endless:
            endless.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
            with pytest.raises(OSError):
                for number in range(1000):
                    endless.sendall(b"x-%d: %s\r\n" % (number, b"y" * 4000))
                raise OSError(endless.recv(100))
        assert httpx.get(f"{server.url}/healthz", timeout=PATIENCE_S).status_code == 200
