"""Numbers of thousands of digits, which Python refuses to convert, wherever a request may write one."""

import pytest
from starlette.testclient import TestClient

from service import product
from service.http.app import create_app
from service.requests.json_values import whole_number_or_none
from service.requests.requests import TrainRequest
from service.settings import Settings
from service.workspace import Workspace

DIGITS = "9" * 5000
RECORDS = {"json": {"records": [{"a": "x"}]}}
INFER = {"content": b"{}", "headers": {"inference-header-content-length": DIGITS}}
REQUESTS = [
    ("POST", f"/v1/models/play/predict?top_k={DIGITS}", RECORDS, 422),
    ("POST", f"/v1/models/play/predict?interval={DIGITS}", RECORDS, 422),
    ("POST", "/v2/models/play/infer", INFER, 400),
    ("GET", f"/v1/models/play/monitoring?against=version:{DIGITS}", {}, 422),
    ("GET", f"/v1/models/play/monitoring?against=window:{DIGITS}d", {}, 422),
    ("GET", f"/v1/models/play/monitoring?window={DIGITS}d", {}, 422),
    ("GET", f"/v1/models/play/structure?member={DIGITS}", {}, 422),
    ("GET", f"/v1/models/play@{DIGITS}", {}, 404),
    ("GET", f"/v1/models?limit={DIGITS}", {}, 422),
    ("GET", f"/v1/jobs?cursor={DIGITS}", {}, 422),
    ("GET", f"/console/models/play/graph?open={DIGITS}", {}, 200),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    (folder / "rows.csv").write_text("a,y\n" + "x,yes\nz,no\n" * 40)
    settings = Settings(workspace=folder / "workspace", warm_up=False, job_workers=0)
    with Workspace(settings) as workspace:
        request = TrainRequest(uris=[str(folder / "rows.csv")], target="y", learner="nb", model="play", holdout=0)
        product.train_model_version(workspace, request)
    with TestClient(create_app(settings), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


@pytest.mark.parametrize(("method", "path", "content", "status"), REQUESTS)
def test_a_number_of_thousands_of_digits_is_refused(client, method, path, content, status):
    assert client.request(method, path, **content).status_code == status


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("007", 7), ("12", 12), ("13", None), ("", None), ("-1", None), ("1.0", None), ("²", None), ("٣", None)],
)
def test_whole_numbers_are_read(text, number):
    assert whole_number_or_none(text, 12) == number
    assert whole_number_or_none("0" * 5000 + text, 12) == (0 if text == "" else number)
