"""Every route answers 404 for a name that does not exist, and finds a column of any name."""

from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from service import product
from service.http.app import create_app
from service.settings import Settings
from service.workspace import Workspace
from storage.monitoring.alert_records import edit_alert_records
from tests.service.asking import learn
from tests.service.conftest import weather

COLUMNS = [
    "a\nb", "\n", "a/b", "/", "..", ".", "../..", "%", " ", "q\"'x", "<script>alert(1)</script>", "\u202eabc",
    "=cmd|' /C calc'!A0", "?a=b#c", "x" * 10_000, "ünïcode \N{GRINNING FACE}", "\x1b[31m",
]  # fmt: skip


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    folder = tmp_path_factory.mktemp("names")
    table = weather(300, 1)
    odd = dict.fromkeys(COLUMNS, table["outlook"])
    pq.write_table(pa.table(odd | {"class": table["class"]}), folder / "odd.parquet")
    settings = Settings(workspace=folder / "w", warm_up=False, job_workers=0)
    with Workspace(settings) as workspace:
        learn(workspace, folder / "odd.parquet", "odd")
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        yield client


@pytest.mark.parametrize("column", COLUMNS, ids=range(len(COLUMNS)))
def test_a_column_of_any_name_has_its_pages(client, column):
    name = quote(column, safe="").replace(".", "%2E")
    shown = client.get(f"/console/models/odd/graph/{name}", headers={"accept": "text/html"})
    assert shown.status_code == 200 and "<script>alert" not in shown.text
    around = client.get("/console/models/odd/graph", params={"around": column})
    assert around.status_code == 200 and "<script>alert" not in around.text
    family = client.get(f"/v1/models/odd/families/{name}")
    assert family.status_code == 200 and family.json()["column"] == column
    counted = client.get(f"/v1/models/odd/monitoring/columns/{name}")
    assert counted.status_code == 200 and counted.json()["column"] == column


@pytest.mark.parametrize("column", ["a\nb\n", "", "nothing", "y" * 10_000, "%ED%A0%80", "\0"], ids=range(6))
def test_a_column_that_does_not_exist_is_refused(client, column):
    name = column if column.startswith("%") else quote(column, safe="")
    for place in ("/console/models/odd/graph/", "/v1/models/odd/families/", "/v1/models/odd/monitoring/columns/"):
        assert client.get(place + name).status_code == 422, place


def test_no_route_finds_what_does_not_exist(client):
    document = client.get("/openapi.json").json()
    for path, operations in document["paths"].items():
        named = path.replace("{", "no-").replace("}", "").replace("no-version", "7")
        for method in {"get", "delete"} & operations.keys() if named != path else ():
            answer = client.request(method, named)
            is_kept_form = path.endswith("{form}")  # which is a choice, not a name
            assert answer.status_code == (422 if is_kept_form else 404) or "query." in answer.text, (named, answer.text)


def test_deliveries_of_a_deleted_webhook_stay(client):
    workspace = client.app.state.workspace
    delivery = {"id": "d", "webhook": "gone", "at": "2026-01-01T00:00:00+00:00"}
    with edit_alert_records(workspace.layout.root, "deliveries") as deliveries:
        deliveries["d"] = delivery
    assert client.get("/v1/webhooks/gone/deliveries").json() == [delivery]
    assert product.list_webhook_deliveries(workspace) == [delivery]
