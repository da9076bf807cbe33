"""What a real server has counted, and what it says of it; labels as a user sends them, over REST and by the command line, and forgetting them with the data."""

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.monitoring.alert_records import edit_alert_records
from tests.monitoring import problems
from tests.processes import wait_for
from tests.service.asking import client_of, learn
from tests.service.forks import local_server
from tests.support.cli import fewpass, on_a_line
from tests.support.http import stream_of

ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
PATH = "/v1/models/towns/predict"
ORDERS = "/v1/models/orders"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("monitoring")
    pq.write_table(problems.rows(8000, 1), folder / "train.parquet")
    orders = problems.rows(3000, 1).append_column("order_id", pa.array([f"o{row}" for row in range(3000)]))
    pq.write_table(orders, folder / "orders.parquet")
    quick = {"monitoring_fold_s": 0.05, "monitoring_flush_s": 0.1, "generation_poll_s": 0.05}
    settings = Settings(workspace=folder / "workspace", job_workers=0, **quick)
    with Workspace(settings) as opened:
        for model in ("towns", "broken", "quiet", "killed", "earlier"):
            learn(opened, folder / "train.parquet", model, learner="kdb", parameters={"k": 1})
        dataset = {"name": "orders", "uris": [str(folder / "orders.parquet")], "columns": {"order_id": "drop"}}
        product.register_dataset(opened, DatasetRequest(**dataset, target="class"))
        product.train_model_version(opened, TrainRequest(dataset="orders", learner="nb", model="orders"))
        product.set_monitoring_choice(opened, "orders", {"mode": "rows", "denied": []})
    with local_server(settings) as server, client_of(server) as client:
        yield settings, client


def records_of(table):
    return table.drop_columns(["class"]).to_pylist()


def seen(client, model, n_rows, **asked):
    """What is told of a model as soon as so many rows are counted."""

    def look():
        found = client.get(f"/v1/models/{model}/monitoring", params=asked).json()
        return found if found.get("rows", {}).get("served", 0) >= n_rows else {}

    return wait_for(look)


def test_rows_of_every_way_in_are_counted(place):
    _, client = place
    table = problems.rows(600, 40).drop_columns(["class"])
    records = table.slice(0, 100).to_pylist()
    for record in records[:50]:
        assert client.post(PATH, json={"records": [record]}).status_code == 200
    assert client.post(PATH, json={"records": records[50:]}).status_code == 200
    assert client.post(PATH, json={"columns": table.slice(100, 100).to_pydict()}).status_code == 200
    assert client.post(PATH, content=stream_of(table.slice(200, 300)), headers=ARROW).status_code == 200
    kinds = {"size": "FP64", "weight": "FP64", "town": "BYTES", "road": "BYTES"}
    columns = table.slice(500, 100).to_pydict()
    tensors = [{"name": n, "shape": [100], "datatype": kind, "data": columns[n]} for n, kind in kinds.items()]
    assert client.post("/v2/models/towns/infer", json={"inputs": tensors}).status_code == 200
    found = seen(client, "towns", 600)
    assert found["rows"] == {"counted": 600, "served": 600, "requests": 54, "counted_one_in_at_most": 1}
    by_name = {column["column"]: column for column in found["columns"]}
    assert by_name["other"]["rates"]["absent"]["share"] == pytest.approx(100 / 600)
    assert by_name["town"]["rates"]["unseen"]["share"] == 0
    assert {column for cause in found["causes"] for column in cause["columns"]} == {"other", "noise"} & set(by_name)
    assert found["estimated"]["accuracy"] > 0.8


