"""API keys, roles, data roots and limits, against a real server that requires keys."""

import contextlib
import json
import sqlite3

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.responses import PlainTextResponse

from service.http import security
from service.http.app import create_app
from service.http.middleware import Telemetry
from service.http.security import Guard, RequestRates
from service.product.datasets import data_sources
from service.requests.problems import OutsideRoots, TooManyRequests
from service.settings import Settings, is_loopback
from service.workspace import Workspace
from tests.processes import wait_for
from tests.service.asking import connected, run_apart
from tests.service.conftest import ADMIN_KEY
from tests.service.forks import local_server
from tests.support.cli import fewpass
from tests.support.http import PATH, RECORD, answer_of, problem

KEY = "a-key-of-24-characters-x"


def test_without_a_key_only_probes_are_answered(fortress):
    for path in ("/", "/healthz", "/readyz", "/openapi.json", "/docs"):
        assert fortress.client.get(path).status_code == 200, path
    for method, path in (("GET", "/v1/models"), ("POST", PATH), ("GET", "/metrics"), ("DELETE", "/v1/keys/x")):
        response = fortress.client.request(method, path, json={} if method == "POST" else None)
        assert "Authorization: Bearer" in problem(response, 401)["detail"]
        assert response.headers["www-authenticate"] == "Bearer" and response.headers["x-request-id"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("authorization", value) for value in (b"Bearer fp_wrong", b"Bearer", b"Basic YTpi")),
        *(("x-api-key", value) for value in (b"fp_wrong", b"\xff")),
    ],
)
def test_a_wrong_key_is_refused(fortress, name, value):
    body = problem(fortress.client.get("/v1/models", headers={name: value}), 401)
    assert "wrong" not in json.dumps(body)  # a token is never repeated
    problem(fortress.ask("expired", "GET", "/v1/models"), 401)


def test_a_key_may_stand_beside_the_password_of_a_proxy(fortress):
    headers = {"authorization": "Basic YTpi", "x-api-key": fortress.tokens["read"]}
    assert fortress.client.get("/v1/models", headers=headers).status_code == 200
    predicting = headers | {"x-api-key": fortress.tokens["predict"]}
    for _ in range(2):
        assert fortress.client.post(PATH, json={"records": [RECORD]}, headers=predicting).status_code == 200
    del predicting["x-api-key"]  # the password alone opens nothing, also after it came with a key
    problem(fortress.client.post(PATH, json={"records": [RECORD]}, headers=predicting), 401)


def test_keys_are_made_listed_and_revoked_over_rest(fortress):
    made = fortress.ask("admin", "POST", "/v1/keys", json={"name": "guest", "role": "predict", "days": 1})
    assert made.status_code == 201
    token = made.json()["token"]
    for _ in range(3):  # at once
        assert fortress.ask_with(token, "POST", PATH, json={"records": [RECORD]}).status_code == 200
    problem(fortress.ask("admin", "POST", "/v1/keys", json={"name": "guest", "role": "read"}), 409)
    problem(fortress.ask("admin", "POST", "/v1/keys", json={"name": "other", "role": "king"}), 422)
    listed = fortress.ask("admin", "GET", "/v1/keys")
    assert "guest" in {item["name"] for item in listed.json()["items"]} and token not in listed.text
    assert fortress.ask("admin", "DELETE", "/v1/keys/guest").json()["revoked_at"] is not None
    problem(fortress.ask_with(token, "POST", PATH, json={"records": [RECORD]}), 401)
    problem(fortress.ask("admin", "DELETE", "/v1/keys/nobody"), 404)
    refusal = problem(fortress.ask("predict", "PUT", "/v1/models/weather/aliases/champion", json={"version": 1}), 403)
    assert (refusal["role"], refusal["needed"]) == ("predict", "train") and "predict-key" in refusal["detail"]


def test_keys_made_and_revoked_on_the_command_line_are_followed_within_the_poll_interval(fortress):
    token = fewpass("keys", "create", "cli-key", "--role", "read", workspace=fortress.workspace).stdout.strip()
    headers = {"authorization": f"bearer {token}"}
    wait_for(lambda: fortress.client.get("/v1/models", headers=headers).status_code == 200)
    listed = fewpass("keys", "list", "--json", workspace=fortress.workspace).stdout
    assert "cli-key" in {item["name"] for item in json.loads(listed)} and token not in listed
    fewpass("keys", "revoke", "cli-key", workspace=fortress.workspace)
    wait_for(lambda: fortress.client.get("/v1/models", headers=headers).status_code == 401)


def test_tokens_are_neither_kept_nor_logged(fortress):
    tokens = [*fortress.tokens.values(), ADMIN_KEY]
    fortress.ask("read", "GET", "/v1/models")
    assert fortress.ask_with(ADMIN_KEY, "GET", "/v1/keys").status_code == 200
    with sqlite3.connect(fortress.workspace / "control.sqlite") as connection:
        rows = repr(connection.execute("SELECT * FROM api_keys").fetchall())
    wait_for(lambda: '"key": "read-key"' in fortress.log.read_text())  # the line is written after the answer
    log = fortress.log.read_text()
    assert not any(token in rows or token in log for token in tokens)


