"""Labels, alerts and webhooks on files that a process has written, and a receiver on loopback."""

import base64
import contextlib
import hashlib
import hmac
import json
from datetime import UTC, datetime, timedelta
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.monitoring.served_counts import BatchRows
from learners.schema.encoding.encode import encode
from service import product
from service.product import monitoring_loop
from service.product.monitoring import alerting, monitoring_states, webhooks
from service.product.monitoring.predictions import Label
from service.product.monitoring.windows import Watching
from service.product.monitoring_loop import compare_with_previous
from service.requests.problems import InvalidRequest
from service.serving.count_queue import predictions_table
from service.serving.monitoring_counts import Observer
from service.serving.predictor import map_model_version
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import NotFound
from storage.monitoring.monitoring_files import Alive, MonitoringFiles, compact_hourly_counts
from tests.monitoring import problems
from tests.service.asking import learned
from tests.support.cli import fewpass
from tests.support.product import receiver
from tests.web import Quiet, serving

YESTERDAY = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alerts")
    pq.write_table(problems.rows(8000, 1), folder / "train.parquet")
    settings = Settings(workspace=folder / "workspace", webhook_hosts=("127.0.0.1",))
    with Workspace(settings) as opened:
        for model in ("labelled", "alerting", "compacted", "measured", "forgetful", "deleted", "lively"):
            learned(opened, folder / "train.parquet", model, "kdb", holdout=0.2, parameters={"k": 1})
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


@contextlib.contextmanager
def observed(workspace, table, choice=None):
    """A served model that is watched, the rows of a table as it reads them, and what counts them."""
    observer = Observer(workspace.settings, lambda _: choice or {})
    served = map_model_version(product.find_version(workspace, "labelled"), observer)
    yield served, encode(table, served.schema, with_class=False), observer
    served.watch.logged.clear()
    served.watch.hours.clear()
    observer.close()


def counted_and_served(served):
    (counts,) = served.watch.hours.values()
    counted, n_served, _ = counts.block("rows").tolist()
    return counts, counted, n_served


def test_of_many_batches_some_are_counted_and_all_are_numbered(trained):
    """Beyond the cap the rows of a few batches are counted; that more were served is known exactly."""
    table = problems.rows(64, 51)
    with observed(trained, table, {"mode": "rows"}) as (served, chunk, observer):
        p = served.predict_proba(chunk)
        for number in range(400):
            keys = [served.watch.key_of("key", f"many {number}")] * 64 if number < 3 else None
            served.answered(chunk, p, BatchRows(table), keys)
        observer.fold(one_in=64)
        counts, counted, n_served = counted_and_served(served)
        assert n_served == 400 * 64 and 0 < counted < 400 * 64 / 16
        assert counts.block("rates")[6] == counted
        logged = predictions_table(served.watch.logged)
        assert len(logged) == n_served and logged["is_counted"].to_numpy().sum() == counted
        assert set(logged["key"][:192].to_pylist()) == {served.watch.key_of("key", f"many {n}") for n in range(3)}
        assert logged["codes"][5].as_py() == np.ascontiguousarray(chunk.x[:, 5]).tobytes()
        np.testing.assert_array_equal(np.stack(logged["p"][:64].to_pylist()), p)


def test_a_single_large_request_is_counted_in_part(trained):
    """Beyond the cap, rows of it: whole requests are chosen only where there are many."""
    table = problems.rows(3000, 52)
    with observed(trained, table) as (served, chunk, observer):
        for n_requests in (1, 3):
            for _ in range(n_requests):
                served.answered(chunk, served.predict_proba(chunk), BatchRows(table), None)
            observer.fold(one_in=8)
            _, counted, n_served = counted_and_served(served)
            assert n_served == 3000 * n_requests and abs(counted / n_served - 1 / 8) < 0.03
            served.watch.hours.clear()


def broken(n_rows, seed):
    table = problems.rows(n_rows, seed)
    return table.set_column(0, "size", pa.array(table["size"].to_numpy() * 100))


def labels_of(keys, classes):
    return [Label("key", key, each) for key, each in zip(keys, classes, strict=False)]


