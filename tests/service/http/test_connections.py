"""Clients that leave a connection waiting: for the rest of what they send, or with what they asked for."""

import contextlib
import os
import signal

import psutil
import pytest

from service.http.connections import MAX_HEAD_BYTES, MOST_AHEAD
from service.settings import Settings
from tests.processes import in_threads, runs, wait_for
from tests.service.asking import connected
from tests.service.forks import local_server
from tests.support.http import answer_of, is_answered

GET = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
POST = b"POST /v1/models/m/predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
LIMIT = 2_000
HEALTH = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    limits = {"request_timeout_s": 2.0, "max_body_bytes": LIMIT, "job_workers": 0, "warm_up": False}
    with local_server(Settings(workspace=tmp_path_factory.mktemp("connections") / "workspace", **limits)) as server:
        yield server


def test_a_body_that_was_answered_early_may_be_finished_and_nobody_leaves_http(server):
    upgrade = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: eHh4\r\n"
    with connected(server) as client:
        client.sendall(POST + b"content-length: %d\r\n\r\n" % (2 * LIMIT))
        assert answer_of(client).startswith(b"HTTP/1.1 413 ")
        client.sendall(b" " * 2 * LIMIT)
        assert is_answered(client, HEALTH + b"\r\n")
        assert is_answered(client, HEALTH + upgrade + b"\r\n")


def is_held(server, client):
    """Whether the server still has its end of a connection."""
    ours = client.getsockname()[1]
    held = psutil.Process(server.pid).net_connections("tcp")
    return any(connection.raddr and connection.raddr.port == ours for connection in held)


def test_an_answer_that_nobody_takes_is_dropped(server):
    """Of so many no kernel holds all; who takes what it asked for gets them all."""
    with connected(server) as deaf:
        deaf.sendall(GET * MOST_AHEAD)
        wait_for(lambda: is_held(server, deaf))
        wait_for(lambda: not is_held(server, deaf))
    with connected(server) as other:
        for _ in range(3):
            other.sendall(GET * 20)
            n_answers, tail = 0, b""
            while n_answers < 20:
                piece = tail + other.recv(65_536)
                n_answers += piece.count(b"HTTP/1.1 200 OK")
                tail = piece[-14:]  # shorter than what is counted


def test_a_body_without_length_is_refused_at_the_limit_and_not_read_for_ever(server):
    with connected(server) as endless:
        endless.sendall(POST + b"transfer-encoding: chunked\r\n\r\n")
        for _ in range(3):
            endless.sendall(b"3e8\r\n%s\r\n" % (b" " * 1000))
        assert answer_of(endless).startswith(b"HTTP/1.1 413 ")

        def is_refused():
            try:
                endless.sendall(b"3e8\r\n%s\r\n" % (b" " * 1000))
            except OSError:
                return True
            return False

        wait_for(is_refused)


@pytest.mark.parametrize("is_whole", [True, False])
@pytest.mark.parametrize("path", [b"/v1/models/m/predict", b"/v1/models/m/explain", b"/v2/models/m/infer", b"/v1/jobs"])
def test_a_body_without_length_that_comes_at_once_is_refused_too(server, path, is_whole):
    with connected(server) as client:
        head = POST.replace(b"/v1/models/m/predict", path) + b"transfer-encoding: chunked\r\n\r\n"
        client.sendall(head + b"bb8\r\n%s\r\n" % (b" " * 3000) + b"0\r\n\r\n" * is_whole)
        assert answer_of(client).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    ("n_bytes", "status"), [(200 << 10, b"404"), (MAX_HEAD_BYTES + 1, b"431"), (300_000, b"431"), (600_000, b"431")]
)
@pytest.mark.parametrize("part", ["header", "headers", "path"])
def test_a_head_beyond_the_limit_is_refused_wherever_the_pieces_end(server, part, n_bytes, status):
    if part == "path" and status == b"404":
        n_bytes = 60_000  # longer ones the parser of addresses refuses
    text = b"x" * n_bytes
    heads = {
        "header": b"GET /nothing HTTP/1.1\r\nhost: localhost\r\nx-large: %s\r\n\r\n" % text,
        "headers": b"GET /nothing HTTP/1.1\r\nhost: localhost\r\n%s\r\n"
        % (b"a: %s\r\n" % (b"b" * 1195) * (n_bytes // 1200 + 1)),
        "path": b"GET /%s HTTP/1.1\r\nhost: localhost\r\n\r\n" % text,
    }
    head = heads[part]
    for last in (1, len(head) // 3):  # the end comes alone, or with much before it
        with connected(server) as client:
            with contextlib.suppress(OSError):  # refused before it had all come
                client.sendall(head[:-last])
                client.sendall(head[-last:])
            assert client.recv(12).startswith(b"HTTP/1.1 " + status)


@pytest.mark.faults
@pytest.mark.parametrize("workers", [1, 2])
def test_a_server_that_stops_resets_nobody_who_was_at_its_door(tmp_path, workers):
    """Each request comes on a connection of its own: it is answered, or refused before there is a connection."""
    answered, failures = [], []

    def ask():
        try:
            client = connected(server)
        except ConnectionRefusedError:
            return False
        with client:
            try:
                client.sendall(HEALTH + b"\r\n")
                answered.append(answer_of(client)[:15])
            except OSError as error:
                failures.append(error)
        return True

    settings = Settings(workspace=tmp_path / "workspace", workers=workers, job_workers=0, warm_up=False)
    with local_server(settings) as server, in_threads(ask, 8):
        wait_for(lambda: len(answered) > 200)
        os.kill(server.pid, signal.SIGTERM)
        wait_for(lambda: not runs(server.pid))
    assert set(answered) == {b"HTTP/1.1 200 OK"} and failures == []