# Limits


def test_a_body_that_never_comes_is_given_up(fortress):
    options = {"require_keys": True, "admin_key": ADMIN_KEY, "job_workers": 0, "warm_up": False}
    settings = Settings(workspace=fortress.workspace, request_timeout_s=0.5, **options)
    with local_server(settings) as server:
        for path in (PATH, "/v1/jobs"):
            head = f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {ADMIN_KEY}\r\ncontent-length: 9\r\n\r\n"
            with connected(server) as connection:
                connection.sendall(head.encode() + b'{"r')
                answer = answer_of(connection).decode()
            assert answer.startswith("HTTP/1.1 503") and "exceeded 0.5 s" in answer


# Data roots


@pytest.fixture(scope="module")
def outside(fortress, tmp_path_factory):
    """A Parquet file outside the roots, with links to it and to its folder inside."""
    secret = tmp_path_factory.mktemp("outside") / "secret.parquet"
    pq.write_table(pa.table({"class": ["a", "b"] * 5, "x": [1, 2] * 5}), secret)
    (fortress.tables / "link.parquet").symlink_to(secret)
    (fortress.tables / "folder").symlink_to(secret.parent)
    (fortress.tables / "passwd.parquet").symlink_to("/etc/passwd")
    return secret


ESCAPES = [
    "{secret}",
    "file://{secret}",
    "file://localhost{secret}",
    "FILE://{secret}",
    "file://elsewhere{secret}",
    "{tables}/../../{parent}/secret.parquet",
    "{tables}x/secret.parquet",
    "file://{tables}/%2e%2e/secret.parquet",
    "{tables}/link.parquet",
    "{tables}/li*.parquet",
    "file://{tables}/link.parquet?x=1",
    "{tables}/passwd.parquet",
    "{tables}/folder",
    "{tables}/folder/**",
    "{tables}/folder/*.parquet",
    "{tables}/*/secret.parquet",
    "/etc/passwd",
    "/etc/*",
    "/proc/self/environ",
    "/dev/stdin",
    "~/secret.parquet",
    "../secret.parquet",
    "http://169.254.169.254/latest",
    "s3://bucket/x?endpoint_override=127.0.0.1:1",
    "hdfs://namenode/x",
]


@pytest.mark.parametrize("uri", ESCAPES)
def test_nothing_outside_the_roots_is_read(fortress, outside, uri):
    written = uri.format(secret=outside, tables=fortress.tables, parent=outside.parent.name)
    asked = {"uris": [written], "target": "class"}
    refusal = problem(fortress.ask("train", "POST", "/v1/datasets", json=asked | {"name": "escape"}), 403)
    assert refusal["title"] == "Outside the data roots"
    for job in (
        asked | {"kind": "train", "learner": "nb", "model": "m"},
        {"kind": "evaluate", "uris": [written], "model": "weather"},
    ):
        response = fortress.ask("train", "POST", "/v1/jobs", json=job)
        # What only reading a folder can tell is told by the job; there is no worker here.
        assert response.status_code == 403 or ("*" in written and response.status_code == 202), response.text
    assert fortress.ask("read", "GET", "/v1/datasets/escape").status_code == 404
    if "*" not in uri:  # nor is a circuit
        job = {"kind": "train", "uris": [f"{fortress.tables}/train.parquet"], "learner": "spn", "model": "m"}
        job["parameters"] = {"structure": "file", "circuit": written}
        refused = fortress.ask("train", "POST", "/v1/jobs", json=job)
        assert problem(refused, 403)["title"] == "Outside the data roots"


def test_a_job_looks_again_where_its_files_lead(fortress, outside):
    with Workspace(Settings(workspace=fortress.workspace, data_roots=(str(fortress.tables),))) as workspace:
        for uri in (f"{fortress.tables}/li*.parquet", f"{fortress.tables}/link.parquet"):
            with pytest.raises(OutsideRoots, match="outside the folders"):
                data_sources.open_data_source(workspace, [uri])


@pytest.mark.parametrize("uri", ["{}/train.parquet", "file://{}/train.parquet", "{}/tr*.parquet", "{}/./train.parquet"])
def test_what_lies_in_the_roots_is_read(fortress, uri):
    body = {"name": f"inside-{len(uri)}", "uris": [uri.format(fortress.tables)], "target": "class"}
    assert fortress.ask("train", "POST", "/v1/datasets", json=body).status_code == 201


def test_a_root_in_an_object_store_holds_its_query_and_its_prefix():
    settings = Settings(data_roots=("s3://bucket/tables", "s3://local/x?endpoint_override=minio:9000"))
    inside = ["s3://bucket/tables/a/*.parquet", "s3://local/x/y?endpoint_override=minio:9000"]
    data_sources.check_data_roots(inside, settings)
    for place in ("tablesx", "tables/../secret", "tables/%2e%2e/secret", "tables/a?endpoint_override=10.0.0.1"):
        with pytest.raises(OutsideRoots, match="server may"):
            data_sources.check_data_roots([f"s3://bucket/{place}"], settings)
    for uri in ("s3://local/x/y", "s3://key:secret@bucket/tables/a", "gs://bucket/tables/a", "/bucket/tables/a"):
        with pytest.raises(OutsideRoots, match="server may"):
            data_sources.check_data_roots([uri], settings)