def test_labels_are_counted_once_and_the_last_one_counts(trained):
    table = problems.rows(300, 50)
    keys = [f"k{row}" for row in range(300)]
    p = serve(trained, "labelled", table, datetime.now(UTC), keys)
    add = partial(product.add_prediction_labels, trained, "labelled")
    truth = table["class"].to_pylist()[:200]
    wrong = ["yes" if y == "no" else "no" for y in truth]
    assert add(labels_of(keys, wrong)) == {"accepted": 200, "matched": 200, "pending": 0}
    for _ in range(2):
        add(labels_of(keys, truth))
    assert add([Label("key", "unknown", "no")])["pending"] == 1
    found = product.monitoring_performance(trained, "labelled")
    y = np.array([["no", "yes"].index(name) for name in truth])
    own = p[:200]
    assert found["labelled"] == 200 and found["coverage"] == pytest.approx(200 / 300)
    assert found["accuracy"] == pytest.approx((own.argmax(axis=1) == y).mean())
    assert found["log_loss"] == pytest.approx(-np.log(own[np.arange(200), y]).mean())
    *before, last = found["over_time"]
    assert len(before) == 6 and {each["labelled"] for each in before} == {0} and before[0]["ece"] is None
    names = ("labelled", "accuracy", "expected_accuracy", "ece")
    assert last == {"since": last["since"]} | {name: found[name] for name in names}
    with pytest.raises(InvalidRequest, match="steps; the limit"):
        product.monitoring_performance(trained, "labelled", window="9000h", step="1h")
    with pytest.raises(InvalidRequest, match="'maybe' is not a class"):
        add([Label("key", "k0", "maybe")])


def test_keys_are_not_written(trained):
    serve(trained, "labelled", problems.rows(1, 51), datetime.now(UTC), ["secret-customer-17"])
    for path in MonitoringFiles(trained.layout.root, "labelled").folder.rglob("*"):
        assert path.is_dir() or b"secret-customer-17" not in path.read_bytes()


def test_an_alarm_that_lasts_becomes_one_alert_and_ends(trained):
    def update(minutes):
        """What changes so many minutes after noon of yesterday."""
        return alerting.update_model_alerts(trained, "alerting", YESTERDAY + timedelta(minutes=minutes))

    product.set_alert_rule(trained, "alerting", {"window": "2h"})
    serve(trained, "alerting", broken(2000, 52), YESTERDAY)
    assert update(30) == [], "once is not lasting"
    assert ("fired", "out_of_range size") in [(change, one["subject"]) for change, one in update(61)]
    assert update(62) == []
    opened = product.list_alerts(trained, "alerting", is_open=True)
    assert product.acknowledge_alert(trained, opened[0]["id"])["acknowledged_at"]
    with pytest.raises(NotFound, match="no alert 'none'"):
        product.acknowledge_alert(trained, "none")
    assert product.mute_alert(trained, opened[0]["id"])["is_muted"]
    assert not product.resolve_alert(trained, opened[0]["id"])["is_sent"]
    assert [(change, one["id"]) for change, one in update(63)] == [("resolved", opened[0]["id"])], "once, and not fired"
    assert update(64) == []
    serve(trained, "alerting", broken(2000, 54), YESTERDAY + timedelta(minutes=61))
    ((_, refired),) = update(125)
    assert refired["subject"] == opened[0]["subject"] and refired["is_muted"], "it has lasted anew, and stays muted"
    assert webhooks.notify_alert_webhooks(trained, "fired", refired) == []
    assert not product.mute_alert(trained, refired["id"], is_muted=False)["is_muted"]
    serve(trained, "alerting", problems.rows(2000, 53), YESTERDAY + timedelta(hours=5))
    assert {change for change, _ in update(310)} == {"resolved"}
    assert product.list_alerts(trained, "alerting", is_open=True) == []
    lines = product.list_audit_lines(trained, 10).items
    acts = [line.action for line in reversed(lines) if line.action.startswith("alert ") and "rule" not in line.action]
    assert acts == ["alert acknowledged", "alert muted", "alert resolved", "alert unmuted"]


@contextlib.contextmanager
def webhook(workspace, url, models=()):
    hook = product.create_webhook(workspace, url, list(models))
    yield hook
    product.delete_webhook(workspace, hook["id"])


@pytest.fixture
def quickly(monkeypatch):
    """What failed is tried again at once."""
    monkeypatch.setattr(webhooks, "FIRST_WAIT_S", 0.01)


