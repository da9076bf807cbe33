"""Labels, alerts and webhooks on files that a process has written, and a receiver on loopback."""

import base64
import contextlib
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.monitoring.served_counts import BatchRows
from learners.schema.encoding.encode import encode
from service import product
from service.product import monitoring_loop
from service.product.monitoring import alerting
from service.product.monitoring.predictions import Label
from service.product.monitoring.windows import Watching
from service.product.monitoring_loop import compare_with_previous
from service.requests.problems import InvalidRequest
from service.requests.requests import TrainRequest
from service.serving.count_queue import predictions_table
from service.serving.monitoring_counts import Observer
from service.serving.predictor import map_model_version
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import NotFound
from storage.monitoring.monitoring_files import Alive, MonitoringFiles, compact_hourly_counts
from tests.monitoring import problems
from tests.service.cli.test_cli import fewpass
from tests.web import Quiet, serving

NOON = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alerts")
    pq.write_table(problems.rows(8000, 1), folder / "train.parquet")
    settings = Settings(workspace=folder / "workspace", webhook_hosts=("127.0.0.1",))
    with Workspace(settings) as opened:
        asked = {"uris": [str(folder / "train.parquet")], "target": "class", "learner": "kdb", "holdout": 0.2}
        for model in ("labelled", "alerting", "compacted", "measured", "forgetful", "deleted", "lively"):
            product.train_model_version(opened, TrainRequest(**asked, model=model, parameters={"k": 1}))
        yield opened


def serve(workspace, name, table, at, keys=None, choice=None):
    """Count rows as a serving process would at some time; returns their probabilities."""
    observer = Observer(workspace.settings, lambda _: choice or {}, clock=lambda: at)
    served = map_model_version(product.find_version(workspace, name), observer)
    chunk = encode(table, served.schema, with_class=False)
    probabilities = served.predict_proba(chunk)
    hashed = None if keys is None else [served.watch.key_of("key", key) for key in keys]
    served.answered(chunk, probabilities, BatchRows(table), hashed)
    observer.close()
    return probabilities


def test_of_many_batches_some_are_counted_and_all_are_numbered(trained):
    """Beyond the cap the rows of a few batches are counted; that more were served is known exactly."""
    observer = Observer(trained.settings, lambda _: {"mode": "rows"})
    served = map_model_version(product.find_version(trained, "labelled"), observer)
    table = problems.rows(64, 51)
    chunk = encode(table, served.schema, with_class=False)
    p = served.predict_proba(chunk)
    for number in range(400):
        keys = [served.watch.key_of("key", f"many {number}")] * 64 if number < 3 else None
        served.answered(chunk, p, BatchRows(table), keys)
    observer.fold(one_in=64)
    (counts,) = served.watch.hours.values()
    counted, n_served, _ = counts.block("rows").tolist()
    assert n_served == 400 * 64 and 0 < counted < 400 * 64 / 16
    assert counts.block("rates")[6] == counted
    logged = predictions_table(served.watch.logged)
    assert len(logged) == n_served and logged["is_counted"].to_numpy().sum() == counted
    assert set(logged["key"][:192].to_pylist()) == {served.watch.key_of("key", f"many {n}") for n in range(3)}
    assert logged["codes"][5].as_py() == np.ascontiguousarray(chunk.x[:, 5]).tobytes()
    np.testing.assert_array_equal(np.stack(logged["p"][:64].to_pylist()), p)
    served.watch.logged.clear()
    served.watch.hours.clear()
    observer.close()


def test_a_single_large_request_is_counted_in_part(trained):
    """Beyond the cap, rows of it: whole requests are chosen only where there are many."""
    observer = Observer(trained.settings, lambda _: {})
    served = map_model_version(product.find_version(trained, "labelled"), observer)
    table = problems.rows(3000, 52)
    chunk = encode(table, served.schema, with_class=False)
    for n_requests in (1, 3):
        for _ in range(n_requests):
            served.answered(chunk, served.predict_proba(chunk), BatchRows(table), None)
        observer.fold(one_in=8)
        (counts,) = served.watch.hours.values()
        counted, n_served, _ = counts.block("rows").tolist()
        assert n_served == 3000 * n_requests and abs(counted / n_served - 1 / 8) < 0.03
        served.watch.hours.clear()
    observer.close()


