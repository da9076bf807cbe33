"""Labels as a user sends them, to a real server and by the command line; and forgetting them with the data."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.monitoring.alert_records import with_records
from tests.monitoring import problems
from tests.processes import wait_for
from tests.service.asking import client_of
from tests.service.cli.test_cli import fewpass
from tests.service.forks import local_server

PATH = "/v1/models/towns"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labels")
    table = problems.rows(3000, 1)
    orders = pa.array([f"o{row}" for row in range(3000)])
    pq.write_table(table.append_column("order_id", orders), folder / "train.parquet")
    settings = Settings(
        workspace=folder / "workspace",
        job_workers=0,
        monitoring_fold_s=0.05,
        monitoring_flush_s=0.1,
        generation_poll_s=0.05,
    )
    with Workspace(settings) as opened:
        columns = {"order_id": "drop"}
        asked = {"name": "towns", "uris": [str(folder / "train.parquet")], "target": "class", "columns": columns}
        product.register_dataset(opened, DatasetRequest(**asked))
        product.train(opened, TrainRequest(dataset="towns", learner="nb", model="towns"))
        product.set_monitor(opened, "towns", {"mode": "rows", "denied": []})
    with local_server(settings) as server, client_of(server) as client:
        yield settings, client, table, folder


def performance(client):
    return client.get(f"{PATH}/monitoring/performance").json()


def test_from_the_prediction_to_its_label_and_out_again(place):
    settings, client, table, folder = place
    where = {"workspace": settings.workspace}
    rows = table.drop_columns(["class"]).slice(0, 40).to_pylist()
    truth = table["class"].to_pylist()[:40]
    ids = []
    for number, row in enumerate(rows[:30]):  # by the client's own key
        answer = client.post(f"{PATH}/predict", json={"records": [row]}, headers={"x-prediction-key": f"o{number}"})
        assert answer.status_code == 200
    for row in rows[30:]:  # or by the id of the answer
        ids += client.post(f"{PATH}/predict", params={"id": "true"}, json={"records": [row]}).json()["ids"]
    wait_for(lambda: client.get(f"{PATH}/monitoring").json().get("rows", {}).get("counted") == 40)
    assert performance(client)["coverage"] == 0 and "no prediction" in performance(client)["why"]

    later = (datetime.now(UTC) + timedelta(seconds=90)).isoformat()
    sent = [{"key": f"o{row}", "label": truth[row], "at": later} for row in range(20)]
    for _ in range(2):  # sending labels twice changes nothing
        answer = client.post(f"{PATH}/labels", json={"labels": sent})
        assert answer.json() == {"accepted": 20, "matched": 20, "pending": 0}
        found = performance(client)
        assert (found["labelled"], found["coverage"]) == (20, 0.5) and 80 < found["delay_s"]["median"] < 600
    pq.write_table(pa.table({"prediction": ids, "income": truth[30:]}), folder / "labels.parquet")
    command = ["labels", "towns", folder / "labels.parquet", "--key", "prediction", "--label", "income", "--ids"]
    assert "10 labels: 10 matched, 0 wait" in fewpass(*command, **where).stdout
    (folder / "labels").mkdir()  # a folder, and other formats, as for every other command
    (folder / "labels" / "more.csv").write_text(f"order,income\no0,{truth[0]}\n")
    command = ["labels", "towns", folder / "labels", "--key", "order", "--label", "income"]
    assert "1 labels: 1 matched, 0 wait" in fewpass(*command, **where).stdout
    wrong = fewpass("labels", "towns", folder / "nothing.parquet", *command[3:], **where, code=1)
    assert "nothing.parquet: no such file or folder" in wrong.stderr.replace("\n", " ")
    assert performance(client)["coverage"] == 0.75

    for label, why in (("maybe", "is not a class"), (None, "valid")):
        answer = client.post(f"{PATH}/labels", json={"labels": [{"key": "o1", "label": label}]})
        assert answer.status_code == 422 and why in answer.text
    assert client.post(f"{PATH}/labels", json={"labels": [{"key": "a", "id": "b", "label": "no"}]}).status_code == 422
    assert client.post("/v1/models/nobody/labels", json={"labels": []}).status_code == 404

    forget = ["forget", "towns", "--where", "order_id IN ('o3', 'o4', 'o2999')", "--prediction-key", "order_id"]
    assert "Predictions that would be forgotten: 2" in fewpass(*forget, "--dry-run", **where).stdout
    assert performance(client)["labelled"] == 30, "a dry run changes nothing"
    done = json.loads(fewpass(*forget, "--no-retrain", "--json", **where).stdout)
    assert done["n_rows"] == 3 and done["served"] == {"predictions": 2, "labels": 2, "subtracted": 2}
    assert (performance(client)["labelled"], client.get(f"{PATH}/monitoring").json()["rows"]["counted"]) == (28, 38)
    again = json.loads(fewpass(*forget, "--no-retrain", "--json", **where).stdout)
    assert again["served"] == {"predictions": 0, "labels": 0, "subtracted": 0}
    alone = ["forget", "towns", "--where", "order_id = 'o7'", *forget[4:], "--no-retrain", "--json"]
    assert json.loads(fewpass(*alone, **where).stdout)["served"] == {"predictions": 1, "labels": 1, "subtracted": 1}
    assert client.get(f"{PATH}/monitoring").json()["rows"]["counted"] == 37
    wrong = fewpass(*forget[:-1], "orderid", **where, code=1)
    assert "'orderid' is not in the table (similar: order_id)" in " ".join(wrong.stderr.split())


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_moment_that_no_window_fits_is_refused(place, until):
    _, client, _, _ = place
    for path in ("monitoring", "monitoring/windows", "monitoring/predictions", "monitoring/slices"):
        answer = client.get(f"{PATH}/{path}", params={"until": until})
        assert answer.status_code == 422 and "not within the years" in answer.json()["detail"]
    page = client.get("/console/models/towns/monitoring", params={"until": until}, headers={"accept": "text/html"})
    assert page.status_code in (200, 422) and "not within the years" in page.text


def test_an_alert_is_seen_muted_and_resolved_by_rest_and_by_command(place):
    settings, client, _, _ = place
    alert = {"id": "0123456789abcdef", "model": "towns", "version": 1, "subject": "unseen size", "kind": "unseen"}
    alert |= {"columns": ["size"], "words": "size has unseen values", "effect": 9.0, "unit": "points"}
    alert |= {"against": "training", "window": "24h", "is_muted": False, "fired_at": "2026-01-01T00:00:00+00:00"}
    with with_records(settings.workspace, "alerts") as alerts:
        alerts[alert["id"]] = alert | {"acknowledged_at": None, "resolved_at": None}
    path = f"/v1/alerts/{alert['id']}"
    assert client.post(f"{path}/acknowledge").json()["acknowledged_at"]
    assert client.post(f"{path}/mute").json()["is_muted"] and not client.post(f"{path}/unmute").json()["is_muted"]
    where = {"workspace": settings.workspace}
    assert "seen, muted" in " ".join(fewpass("alerts", "--mute", alert["id"], **where).stdout.split())
    assert client.post(f"{path}/resolve").json()["resolved_at"]
    assert client.get("/v1/alerts", params={"is_open": True}).json() == []
    told = fewpass("alerts", "--unmute", alert["id"], "--acknowledge", alert["id"], "--json", **where)
    (one,) = json.loads(told.stdout)
    assert one["resolved_at"] and not one["is_muted"]
    for verb in ("acknowledge", "mute", "unmute", "resolve"):
        answer = client.post(f"/v1/alerts/none/{verb}")
        assert answer.status_code == 404 and "no alert 'none'" in answer.json()["detail"]
    assert "no alert 'none'" in fewpass("alerts", "--resolve", "none", **where, code=1).stderr
