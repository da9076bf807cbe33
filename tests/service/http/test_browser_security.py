"""Pages of other sites, of other ports and under foreign names change nothing; programs are not in the way of it."""

import httpx
import pytest

from service.http.security import Visitors
from service.requests.problems import Forbidden
from service.settings import Settings
from tests.support.http import PATH, RECORD, problem

# Requests that a page may send without asking before: they have no body, or one of text.
UNSAFE = [
    ("POST", "/v1/models/weather/prune?keep=1"),
    ("POST", "/v1/models/weather/aliases/champion/rollback"),
    ("POST", "/v1/jobs/job-1/cancel"),
    ("POST", "/v1/jobs/job-1/retry"),
    ("POST", "/v1/schedules/nightly/run"),
    ("POST", "/v1/schedules/nightly/pause"),
    ("POST", PATH),
    ("PUT", "/v1/models/weather/aliases/champion"),
    ("DELETE", "/v1/models/weather"),
]
OTHER_NAMES = "rebound.evil.org 127.0.0.1.evil.org 127.0.0.100.evil.org:80 intranet 10.1.2.3 0.0.0.0:8000 x:y"


def foreign(url):
    """What browsers say of a request that a page from elsewhere makes."""
    return {
        "another port": {"sec-fetch-site": "same-site", "origin": f"http://127.0.0.1:{url.port + 1}"},
        "another port, of an old browser": {"origin": f"http://127.0.0.1:{url.port + 1}"},
        "the port of HTTP": {"origin": "http://127.0.0.1"},
        "another scheme": {"origin": f"https://127.0.0.1:{url.port}"},
        "another name of this machine": {"origin": f"http://localhost:{url.port}"},
        "another site": {"sec-fetch-site": "cross-site", "origin": "https://evil.org"},
        "another site, of an old browser": {"origin": "https://evil.org"},
        "another site, without an origin": {"sec-fetch-site": "cross-site"},
        "a sandbox": {"origin": "null"},
        "nobody, with an origin": {"sec-fetch-site": "none", "origin": "https://evil.org"},
        "nobody, with a sandbox": {"sec-fetch-site": "none", "origin": "null"},
        "a browser of the future": {"sec-fetch-site": "same-galaxy"},
    }


@pytest.mark.parametrize("page", foreign(httpx.URL("http://127.0.0.1:1")))
def test_a_page_from_elsewhere_changes_nothing(site, page):
    headers = foreign(site.client.base_url)[page]
    before = site.client.get("/v1/models/weather/versions").json()
    for method, path in UNSAFE:
        body = problem(site.client.request(method, path, headers=headers), 403)
        assert (
            "Pages of other origins may not change anything or request predictions. Send the request without a browser, or from a page of this server"
            in body["detail"]
        )
    assert site.client.get("/v1/models/weather/versions").json() == before


def test_a_page_of_this_server_and_programs_may_ask(site):
    url = site.client.base_url
    own = {"origin": f"http://127.0.0.1:{url.port}"}
    asked = {"records": [RECORD]}
    by_user = {"sec-fetch-site": "none"}
    behind_proxy = {"sec-fetch-site": "same-origin", "origin": "https://models.example"}
    for headers in ({}, own, own | {"sec-fetch-site": "same-origin"}, by_user, own | by_user, behind_proxy):
        assert site.client.post(PATH, json=asked, headers=headers).status_code == 200, headers
    # A link from elsewhere may be followed; what it leads to, only the user reads.
    assert site.client.get("/v1/models", headers={"sec-fetch-site": "cross-site"}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000", "[::1]", "LOCALHOST"])
def test_a_server_without_keys_answers_to_names_of_this_machine(site, host):
    assert site.client.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", OTHER_NAMES.split())
def test_a_server_without_keys_answers_to_no_other_name(site, host):
    for _ in range(2):  # also the second time
        refusal = problem(site.client.get("/v1/models", headers={"host": host}), 403)
        assert refusal["host"] == host and "FEWPASS_TRUSTED_HOSTS" in refusal["detail"]


def is_refused(host, origin, scheme="http"):
    visitors = Visitors(Settings(trusted_hosts=("models.example",)))
    try:
        visitors.check("POST", scheme, {b"host": host.encode(), b"origin": origin.encode()})
    except Forbidden:
        return True
    return False


@pytest.mark.parametrize("host", [b"", b":8000"])
@pytest.mark.parametrize("settings", [Settings(), Settings(host="10.0.0.1"), Settings(trusted_hosts=("a.example",))])
def test_an_empty_host_is_refused_and_none_is_not(settings, host):
    for _ in range(2):
        with pytest.raises(Forbidden, match="Host is empty"):
            Visitors(settings).check("GET", "http", {b"host": host})
    Visitors(settings).check("GET", "http", {})


def test_a_trusted_name_may_be_one_of_a_proxy_that_speaks_https():
    assert not is_refused("models.example", "https://models.example")
    assert not is_refused("models.example", "https://models.example:443")
    assert not is_refused("models.example:8443", "https://models.example:8443")
    assert not is_refused("models.example", "http://models.example:80")
    assert is_refused("models.example", "https://models.example:444")
    assert is_refused("models.example", "https://other.example")
    assert is_refused("other.example", "https://other.example")
    assert is_refused("localhost", "https://localhost"), "no proxy stands before this name"
    assert not is_refused("models.example", "https://models.example", scheme="https")


def test_with_keys_names_matter_only_if_they_are_listed():
    Visitors(Settings(host="10.0.0.1")).check_host(b"anything.example")
    listed = Visitors(Settings(host="10.0.0.1", trusted_hosts=("models.example",)))
    for host in (b"models.example:8000", b"10.0.0.1", b"127.0.0.1:8000", None):
        listed.check_host(host)
    with pytest.raises(Forbidden, match=r"does not answer as 'anything\.example'"):
        listed.check_host(b"anything.example")


def test_browsers_are_told_to_show_answers_and_to_run_nothing(site):
    paths = ["/", "/v1/models/nobody", "/no/such/path", "/v1/models/weather/structure.svg", "/metrics"]
    posts = [{"json": {"records": [RECORD]}}, {"content": b"{"}, {"json": {}, "headers": {"origin": "null"}}]
    answers = [site.client.get(path) for path in paths] + [site.client.post(PATH, **post) for post in posts]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "sandbox" in policy and "frame-ancestors 'none'" in policy
        assert "script-src" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ["/docs", "/docs/read", "/docs/licences"])
def test_the_documentation_needs_nobody_else(site, path):
    answer = site.client.get(path)
    policy = answer.headers["content-security-policy"]
    assert answer.headers["x-frame-options"] == "DENY" and "sandbox" not in policy
    assert "http" not in policy and "unsafe" not in policy
    assert site.client.get("/redoc").headers["location"] == "/docs/read"
