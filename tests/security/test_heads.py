"""What stands in the head of a request is checked on every path, and who asks is said once."""

from datetime import timedelta

import pytest
from starlette.responses import PlainTextResponse

from service.http.api.resources import File
from service.http.middleware import Telemetry
from service.http.security import Guard, check_single_headers
from service.requests.problems import InvalidRequest
from service.settings import Settings
from storage.control import api_keys_and_sessions
from storage.control.api_keys_and_sessions import MOST_SESSIONS, create_browser_session, find_browser_session
from storage.control.control import open_control
from tests.service.asking import run_apart

ADMIN_KEY = "an-administrator-of-tests"
BEARER = (b"authorization", f"Bearer {ADMIN_KEY}".encode())
PATHS = ("predict", "explain", "score", "impute", "query", "whatif")


def answers(headers_of_requests, path="/v1/models/m/predict", method="POST", app=None, **settings):
    """The status and body of each request, one after the other, from one guard."""
    options = {"require_keys": True, "admin_key": ADMIN_KEY}
    plain = app or PlainTextResponse("answered")
    whole = Telemetry(Guard(plain, Settings(**options | settings)), 1.0)

    async def asked():
        found = []
        for headers in headers_of_requests:
            sent = []

            async def send(message, sent=sent):
                sent.append(message)

            async def receive():
                return {"type": "http.disconnect"}

            scope = {
                "type": "http",
                "method": method,
                "path": path,
                "scheme": "http",
                "query_string": b"",
                "headers": headers,
            }
            await whole(scope, receive, send)
            found.append((sent[0]["status"], b"".join(each.get("body", b"") for each in sent[1:]), sent[0]["headers"]))
        return found

    return run_apart(asked())


@pytest.mark.parametrize("path", PATHS)
def test_every_path_looks_at_the_host_also_once_a_key_was_seen(path):
    good, evil = (b"host", b"models.example"), (b"host", b"evil.example")
    asked = [[good, BEARER], [good, BEARER], [evil, BEARER], [(b"host", b""), BEARER], [good, BEARER]]
    found = answers(asked, f"/v1/models/m/{path}", trusted_hosts=["models.example"])
    assert [status for status, *_ in found] == [200, 200, 403, 403, 200]
    assert b"does not answer as 'evil.example'" in found[2][1]


@pytest.mark.parametrize("name", [b"authorization", b"x-api-key", b"host"])
@pytest.mark.parametrize("path", PATHS)
def test_of_two_headers_that_say_who_asks_none_counts(name, path):
    value = BEARER[1] if name == b"authorization" else ADMIN_KEY.encode() if name == b"x-api-key" else b"localhost"
    first = (name, b"Bearer fp_other" if name == b"authorization" else b"other")
    for pair in ([first, (name, value)], [(name, value), first], [(name, value)] * 2):
        more = [] if name != b"host" else [BEARER]
        ((status, body, _),) = answers([[*pair, *more]], f"/v1/models/m/{path}")
        assert status == 422 and b"The request has two headers" in body
    check_single_headers([(b"accept", b"a"), (b"accept", b"b"), BEARER])
    with pytest.raises(InvalidRequest, match="two headers Authorization"):
        check_single_headers([BEARER, BEARER])
    with pytest.raises(InvalidRequest, match="two headers Content-Encoding"):
        check_single_headers([(b"content-encoding", b"gzip"), (b"content-encoding", b"identity")])


def test_a_key_has_a_bounded_number_of_sessions(tmp_path, monkeypatch):
    monkeypatch.setattr(api_keys_and_sessions, "MOST_SESSIONS", 5)
    assert MOST_SESSIONS > 5
    control = open_control(f"sqlite:///{tmp_path}/control.sqlite")
    other = create_browser_session(control, "other", "http://x", timedelta(hours=1))
    ids = [create_browser_session(control, "key", "http://x", timedelta(hours=1, seconds=n)) for n in range(12)]

    def lives(session_id):
        return find_browser_session(control, api_keys_and_sessions.browser_session_sha256(session_id)) is not None

    assert [lives(session_id) for session_id in ids] == [False] * 7 + [True] * 5 and lives(other)
    control.close()


@pytest.mark.parametrize(
    ("ranges", "status"),
    [("bytes=5-1", 400), ("bytes=99-", 416), ("bytes=x-y", 400), ("lines=1-2", 400), ("bytes=0-3", 206), (None, 200)],
)
def test_a_range_that_is_none_is_a_problem_document(tmp_path, ranges, status):
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"0123456789")
    headers = [(b"host", b"localhost"), BEARER, *([] if ranges is None else [(b"range", ranges.encode())])]
    ((found, body, sent),) = answers([headers], "/v1/jobs/j/output", "GET", File(path))
    assert found == status
    content_type = dict(sent)[b"content-type"]
    assert (content_type == b"application/problem+json") == (status >= 400)
    assert (b"Send Range: bytes=FIRST-LAST" in body) == (status >= 400)
