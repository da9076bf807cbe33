"""Redirects stay on this server, whatever Host a request names."""

from starlette.testclient import TestClient

from service.http.app import create_app
from service.settings import Settings


def test_a_redirect_names_no_host(tmp_path):
    settings = Settings(workspace=tmp_path, warm_up=False, trusted_hosts=["evil.example"])
    with TestClient(create_app(settings), base_url="http://127.0.0.1", follow_redirects=False) as client:
        for host in ("127.0.0.1", "evil.example", "evil.example:8000"):
            for path, place in (("/v1/models/", "/v1/models"), ("/v1/jobs/?limit=2", "/v1/jobs?limit=2")):
                answer = client.get(path, headers={"host": host})
                assert (answer.status_code, answer.headers["location"]) == (307, place)
