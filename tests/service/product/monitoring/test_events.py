"""Events of models and jobs at a receiver on loopback: sent once, in order, chosen by webhook; none of the past, none lost."""

import json
from typing import get_args

import pytest

from service import product
from service.product.monitoring import events, webhooks
from service.product.monitoring.events import send_pending_events
from service.requests.event_kinds import EventKind
from service.requests.problems import InvalidRequest
from service.requests.requests import ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.monitoring.alert_records import edit_alert_records
from tests.support.product import receiver


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events")
    (folder / "rows.csv").write_text("a,who,y\n" + "".join(f"{i % 3},p{i % 40},{'yn'[i % 2]}\n" for i in range(400)))
    with Workspace(Settings(workspace=folder / "workspace", webhook_hosts=("127.0.0.1",))) as opened:
        yield opened


@pytest.fixture(autouse=True)
def without_webhooks(workspace, monkeypatch):
    monkeypatch.setattr(webhooks, "FIRST_WAIT_S", 0.001)
    yield
    with edit_alert_records(workspace.layout.root, "webhooks") as stored:
        stored.clear()


def train(workspace, model, **more):
    uri = str(workspace.layout.root.parent / "rows.csv")
    request = TrainRequest(uris=[uri], target="y", learner="nb", model=model, holdout=0, **more)
    return product.train_model_version(workspace, request)


def received(got):
    bodies = [json.loads(body) for _, body in got]
    return [(one["type"], one["data"]["subject"]) for one in bodies]


def test_a_webhook_gets_the_events_that_it_chose_once_and_in_order(workspace):
    train(workspace, "past")
    with receiver() as (url, got), receiver() as (alerts_url, alerts):
        kinds = ["version.published", "alias.moved", "rows.forgotten"]
        product.create_webhook(workspace, url, [], events=kinds)
        product.create_webhook(workspace, alerts_url, [])
        train(workspace, "seen", aliases=["champion"])
        product.set_alias(workspace, "seen", "eu", 1, "asked for")
        product.forget_rows(workspace, ForgetRequest(model="seen", where="who = 'p7'"))
        assert send_pending_events(workspace) == len(got)
        assert send_pending_events(workspace) == 0, "each once"
    assert received(got) == [
        ("fewpass.version.published", "seen@1"),
        ("fewpass.alias.moved", "seen@champion"),
        ("fewpass.alias.moved", "seen@eu"),
        ("fewpass.version.published", "seen@2"),
        ("fewpass.alias.moved", "seen@champion"),
        ("fewpass.alias.moved", "seen@eu"),
        ("fewpass.rows.forgotten", "seen"),
    ]
    assert not alerts, "a webhook without events gets alerts alone"
    assert b"p7" not in b"".join(body for _, body in got), "no event holds a person's value"
    moved = json.loads(got[2][1])
    assert moved["specversion"] == "1.0" and moved["data"]["version"] == 1 and moved["data"]["reason"] == "asked for"


def test_a_webhook_of_some_models_gets_theirs(workspace):
    with receiver() as (url, got):
        product.create_webhook(workspace, url, ["mine"], events=["version.published"])
        train(workspace, "mine")
        train(workspace, "other")
        send_pending_events(workspace)
    assert received(got) == [("fewpass.version.published", "mine@1")]


def test_a_receiver_that_fails_misses_one_event_and_gets_the_next(workspace):
    with receiver(failures=webhooks.ATTEMPTS) as (url, got):
        hook = product.create_webhook(workspace, url, [], events=["alias.moved"])
        train(workspace, "failing", aliases=["champion"])
        product.set_alias(workspace, "failing", "eu", 1)
        assert send_pending_events(workspace) == 1, "the others wait, so that one receiver holds up nobody"
        assert send_pending_events(workspace) == 1
    assert received(got[-1:]) == [("fewpass.alias.moved", "failing@eu")]
    log = product.list_webhook_deliveries(workspace, hook["id"])
    assert [(one["type"], one["status"]) for one in log] == [("fewpass.alias.moved", 204), ("fewpass.alias.moved", 500)]
    assert all(one["alert"] is None for one in log)


def test_every_kind_of_event_has_an_act(workspace):
    assert {"alert", *events.ACTIONS.values()} == set(get_args(EventKind))


def test_an_event_that_does_not_exist_is_refused(workspace):
    with pytest.raises(InvalidRequest, match=r"Unknown event 'version'; the events are alert, version.published"):
        product.create_webhook(workspace, "http://no-such-host.invalid/", [], events=["version"])


def test_webhooks_of_release_0_2_0_get_alerts(workspace):
    old = {"id": "old", "url": "http://127.0.0.1:9/", "secret": "whsec_AAAA", "models": [], "created_at": "2026-11-28"}
    with edit_alert_records(workspace.layout.root, "webhooks") as stored:
        stored["old"] = old
    assert send_pending_events(workspace) == 0
    (shown,) = product.list_webhooks(workspace)
    assert shown["events"] == ["alert"] and "secret" not in shown