def test_webhooks_are_signed_and_tried_again(trained, quickly):
    with receiver(failures=2) as (url, got), webhook(trained, url, ["alerting"]) as made:
        told = product.test_webhook(trained, made["id"])
        assert all("secret" not in one for one in product.list_webhooks(trained))
        assert product.list_webhook_deliveries(trained, made["id"])[0]["id"] == told["id"]
    assert (told["attempts"], told["status"], told["error"]) == (3, 204, None)
    headers, body = got[-1]
    key = base64.b64decode(made["secret"].removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    event = json.loads(body)
    assert event["specversion"] == "1.0" and event["type"] == "fewpass.test"


def test_a_name_that_means_another_address_a_moment_later_leads_nowhere(trained, quickly, monkeypatch):
    """Rebinding: what was looked at is connected to, and every attempt looks again."""
    answers = iter(["93.184.216.34", *["169.254.169.254"] * 9])
    found = lambda *_, **__: [(2, 1, 6, "", (next(answers), 80))]  # noqa: E731
    monkeypatch.setattr(webhooks.socket, "getaddrinfo", found)
    with webhook(trained, "http://rebinding.example/") as made:
        told = product.test_webhook(trained, made["id"])
    assert told["status"] is None and "169.254.169.254, which is not a public address: link-local" in told["error"]


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


def test_redirects_are_not_followed_and_answers_are_not_read(trained, quickly):
    with receiver() as (Leading.elsewhere, got), serving(Leading) as address:
        for path, status, error in (("lead", 307, "the receiver answered 307"), ("endless", 200, None)):
            with webhook(trained, f"http://{address}/{path}") as made:
                told = product.test_webhook(trained, made["id"])
            assert (told["status"], told["error"]) == (status, error)
    assert got == []


REFUSED = dict.fromkeys((f"http://127.0.0.1:{port}/" for port in ("0", "00", "65536", "x")), "must be from 1 to 65535")
INNER = ("http://localhost:1/x", "http://169.254.169.254/latest", "http://10.0.0.1/", "http://[::1]:80/")
REFUSED |= dict.fromkeys(INNER, "is not a public address|is not found")
NO_URLS = (
    "http://93.184.216.34/\r\nX: y",
    "http://93.184.216.34/\t",
    "ftp://example.com/",
    "file:///etc/passwd",
    "http://user@example.com/",
    "nothing",
)
REFUSED |= dict.fromkeys(NO_URLS, "must be an http or https URL")


@pytest.mark.parametrize("url", REFUSED)
def test_where_no_webhook_may_lead(trained, url):
    with pytest.raises(InvalidRequest, match=REFUSED[url]):
        product.create_webhook(trained, url, [])


def test_a_look_sends_alerts_and_sets_series(trained, quickly, monkeypatch):
    monkeypatch.setattr(alerting, "PERSISTENCE", 1)
    with receiver() as (url, got), webhook(trained, url, ["measured"]):
        serve(trained, "measured", broken(2000, 54), datetime.now(UTC))
        monitoring_loop.Looker(trained).look()
    types = [json.loads(body)["type"] for _, body in got]
    assert types and set(types) == {"fewpass.alert.fired"}
    assert monitoring_states.MONITOR["columns_alerting"].labels("measured")._value.get() >= 1


def test_compaction_changes_no_count_even_if_it_was_interrupted(trained):
    day = datetime(2026, 1, 5, tzinfo=UTC)

    def report():
        return product.monitoring_window_report(trained, "compacted", window="24h", until=day + timedelta(days=1))

    for hour in range(4):
        serve(trained, "compacted", problems.rows(100, 60 + hour), day + timedelta(hours=hour))
    before, files = report(), MonitoringFiles(trained.layout.root, "compacted")
    kept = {one.path: one.path.read_bytes() for one in files.slices(1)}
    assert compact_hourly_counts(files, day + timedelta(days=2)) == 4
    assert len(files.slices(1)) == 1 and report() == before
    for path, content in kept.items():  # as if it had been killed before it removed them
        path.write_bytes(content)
    assert report() == before
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
    webhook_id = product.create_webhook(trained, "http://127.0.0.1:9/", ["labelled"])["id"]  # nobody listens there
    listed = " ".join(fewpass("webhooks", "list", **where).stdout.split())
    assert "models labelled" in listed and "events alert" in listed  # narrow terminals show rows one after the other
    failed = fewpass("webhooks", "test", webhook_id, **where, code=1).stdout
    assert "Not delivered after 5 attempts" in failed
    fewpass("webhooks", "delete", webhook_id, **where)
    refused = fewpass("webhooks", "add", "http://localhost:1/", **where, code=1).stderr
    assert "is not a public address" in refused.replace("\n", " ")


def test_a_champion_that_labels_find_worse_goes_back(trained, tmp_path):
    table, label = problems.rows(4000, 80), np.random.default_rng(0).permutation(4000)
    wrong = table.set_column(table.num_columns - 1, "class", table["class"].take(label))
    schema = map_model_version(product.find_version(trained, "labelled")).schema
    cuts = {a.name: {"cuts": list(a.cuts)} for a in schema.attributes if a.kind == "numeric"}
    for number, rows in enumerate((table, wrong)):
        pq.write_table(rows, tmp_path / f"{number}.parquet")
        learned(trained, tmp_path / f"{number}.parquet", "back", columns=cuts, aliases=["champion"])
    keys, now = [f"b{row}" for row in range(300)], datetime.now(UTC)
    served = problems.rows(300, 81)
    serve(trained, "back", served, now, keys, {"mode": "rows"})
    end = now + timedelta(minutes=1)
    assert "0 labelled rows are fewer" in compare_with_previous(trained, "back", 100, end)["reason"]
    product.add_prediction_labels(trained, "back", labels_of(keys, served["class"].to_pylist()))
    done = compare_with_previous(trained, "back", 100, end)
    assert done["is_rolled_back"], done["reason"]
    assert product.find_version(trained, "back@champion").version == 1
    assert "worse with probability" in product.alias_history(trained, "back").items[0].reason
    assert compare_with_previous(trained, "labelled", 100)["reason"] == "the champion has no previous version"