def broken(n_rows, seed):
    table = problems.rows(n_rows, seed)
    return table.set_column(0, "size", pa.array(table["size"].to_numpy() * 100))


def test_labels_are_counted_once_and_the_last_one_counts(trained):
    table = problems.rows(300, 50)
    keys = [f"k{row}" for row in range(300)]
    p = serve(trained, "labelled", table, datetime.now(UTC), keys)
    truth = table["class"].to_pylist()
    wrong = [Label("key", key, "yes" if y == "no" else "no") for key, y in zip(keys, truth, strict=True)]
    right = [Label("key", key, y) for key, y in zip(keys, truth, strict=True)]
    assert product.add_prediction_labels(trained, "labelled", wrong[:200]) == {
        "accepted": 200,
        "matched": 200,
        "pending": 0,
    }
    for _ in range(2):
        product.add_prediction_labels(trained, "labelled", right[:200])
    assert product.add_prediction_labels(trained, "labelled", [Label("key", "unknown", "no")])["pending"] == 1
    found = product.monitoring_performance(trained, "labelled")
    y = np.array([["no", "yes"].index(name) for name in truth[:200]])
    own = p[:200]
    assert found["labelled"] == 200 and found["coverage"] == pytest.approx(200 / 300)
    assert found["accuracy"] == pytest.approx((own.argmax(axis=1) == y).mean())
    assert found["log_loss"] == pytest.approx(-np.log(own[np.arange(200), y]).mean())
    *before, last = found["over_time"]
    assert len(before) == 6 and {each["labelled"] for each in before} == {0} and before[0]["ece"] is None
    assert last == {"since": last["since"]} | {
        name: found[name] for name in ("labelled", "accuracy", "expected_accuracy", "ece")
    }
    with pytest.raises(InvalidRequest, match="steps; the limit"):
        product.monitoring_performance(trained, "labelled", window="9000h", step="1h")
    with pytest.raises(InvalidRequest, match="'maybe' is not a class"):
        product.add_prediction_labels(trained, "labelled", [Label("key", "k0", "maybe")])


def test_keys_are_not_written(trained):
    serve(trained, "labelled", problems.rows(1, 51), datetime.now(UTC), ["secret-customer-17"])
    for path in MonitoringFiles(trained.layout.root, "labelled").folder.rglob("*"):
        assert path.is_dir() or b"secret-customer-17" not in path.read_bytes()


def test_an_alarm_that_lasts_becomes_one_alert_and_ends(trained):
    day = timedelta(days=1)
    product.set_alert_rule(trained, "alerting", {"window": "2h"})
    serve(trained, "alerting", broken(2000, 52), NOON - day)
    first = alerting.update_model_alerts(trained, "alerting", NOON - day + timedelta(minutes=30))
    assert first == [], "once is not lasting"
    fired = alerting.update_model_alerts(trained, "alerting", NOON - day + timedelta(minutes=61))
    assert ("fired", "out_of_range size") in [(change, one["subject"]) for change, one in fired]
    assert alerting.update_model_alerts(trained, "alerting", NOON - day + timedelta(minutes=62)) == []
    opened = product.list_alerts(trained, "alerting", is_open=True)
    assert product.acknowledge_alert(trained, opened[0]["id"])["acknowledged_at"]
    with pytest.raises(NotFound, match="no alert 'none'"):
        product.acknowledge_alert(trained, "none")
    assert product.mute_alert(trained, opened[0]["id"])["is_muted"]
    assert not product.resolve_alert(trained, opened[0]["id"])["is_sent"]
    again = alerting.update_model_alerts(trained, "alerting", NOON - day + timedelta(minutes=63))
    assert [(change, one["id"]) for change, one in again] == [("resolved", opened[0]["id"])], "told once, and not fired"
    assert alerting.update_model_alerts(trained, "alerting", NOON - day + timedelta(minutes=64)) == []
    serve(trained, "alerting", broken(2000, 54), NOON - day + timedelta(minutes=61))
    (refired,) = [
        one for change, one in alerting.update_model_alerts(trained, "alerting", NOON - day + timedelta(minutes=125))
    ]
    assert refired["subject"] == opened[0]["subject"] and refired["is_muted"], "it has lasted anew, and stays muted"
    assert alerting.notify_alert_webhooks(trained, "fired", refired) == []
    assert not product.mute_alert(trained, refired["id"], is_muted=False)["is_muted"]
    serve(trained, "alerting", problems.rows(2000, 53), NOON - day + timedelta(hours=5))
    ended = alerting.update_model_alerts(trained, "alerting", NOON - day + timedelta(hours=5, minutes=10))
    assert {change for change, _ in ended} == {"resolved"}
    assert product.list_alerts(trained, "alerting", is_open=True) == [], product.monitoring_window_report(
        trained, "alerting", window="2h", until=NOON - day + timedelta(hours=5, minutes=10)
    )["alarms"]