def test_a_broken_column_is_blamed(place):
    _, client = place

    def told(path="", **asked):
        return client.get(f"/v1/models/broken/monitoring{path}", params=asked)

    table = problems.rows(3000, 41)
    table = table.set_column(0, "size", pa.array(table["size"].to_numpy() * 100)).drop_columns(["class"])
    client.post("/v1/models/broken/predict", content=stream_of(table.slice(0, 1500)), headers=ARROW)
    client.post("/v1/models/broken/predict", json={"records": table.slice(1500).to_pylist()})
    found = seen(client, "broken", 3000)
    assert found["is_drifting"] and found["causes"][0]["kind"] == "out_of_range"
    assert found["causes"][0]["columns"] == ["size"]
    assert told("/families").json()["families"][0]["column"] == "size"
    windows = told("/windows", since="3h").json()["windows"]
    assert len(windows) == 3 and windows[-1]["is_drifting"] and windows[0]["is_drifting"] is None
    column = told("/columns/size").json()
    assert len(column["labels"]) == len(column["window"]) == len(column["expected"])
    predicted = told("/predictions").json()
    assert predicted["classes"] == ["no", "yes"] and len(predicted["counts"][0]) == len(predicted["bins"])
    counted = found["rows"]["counted"]
    assert counted - 4 * 40 <= sum(n or 0 for own in predicted["counts"] for n in own) <= counted
    slices = pa.ipc.open_stream(told("/slices").content).read_all()
    of_block = slices.group_by("block").aggregate([("count", "sum")])
    summed = dict(zip(of_block["block"].to_pylist(), of_block["count_sum"].to_pylist(), strict=True))
    assert summed["confidence"] == summed["family 0"] == counted and set(slices["process"].to_pylist())
    empty = client.get("/v1/models/towns/monitoring/slices", params={"until": "2020-01-01T00:00:00Z"}).content
    assert pa.ipc.open_stream(empty).read_all().num_rows == 0
    assert told(against="version:1").json()["is_drifting"] is False
    for wrong in ("yesterday", "window:9y", "version:x"):
        answer = told(against=wrong)
        assert answer.status_code == 422 and "Use training" in answer.json()["detail"]
    assert told(against="window:7d").json()["is_drifting"] is None
    assert told("/columns/nothing").status_code == 422
    assert client.get("/v1/models/unknown/monitoring").status_code == 404


def test_a_killed_process_says_what_it_may_have_lost_and_estimates_are_those_of_the_predictions(place):
    settings, others = place
    alone = settings.model_copy(update={"monitoring_flush_s": 0.2})
    with local_server(alone) as server, client_of(server) as client:
        client.post("/v1/models/killed/predict", json={"records": records_of(problems.rows(200, 43))})
        assert seen(client, "killed", 200)["gaps"] == []
        os.kill(server.pid, signal.SIGKILL)
        wait_for(lambda: _is_gone(client))
    with Workspace(settings) as opened:
        found = wait_for(lambda: _with_gaps(opened))
    assert found["rows"]["served"] == 200
    assert len(found["gaps"]) == 1 and found["gaps"][0]["rows_may_be_missing_from"] > found["since"]
    records = records_of(problems.rows(400, 44))
    answer = others.post("/v1/models/killed/predict", json={"records": records}).json()
    p = np.array(answer["probabilities"]).max(axis=1)
    assert seen(others, "killed", 600)["estimated"]["accuracy"] == pytest.approx(p.mean(), abs=0.05)


def test_denied_columns_are_not_counted_and_a_model_may_be_left_alone(place):
    _, client = place
    assert client.get("/v1/models/quiet/monitor").json() == {"mode": "counts", "denied": []}
    chosen = {"mode": "counts", "denied": ["town"]}
    assert client.put("/v1/models/quiet/monitor", json=chosen).json() == chosen
    assert client.put("/v1/models/quiet/monitor", json={"denied": ["nothing"]}).status_code == 422
    records = records_of(problems.rows(500, 42))
    client.post("/v1/models/quiet/predict", json={"records": [record | {"town": "oslo"} for record in records]})
    found = seen(client, "quiet", 500)
    town = client.get("/v1/models/quiet/monitoring/columns/town").json()
    assert sum(town["window"][:-1]) == 0 and town["window"][-1] == 500
    assert "town" not in {column for cause in found["causes"] for column in cause["columns"]}
    client.put("/v1/models/quiet/monitor", json={"mode": "off"})
    time.sleep(0.5)  # until the server has written again, and read this
    client.post("/v1/models/quiet/predict", json={"records": records})
    time.sleep(0.5)
    assert seen(client, "quiet", 500)["rows"]["served"] == 500