def test_without_roots_the_system_is_no_data_and_an_open_server_reads_nothing(site):
    for uri in ("/etc/passwd", "/proc/self/mem", "/dev/zero", "file:///etc/passwd"):
        body = {"name": "system", "uris": [uri]}
        assert "is a system path" in problem(site.client.post("/v1/datasets", json=body), 403)["detail"]
    with pytest.raises(OutsideRoots, match="FEWPASS_DATA_ROOTS"):
        data_sources.check_data_roots(["/data/x.parquet"], Settings(host="0.0.0.0"))


# Where to listen


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "", "10.0.0.1", "localhost.evil.org")),
    ],
)
def test_loopback_is_told_from_everything_else(host, expected):
    assert is_loopback(host) is expected
    assert Settings(host=host).needs_keys is not expected


def test_a_server_that_others_can_reach_does_not_start_without_a_key(tmp_path):
    ended = fewpass("serve", "--port", "0", "--host", "0.0.0.0", workspace=tmp_path / "w", code=1)
    told = " ".join(ended.stderr.split())
    assert "fewpass keys create admin --role admin" in told and "127.0.0.1" in told


def test_on_loopback_keys_are_optional_but_a_wrong_one_is_refused(site):
    assert site.client.get("/v1/models").status_code == 200
    problem(site.client.get("/v1/models", headers={"authorization": "Bearer fp_wrong"}), 401)


def test_the_application_starts_with_keys_of_its_settings(tmp_path):
    app = create_app(Settings(workspace=tmp_path, require_keys=True))
    assert app.guard.needs_keys and "token" not in repr(Settings(admin_key="a-token-of-sixteen"))


class Clock:
    """Time that stands still unless it is moved."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(security, "time", clock)
    return clock


@pytest.mark.parametrize(("per_s", "at_once"), [(4, 4), (0.5, 1), (1.5, 1)])
def test_a_key_makes_so_many_requests_and_others_theirs(clock, per_s, at_once):
    rates, taken = RequestRates(per_s), 0
    for _ in range(at_once):
        rates.take("ana")
    words = f"Key 'ana' may send {per_s:g} requests per second .* Try again in"
    with pytest.raises(TooManyRequests, match=words) as refused:
        rates.take("ana")
    rates.take("ben")
    clock.now += refused.value.fields["retry_after_s"] + 0.001
    rates.take("ana")
    for _ in range(10_000):  # a hundred seconds at a hundred tries a second
        clock.now += 0.01
        with contextlib.suppress(TooManyRequests):
            rates.take("ana")
            taken += 1
    assert taken == pytest.approx(100 * per_s, abs=2)


@pytest.mark.parametrize(("per_s", "policy"), [(4, '"key";q=4;w=1'), (0.5, '"key";q=1;w=2'), (1.5, '"key";q=1;w=1')])
def test_the_rate_headers_say_how_many_requests_are_left(clock, per_s, policy):
    """A client that makes as many more requests as `r` says is never refused; one more is."""
    rates = RequestRates(per_s)
    n_left = rates.take("ana")
    assert dict(rates.headers(n_left))[b"ratelimit-policy"].decode() == policy
    for left in range(n_left - 1, -1, -1):
        assert rates.take("ana") == left
        assert dict(rates.headers(left))[b"ratelimit"].startswith(f'"key";r={left}'.encode())
    with pytest.raises(TooManyRequests, match="Try again in"):
        rates.take("ana")
    window_s = policy.rpartition("=")[2]
    assert dict(rates.headers(None))[b"ratelimit"].decode() == f'"key";r=0;t={window_s}'


def test_keys_that_wait_for_nothing_are_forgotten(clock, monkeypatch):
    monkeypatch.setattr(security, "MAX_KEYS", 3)
    rates = RequestRates(1)
    for number in range(10):
        rates.take(str(number))
        clock.now += 10
    assert len(rates._due) <= 3


def test_the_answer_is_429_with_the_time_to_wait(clock):
    settings = Settings(require_keys=True, admin_key=KEY, requests_per_s=2)
    transport = httpx.ASGITransport(app=Telemetry(Guard(PlainTextResponse("here"), settings), 1.0))

    async def asked():
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000", headers=headers) as client:
            answers = [await client.get("/v1/models") for _ in range(3)]
            answers += [await client.post("/v1/models/m/predict"), await client.get("/healthz")]
            clock.now += 1
            return [*answers, await client.post("/v1/models/m/predict")]

    answers = run_apart(asked())
    assert [answer.status_code for answer in answers] == [200, 200, 429, 429, 200, 200]
    assert answers[2].headers["retry-after"] == "1" and answers[2].json()["title"] == "Too many requests"
    assert answers[2].headers["content-type"] == "application/problem+json"