@contextlib.contextmanager
def receiver(failures=0):
    """The URL of a server that keeps what is posted to it and answers 500 as often as told; and what it has got."""
    got = []

    class Handler(Quiet):
        def do_POST(self):
            got.append((dict(self.headers), self.body()))
            self.answer(500 if len(got) <= failures else 204)

    with serving(Handler) as address:
        yield f"http://{address}/hook", got


def test_webhooks_are_signed_and_tried_again(trained, monkeypatch):
    monkeypatch.setattr(alerting, "FIRST_WAIT_S", 0.01)
    with receiver(failures=2) as (url, got):
        made = product.create_webhook(trained, url, ["alerting"])
        told = product.test_webhook(trained, made["id"])
    assert (told["attempts"], told["status"], told["error"]) == (3, 204, None)
    headers, body = got[-1]
    key = base64.b64decode(made["secret"].removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    event = json.loads(body)
    assert event["specversion"] == "1.0" and event["type"] == "fewpass.test"
    assert all("secret" not in one for one in product.list_webhooks(trained))
    assert product.list_webhook_deliveries(trained, made["id"])[0]["id"] == told["id"]
    product.delete_webhook(trained, made["id"])


@pytest.mark.parametrize("port", ["0", "00", "65536", "x"])
def test_a_port_that_is_none_is_refused(trained, port):
    with pytest.raises(InvalidRequest, match="must be from 1 to 65535"):
        product.create_webhook(trained, f"http://127.0.0.1:{port}/hook", [])


def test_a_name_that_means_another_address_a_moment_later_leads_nowhere(trained, monkeypatch):
    """Rebinding: what was looked at is connected to, and every attempt looks again."""
    answers = iter(["93.184.216.34", *["169.254.169.254"] * 9])
    found = lambda *_, **__: [(2, 1, 6, "", (next(answers), 80))]  # noqa: E731
    monkeypatch.setattr(alerting.socket, "getaddrinfo", found)
    monkeypatch.setattr(alerting, "FIRST_WAIT_S", 0.01)
    made = product.create_webhook(trained, "http://rebinding.example/", [])
    told = product.test_webhook(trained, made["id"])
    assert told["status"] is None and "169.254.169.254, which is not a public address: link-local" in told["error"]
    product.delete_webhook(trained, made["id"])


class Leading(Quiet):
    """Leads elsewhere, or answers without an end."""

    elsewhere = ""

    def do_POST(self):
        self.body()
        self.send_response(307 if self.path == "/lead" else 200)
        self.send_header("location", self.elsewhere)
        self.end_headers()
        with contextlib.suppress(OSError):
            while self.path == "/endless":
                self.wfile.write(b"x" * 65536)


def test_redirects_are_not_followed_and_answers_are_not_read(trained, monkeypatch):
    monkeypatch.setattr(alerting, "FIRST_WAIT_S", 0.01)
    with receiver() as (Leading.elsewhere, got), serving(Leading) as address:
        for path, status, error in (("lead", 307, "the receiver answered 307"), ("endless", 200, None)):
            made = product.create_webhook(trained, f"http://{address}/{path}", [])
            told = product.test_webhook(trained, made["id"])
            assert (told["status"], told["error"]) == (status, error)
            product.delete_webhook(trained, made["id"])
    assert got == []


@pytest.mark.parametrize(
    "url", ["http://localhost:1/x", "http://169.254.169.254/latest", "http://10.0.0.1/", "http://[::1]:80/"]
)
def test_inner_addresses_are_refused(trained, url):
    with pytest.raises(InvalidRequest, match=r"is not a public address|is not found"):
        product.create_webhook(trained, url, [])


@pytest.mark.parametrize("url", ["ftp://example.com/", "file:///etc/passwd", "http://user@example.com/", "nothing"])
def test_what_is_no_url_of_a_host_is_refused(trained, url):
    with pytest.raises(InvalidRequest, match="must be an http or https URL"):
        product.create_webhook(trained, url, [])


def test_a_look_sends_alerts_and_sets_series(trained, monkeypatch):
    monkeypatch.setattr(alerting, "FIRST_WAIT_S", 0.01)
    monkeypatch.setattr(alerting, "PERSISTENCE", 1)
    with receiver() as (url, got):
        made = product.create_webhook(trained, url, ["measured"])
        serve(trained, "measured", broken(2000, 54), datetime.now(UTC))
        monitoring_loop.Looker(trained).look()
    types = [json.loads(body)["type"] for _, body in got]
    assert types and set(types) == {"fewpass.alert.fired"}
    assert monitoring_loop.MONITOR["columns_alerting"].labels("measured")._value.get() >= 1
    product.delete_webhook(trained, made["id"])


def test_compaction_changes_no_count_even_if_it_was_interrupted(trained):
    day = datetime(2026, 1, 5, tzinfo=UTC)
    for hour in range(4):
        serve(trained, "compacted", problems.rows(100, 60 + hour), day + timedelta(hours=hour))
    before = product.monitoring_window_report(trained, "compacted", window="24h", until=day + timedelta(days=1))
    files = MonitoringFiles(trained.layout.root, "compacted")
    kept = {one.path: one.path.read_bytes() for one in files.slices(1)}
    assert compact_hourly_counts(files, day + timedelta(days=2)) == 4
    assert len(files.slices(1)) == 1
    assert product.monitoring_window_report(trained, "compacted", window="24h", until=day + timedelta(days=1)) == before
    for path, content in kept.items():  # as if it had been killed before it removed them
        path.write_bytes(content)
    assert product.monitoring_window_report(trained, "compacted", window="24h", until=day + timedelta(days=1)) == before
    assert compact_hourly_counts(files, day + timedelta(days=2)) == 4
    assert files.remove_before(day + timedelta(days=400), day) == 1 and files.slices(1) == ()


def test_closed_hours_of_a_process_that_lives_are_compacted_too(trained):
    day = datetime(2026, 1, 5, tzinfo=UTC)
    serve(trained, "lively", problems.rows(20, 60), day)
    files = MonitoringFiles(trained.layout.root, "lively")
    counts, layout = files.slices(1)[0].counts(), files.slices(1)[0].layout
    process = Alive(trained.layout.root, "lives")
    for hour, is_closed in ((1, True), (2, True), (3, False)):
        start = day + timedelta(hours=hour)
        files.write_slice(1, start, "lives", counts, layout, covered_until=start, is_closed=is_closed)
    assert compact_hourly_counts(files, day + timedelta(days=2)) == 3
    assert [one.is_closed for one in files.slices(1)].count(False) == 1
    process.close()


def test_training_keeps_counts_of_the_rows_it_was_measured_on(trained):
    serve(trained, "measured", problems.rows(2000, 55), datetime.now(UTC))
    found = product.monitoring_window_report(trained, "measured")
    kinds = {one["kind"] for one in found["alarms"]}
    assert found["reference"]["name"] == "training" and "confidence" in kinds, "half of the rows are broken"


def test_a_forgotten_prediction_leaves_no_count(trained):
    choice = {"mode": "rows", "denied": ["road"]}
    product.set_monitoring_choice(trained, "forgetful", choice)
    table, keys = problems.rows(50, 70), [f"f{row}" for row in range(50)]
    at = datetime(2026, 2, 3, 4, 5, tzinfo=UTC)

    def counts():
        return Watching(trained, "forgetful").window(at - timedelta(hours=5), at + timedelta(hours=5)).counts

    serve(trained, "forgetful", table.slice(0, 40), at, keys[:40], choice)
    before = counts()
    serve(trained, "forgetful", table.slice(40), at, keys[40:], choice)
    assert counts().n_rows == 50
    product.add_prediction_labels(trained, "forgetful", [Label("key", "f45", "no")])
    done = product.forget_predictions(trained, "forgetful", keys[40:])
    assert done == {"predictions": 10, "labels": 1, "subtracted": 10}
    after = counts()
    for name in before.watched.blocks:
        if name not in ("rows", "statuses"):
            np.testing.assert_array_equal(after.block(name), before.block(name), err_msg=name)
    assert after.n_rows == 40
    assert product.forget_predictions(trained, "forgetful", keys[40:])["predictions"] == 0


def test_a_deleted_model_leaves_nothing_behind(trained):
    serve(trained, "deleted", problems.rows(10, 71), datetime.now(UTC), [f"d{row}" for row in range(10)])
    folder = MonitoringFiles(trained.layout.root, "deleted").folder
    assert folder.is_dir()
    product.delete_model(trained, "deleted")
    assert not folder.exists()


def test_the_commands_say_the_same(trained, tmp_path):
    where = {"workspace": trained.settings.workspace}
    pq.write_table(pa.table({"order": ["k0", "nobody"], "income": ["yes", "no"]}), tmp_path / "labels.parquet")
    command = ["labels", "labelled", tmp_path / "labels.parquet", "--key", "order", "--label", "income"]
    assert "2 labels: 1 matched, 1 wait" in fewpass(*command, **where).stdout
    assert "'nothing' is not in the table" in fewpass(*command[:-1], "nothing", **where, code=1).stderr
    assert json.loads(fewpass("monitor", "labelled", "--json", **where).stdout)["rows"]["served"] >= 300
    assert "rows against training" in fewpass("monitor", "labelled", **where).stdout
    assert "size" in fewpass("alerts", **where).stdout
    assert fewpass("webhooks", "list", "--json", **where).stdout.strip() == "[]"
    assert "is not a public address" in fewpass(
        "webhooks", "add", "http://localhost:1/", **where, code=1
    ).stderr.replace("\n", " ")


def test_a_champion_that_labels_find_worse_goes_back(trained, tmp_path):
    table = problems.rows(4000, 80)
    wrong = table.set_column(
        table.num_columns - 1, "class", table["class"].take(np.random.default_rng(0).permutation(4000))
    )
    schema = map_model_version(product.find_version(trained, "labelled")).schema
    cuts = {a.name: {"cuts": list(a.cuts)} for a in schema.attributes if a.kind == "numeric"}
    for number, rows in enumerate((table, wrong)):
        pq.write_table(rows, tmp_path / f"{number}.parquet")
        asked = {"uris": [str(tmp_path / f"{number}.parquet")], "target": "class", "learner": "nb", "columns": cuts}
        product.train_model_version(trained, TrainRequest(**asked, model="back", aliases=["champion"]))
    keys, now = [f"b{row}" for row in range(300)], datetime.now(UTC)
    served = problems.rows(300, 81)
    serve(trained, "back", served, now, keys, {"mode": "rows"})
    end = now + timedelta(minutes=1)
    assert "0 labelled rows are fewer" in compare_with_previous(trained, "back", 100, end)["reason"]
    truth = served["class"].to_pylist()
    product.add_prediction_labels(trained, "back", [Label("key", key, y) for key, y in zip(keys, truth, strict=True)])
    done = compare_with_previous(trained, "back", 100, end)
    assert done["is_rolled_back"], done["reason"]
    assert product.find_version(trained, "back@champion").version == 1
    assert "worse with probability" in product.alias_history(trained, "back").items[0].reason
    assert compare_with_previous(trained, "labelled", 100)["reason"] == "there is no version before the champion"