def _is_gone(client):
    try:
        client.get("/healthz")
    except httpx.TransportError:
        return True
    return False


def _with_gaps(opened):
    found = product.monitoring_window_report(opened, "killed")
    return found if found["gaps"] else {}


def performance(client):
    return client.get(f"{ORDERS}/monitoring/performance").json()


def test_from_the_prediction_to_its_label_and_out_again(place):
    settings, client = place
    folder = settings.workspace.parent

    said = partial(on_a_line, workspace=settings.workspace)

    def counted():
        return client.get(f"{ORDERS}/monitoring").json().get("rows", {}).get("counted")

    table = pq.read_table(folder / "orders.parquet").drop_columns(["order_id"])
    rows = table.drop_columns(["class"]).slice(0, 40).to_pylist()
    truth = table["class"].to_pylist()[:40]
    ids = []
    for number, row in enumerate(rows[:30]):  # by the client's own key
        answer = client.post(f"{ORDERS}/predict", json={"records": [row]}, headers={"x-prediction-key": f"o{number}"})
        assert answer.status_code == 200
    for row in rows[30:]:  # or by the id of the answer
        ids += client.post(f"{ORDERS}/predict", params={"id": "true"}, json={"records": [row]}).json()["ids"]
    wait_for(lambda: counted() == 40)
    assert performance(client)["coverage"] == 0 and "no prediction" in performance(client)["why"]

    later = (datetime.now(UTC) + timedelta(seconds=90)).isoformat()
    sent = [{"key": f"o{row}", "label": truth[row], "at": later} for row in range(20)]
    for _ in range(2):  # sending labels twice changes nothing
        answer = client.post(f"{ORDERS}/labels", json={"labels": sent})
        assert answer.json() == {"accepted": 20, "matched": 20, "pending": 0}
        found = performance(client)
        assert (found["labelled"], found["coverage"]) == (20, 0.5) and 80 < found["delay_s"]["median"] < 600
    acts = [line for line in client.get("/v1/audit").json()["items"] if line["action"] == "labels sent"]
    assert [(line["subject"], line["detail"]) for line in acts] == [("orders", answer.json())] * 2
    pq.write_table(pa.table({"prediction": ids, "income": truth[30:]}), folder / "labels.parquet")
    command = ["labels", "orders", folder / "labels.parquet", "--key", "prediction", "--label", "income", "--ids"]
    assert "10 labels: 10 matched, 0 wait" in said(*command)
    (folder / "labels").mkdir()  # a folder, and other formats, as for every other command
    (folder / "labels" / "more.csv").write_text(f"order,income\no0,{truth[0]}\n")
    by_order = ["--key", "order", "--label", "income"]
    assert "1 labels: 1 matched, 0 wait" in said("labels", "orders", folder / "labels", *by_order)
    wrong = said("labels", "orders", folder / "nothing.parquet", *by_order, code=1)
    assert "nothing.parquet: no such file or folder" in wrong
    assert performance(client)["coverage"] == 0.75

    for label, why in (("maybe", "is not a class"), (None, "valid")):
        answer = client.post(f"{ORDERS}/labels", json={"labels": [{"key": "o1", "label": label}]})
        assert answer.status_code == 422 and why in answer.text
    assert client.post(f"{ORDERS}/labels", json={"labels": [{"key": "a", "id": "b", "label": "no"}]}).status_code == 422
    assert client.post("/v1/models/nobody/labels", json={"labels": []}).status_code == 404

    by_id = ["--prediction-key", "order_id"]
    forget = ["forget", "orders", "--where", "order_id IN ('o3', 'o4', 'o2999')", *by_id]
    assert "Predictions that would be forgotten: 2" in said(*forget, "--dry-run")
    assert performance(client)["labelled"] == 30, "a dry run changes nothing"
    done = json.loads(said(*forget, "--no-retrain", "--json"))
    assert done["n_rows"] == 3 and done["served"] == {"predictions": 2, "labels": 2, "subtracted": 2}
    assert (performance(client)["labelled"], counted()) == (28, 38)
    again = json.loads(said(*forget, "--no-retrain", "--json"))
    assert again["served"] == {"predictions": 0, "labels": 0, "subtracted": 0}
    alone = json.loads(said("forget", "orders", "--where", "order_id = 'o7'", *by_id, "--no-retrain", "--json"))
    assert alone["served"] == {"predictions": 1, "labels": 1, "subtracted": 1}
    assert counted() == 37
    assert "'orderid' is not in the table (similar: order_id)" in said(*forget[:-1], "orderid", code=1)


