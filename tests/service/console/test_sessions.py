"""A key becomes a session, and the session counts for the pages of this server only."""

import contextlib
import sqlite3

import httpx
import pytest

from service.http.browser_sessions import safe_redirect_path
from storage.control.api_keys_and_sessions import Role
from tests.processes import wait_for
from tests.service.asking import NO_CERTIFICATES, PATIENCE_S
from tests.service.conftest import ADMIN_KEY

PAGE = {"accept": "text/html", "sec-fetch-site": "none"}
SCRIPT = {"sec-fetch-site": "same-origin", "x-fewpass-console": "1"}


class Castle:
    """The server that requires keys, and its browsers."""

    def __init__(self, fortress):
        self.url, self.tokens, self.workspace = fortress.url, fortress.tokens, fortress.workspace

    def browser(self):
        return httpx.Client(base_url=self.url, timeout=PATIENCE_S, verify=NO_CERTIFICATES)

    @contextlib.contextmanager
    def signed_in(self, token):
        with self.browser() as browser:
            answer = browser.post("/console/session", data={"key": token}, headers={"sec-fetch-site": "same-origin"})
            assert answer.status_code == 303, answer.text
            yield browser


@pytest.fixture
def castle(fortress):
    return Castle(fortress)


def test_who_has_no_session_is_sent_to_sign_in(castle):
    with castle.browser() as browser:
        answer = browser.get("/console/jobs?state=failed", headers=PAGE)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/console/login?next=%2Fconsole%2Fjobs%3Fstate%3Dfailed"
        login = browser.get(answer.headers["location"], headers=PAGE)
        assert login.status_code == 200 and 'value="/console/jobs?state=failed"' in login.text
        assert browser.get("/console/jobs").status_code == 401, "a program is told"
        for open_to_all in ("/docs", "/docs/read", "/docs/licences", "/console/static/console.css"):
            assert browser.get(open_to_all, headers=PAGE).status_code == 200


def test_the_cookie_is_opaque_and_out_of_reach(castle):
    with castle.browser() as browser:
        token = castle.tokens[Role.READ]
        answer = browser.post("/console/session", data={"key": token, "next": "/console/data"})
        port = httpx.URL(castle.url).port
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith(f"fewpass-{port}=") and token not in cookie
        for part in ("HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"):
            assert part in cookie
        assert answer.headers["location"] == "/console/data"
        session_id = browser.cookies[f"fewpass-{port}"]
    with sqlite3.connect(castle.workspace / "control.sqlite") as connection:
        rows = repr(connection.execute("SELECT * FROM browser_sessions").fetchall())
    assert rows != "[]" and session_id not in rows and token not in rows


def test_the_audit_log_names_the_key_of_a_session(castle):
    with castle.signed_in(castle.tokens[Role.READ]), castle.browser() as browser:
        key = {"authorization": f"Bearer {castle.tokens[Role.ADMIN]}"}
        lines = browser.get("/v1/audit", params={"limit": 20}, headers=key).json()["items"]
    begun = next(line for line in lines if line["action"] == "console session begun")
    assert begun["actor"].startswith("key ") and begun["role"] == "read" and begun["subject"] == castle.url


def test_a_page_from_elsewhere_ends_no_session(castle):
    with castle.signed_in(castle.tokens[Role.READ]) as browser:
        for site in ("cross-site", "same-site", "none"):
            answer = browser.post("/console/session/end", headers={"sec-fetch-site": site})
            assert answer.status_code == 403
        assert browser.get("/console/jobs", headers=PAGE).status_code == 200
        assert browser.post("/console/session/end", headers={"sec-fetch-site": "same-origin"}).status_code == 204


@pytest.mark.parametrize("letter", ["\\", '"', ";", "=", "a"])
def test_a_long_cookie_is_no_session_and_costs_nothing(castle, letter):
    """`http.cookies` needed eight seconds for 40 KB of backslashes, for which everybody waited."""
    port = httpx.URL(castle.url).port
    with castle.browser() as browser:
        cookie = f'fewpass-{port}="{letter * 200_000}"'
        assert browser.get("/v1/models", headers={"cookie": cookie}).status_code == 401