@pytest.mark.parametrize("until", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_a_moment_that_no_window_fits_is_refused(place, until):
    _, client = place
    for path in ("monitoring", "monitoring/windows", "monitoring/predictions", "monitoring/slices"):
        answer = client.get(f"{ORDERS}/{path}", params={"until": until})
        assert answer.status_code == 422 and "must be within the years" in answer.json()["detail"]
    page = client.get("/console/models/orders/monitoring", params={"until": until}, headers={"accept": "text/html"})
    assert page.status_code in (200, 422) and "must be within the years" in page.text


def test_an_alert_is_seen_muted_and_resolved_by_rest_and_by_command(place):
    settings, client = place
    alert = {"id": "0123456789abcdef", "model": "orders", "version": 1, "subject": "unseen size", "kind": "unseen"}
    alert |= {"columns": ["size"], "words": "size has unseen values", "effect": 9.0, "unit": "points"}
    alert |= {"against": "training", "window": "24h", "is_muted": False, "fired_at": "2026-01-01T00:00:00+00:00"}
    with edit_alert_records(settings.workspace, "alerts") as alerts:
        alerts[alert["id"]] = alert | {"acknowledged_at": None, "resolved_at": None}
    path = f"/v1/alerts/{alert['id']}"
    assert client.post(f"{path}/acknowledge").json()["acknowledged_at"]
    assert client.post(f"{path}/mute").json()["is_muted"] and not client.post(f"{path}/unmute").json()["is_muted"]
    where = {"workspace": settings.workspace}
    assert "seen, muted" in " ".join(fewpass("alerts", "--mute", alert["id"], **where).stdout.split())
    assert client.post(f"{path}/resolve").json()["resolved_at"]
    assert client.get("/v1/alerts", params={"is_open": True, "model": "orders"}).json() == []
    told = fewpass("alerts", "--unmute", alert["id"], "--acknowledge", alert["id"], "--json", **where)
    (one,) = json.loads(told.stdout)
    assert one["resolved_at"] and not one["is_muted"]
    for verb in ("acknowledge", "mute", "unmute", "resolve"):
        answer = client.post(f"/v1/alerts/none/{verb}")
        assert answer.status_code == 404 and "no alert 'none'" in answer.json()["detail"]
    assert "no alert 'none'" in fewpass("alerts", "--resolve", "none", **where, code=1).stderr


def test_a_version_without_rows_links_to_the_earlier_ones_that_served(place):
    """Versions that served nothing, or were deleted, have no link: it would lead nowhere."""
    settings, client = place
    records = problems.rows(30, 41).drop_columns(["class"]).to_pylist()
    assert client.post("/v1/models/earlier/predict", json={"records": records}).status_code == 200
    assert seen(client, "earlier", 30)
    with Workspace(settings) as opened:
        for _ in range(2):
            learn(opened, settings.workspace.parent / "train.parquet", "earlier", learner="nb")
    page = client.get("/console/models/earlier%403/monitoring").text
    assert "earlier%401/monitoring" in page and "Rows that earlier versions served" in page
    assert "earlier%402/monitoring" not in page
    with Workspace(settings) as opened:
        product.delete_version(opened, "earlier", 1)
    assert "Rows that earlier versions served" not in client.get("/console/models/earlier%403/monitoring").text