def test_a_wrong_key_opens_nothing(castle):
    with castle.browser() as browser:
        own = PAGE | {"sec-fetch-site": "same-origin"}
        answer = browser.post("/console/session", data={"key": "fp_wrong"}, headers=own)
        assert answer.headers["location"] == "/console/login?refused=1" and "set-cookie" not in answer.headers
        assert "This key is not valid" in browser.get(answer.headers["location"], headers=PAGE).text
        foreign = browser.post("/console/session", data={"key": ADMIN_KEY}, headers={"sec-fetch-site": "cross-site"})
        assert foreign.status_code == 403


def test_a_session_may_what_its_key_may_and_the_rest_is_not_shown_and_refused(castle):
    def shown(browser, *pages):
        return " ".join(browser.get(f"/console/{page}", headers=PAGE).text for page in pages)

    for token in (ADMIN_KEY, castle.tokens[Role.ADMIN]):
        with castle.signed_in(token) as browser:
            assert "API keys" in shown(browser, "settings") and "key created" in shown(browser, "audit")
            assert browser.get("/v1/keys", headers=SCRIPT).status_code == 200
    with castle.signed_in(castle.tokens[Role.READ]) as browser:
        text = shown(browser, "data", "settings", "jobs")
        assert "The audit log is for administrators" in shown(browser, "audit") and "No receipts yet" in shown(
            browser, "receipts"
        )
        assert "data-rest" in shown(browser, "data"), "to sign out is a form, too"
        assert not [words for words in ("Upload a file", "API keys", "Train a model") if words in text]
        assert browser.get("/v1/keys", headers=SCRIPT).status_code == 403
        for path in ("jobs", "models/x/whatif"):
            assert browser.post(f"/v1/{path}", json={}, headers=SCRIPT).status_code == 403
    with castle.signed_in(castle.tokens[Role.TRAIN]) as browser:
        assert "Upload a file" in shown(browser, "data") and "API keys" not in shown(browser, "settings")


@pytest.mark.parametrize(
    ("method", "headers"),
    [
        *(("GET", headers) for headers in ({}, {"sec-fetch-site": "cross-site"}, {"sec-fetch-site": "same-site"})),
        ("POST", {"sec-fetch-site": "none", "x-fewpass-console": "1"}),
        ("POST", {"sec-fetch-site": "same-origin"}),
        ("POST", {"sec-fetch-site": "cross-site", "x-fewpass-console": "1"}),
        ("DELETE", {"sec-fetch-site": "same-origin"}),
    ],
)
def test_a_cookie_alone_proves_nothing(castle, method, headers):
    path = {"GET": "models", "POST": "jobs/none/cancel", "DELETE": "keys/none"}[method]
    with castle.signed_in(castle.tokens[Role.ADMIN]) as browser:
        assert browser.request(method, f"/v1/{path}", headers=headers).status_code == 403
        assert browser.request(method, f"/v1/{path}", headers=SCRIPT).status_code in {200, 404}


def test_a_session_is_of_one_origin(castle):
    with castle.signed_in(castle.tokens[Role.READ]) as browser:
        port = httpx.URL(castle.url).port
        assert browser.get("/v1/models", headers=SCRIPT).status_code == 200
        cookie = f"fewpass-{port}={browser.cookies[f'fewpass-{port}']}"
        elsewhere = SCRIPT | {"host": f"localhost:{port}", "cookie": cookie}
        assert httpx.get(f"{castle.url}/v1/models", headers=elsewhere).status_code == 401


def test_a_session_ends_by_signing_out_and_with_its_key(castle):
    with castle.signed_in(castle.tokens[Role.READ]) as browser:
        kept = dict(browser.cookies)
        assert browser.post("/console/session/end", headers=SCRIPT).status_code == 204
        assert not browser.cookies
        assert httpx.get(f"{castle.url}/v1/models", headers=SCRIPT, cookies=kept).status_code == 401
    with castle.signed_in(ADMIN_KEY) as admin:
        token = admin.post("/v1/keys", json={"name": "short-lived", "role": "read"}, headers=SCRIPT).json()["token"]
        with castle.signed_in(token) as browser:
            assert browser.get("/v1/models", headers=SCRIPT).status_code == 200
            assert admin.delete("/v1/keys/short-lived", headers=SCRIPT).status_code == 200
            wait_for(lambda: browser.get("/v1/models", headers=SCRIPT).status_code == 401)


@pytest.mark.parametrize(
    "path", ["//evil.org", "https://evil.org", "/\\evil.org", "/v1/models", "javascript:1", "/console\n", ""]
)
def test_signing_in_leads_to_our_pages_only(path):
    assert safe_redirect_path(path) == "/console"
