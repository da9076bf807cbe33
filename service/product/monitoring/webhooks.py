"""Webhooks for alerts: signing, sending and recording deliveries."""

import base64
import hashlib
import hmac
import json
import random
import secrets
import shlex
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast, get_args
from urllib.parse import urlsplit

from service.product.audit import record_audit_act
from service.product.monitoring.alerting import KEPT
from service.product.monitoring.private_networks import private_network_reason
from service.requests.event_kinds import EventKind
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.telemetry import TRACEPARENT
from service.workspace import Workspace
from storage.control.audit import last_audit_line_id
from storage.control.tables import utc_now
from storage.errors import NotFound
from storage.monitoring.alert_records import (
    AlertRecord,
    DeliveryRecord,
    WebhookRecord,
    edit_alert_records,
    read_alert_records,
)

ATTEMPTS, FIRST_WAIT_S, LONGEST_WAIT_S, TIMEOUT_S = 5, 0.5, 30.0, 10.0
PREFIX = "whsec_"


def create_webhook(
    workspace: Workspace, url: str, models: list[str], secret: str | None = None, events: Sequence[str] = ()
) -> JSONObject:
    """Send alerts and events of models (by default all) to a URL; only the answer holds the secret.

    Parameters
    ----------
    events : sequence of str
        Kinds of events; by default alerts only. Events that happened before are not sent.

    Raises
    ------
    InvalidRequest
        If the URL is not one, or leads to an address that is not allowed; if there is no such event.
    """
    if unknown := set(events) - set(get_args(EventKind)):
        raise InvalidRequest(
            f"Unknown event {min(unknown)!r}; the events are {', '.join(get_args(EventKind))}.", field="events"
        )
    if secret is not None and (not secret.startswith(PREFIX) or len(_key(secret)) < 16):
        raise InvalidRequest(
            f"A secret is {PREFIX} and at least 16 bytes in base64; leave it out to get one.", field="secret"
        )
    check_webhook_url(workspace, url)
    webhook: WebhookRecord = {
        "id": secrets.token_hex(8),
        "url": url,
        "secret": secret or PREFIX + base64.b64encode(secrets.token_bytes(24)).decode(),
        "models": models,
        "created_at": utc_now().isoformat(),
        "events": sorted(set(events)) or ["alert"],
        "sent_until": _last_act(workspace),
    }
    with edit_alert_records(workspace.layout.root, "webhooks") as webhooks:
        webhooks[webhook["id"]] = dict(webhook)
    record_audit_act(workspace, "webhook created", webhook["id"], models=models)
    return dict(webhook)


def _last_act(workspace: Workspace) -> int:
    with workspace.control.reading() as connection:
        return last_audit_line_id(connection)


def list_webhooks(workspace: Workspace) -> list[JSONObject]:
    """List the webhooks, without their secrets."""
    webhooks = read_alert_records(workspace.layout.root, "webhooks").values()
    return [
        {name: value for name, value in webhook.items() if name not in {"secret", "sent_until"}}
        | {"events": webhook.get("events", ["alert"])}
        for webhook in webhooks
    ]


def delete_webhook(workspace: Workspace, webhook: str) -> None:
    """Delete a webhook (NotFound)."""
    _webhook(workspace, webhook)
    with edit_alert_records(workspace.layout.root, "webhooks") as webhooks:
        webhooks.pop(webhook, None)
    record_audit_act(workspace, "webhook deleted", webhook)


def list_webhook_deliveries(workspace: Workspace, webhook: str | None = None) -> list[DeliveryRecord]:
    """List the deliveries, newest first; the last thousand are kept. NotFound if there is neither such a webhook nor a
    delivery of it.
    """
    deliveries = [
        cast("DeliveryRecord", one) for one in read_alert_records(workspace.layout.root, "deliveries").values()
    ]
    chosen = [one for one in deliveries if webhook is None or one["webhook"] == webhook]
    if webhook is not None and not chosen:
        _webhook(workspace, webhook)
    return sorted(chosen, key=lambda one: one["at"], reverse=True)


def test_webhook(workspace: Workspace, webhook: str) -> DeliveryRecord:
    """Send a test event and return its delivery (NotFound)."""
    return deliver_webhook_event(
        workspace, _webhook(workspace, webhook), "fewpass.test", None, {"message": "This is a test."}
    )


def notify_alert_webhooks(workspace: Workspace, change: str, alert: AlertRecord) -> list[DeliveryRecord]:
    """Notify every webhook of the model that an alert fired or was resolved; muted alerts are not sent."""
    if alert["is_muted"]:
        return []
    webhooks = [cast("WebhookRecord", one) for one in read_alert_records(workspace.layout.root, "webhooks").values()]
    listening = [
        one
        for one in webhooks
        if "alert" in one.get("events", ["alert"]) and (not one["models"] or alert["model"] in one["models"])
    ]
    return [
        deliver_webhook_event(workspace, one, f"fewpass.alert.{change}", alert["id"], dict(alert)) for one in listening
    ]


def deliver_webhook_event(
    workspace: Workspace, webhook: WebhookRecord, kind: str, cause: str | None, content: Mapping[str, object]
) -> DeliveryRecord:
    """Send one event, at most five times, and store the outcome in the log of deliveries.

    `cause` is the id of the alert, or the hash of the act, that the event reports. The event's id follows from it, so that
    receivers recognise an event that they get twice.
    """
    event_id = hashlib.sha256(f"{webhook['id']} {kind} {cause or secrets.token_hex(8)}".encode()).hexdigest()[:32]
    head = {"specversion": "1.0", "id": event_id, "source": "/fewpass", "type": kind, "time": utc_now().isoformat()}
    body = json.dumps(head | {"datacontenttype": "application/json", "data": content}).encode()
    attempts, status, error = _post(workspace, webhook, event_id, body)
    delivery: DeliveryRecord = {
        "id": event_id,
        "webhook": webhook["id"],
        "type": kind,
        "alert": cause if kind.startswith("fewpass.alert.") else None,
        "at": utc_now().isoformat(),
        "attempts": attempts,
        "status": status,
        "error": error,
    }
    with edit_alert_records(workspace.layout.root, "deliveries") as deliveries:
        deliveries[f"{delivery['at']} {event_id}"] = dict(delivery)
        for key in sorted(deliveries)[:-KEPT]:
            del deliveries[key]
    return delivery


def webhook_signature(secret: str, event_id: str, timestamp: str, body: bytes) -> str:
    """Return the signature of https://www.standardwebhooks.com, version 1: HMAC-SHA256 of id, time and body."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def check_webhook_url(workspace: Workspace, url: str) -> str:
    """Refuse a URL that is not http(s) or leads to loopback, private or link-local networks (where clouds keep
    secrets).

    `FEWPASS_WEBHOOK_HOSTS` names hosts that are allowed all the same. Returns the address to connect to: the checked
    address is the one called. Raises InvalidRequest.
    """
    parts = urlsplit(url if url.isprintable() else "")  # which overlooks line breaks, and httpx refuses them
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        raise InvalidRequest(f"{url!r} must be an http or https URL with a host and without a user name.", field="url")
    host = parts.hostname
    try:
        port = parts.port if parts.port is not None else (443 if parts.scheme == "https" else 80)
    except ValueError:
        port = 0
    if port == 0:
        raise InvalidRequest(f"The port of {url!r} must be from 1 to 65535.", field="url")
    try:
        addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"The host of {url!r} is not found ({error}).", field="url") from error
    if host in workspace.settings.webhook_hosts:
        return addresses[0]
    for address in addresses:
        if (reason := private_network_reason(address)) is not None:
            raise InvalidRequest(
                f"{host!r} resolves to {address}, which is not a public address: {reason}. To allow it, set "
                f"FEWPASS_WEBHOOK_HOSTS={shlex.quote(json.dumps([host]))}.",
                field="url",
            )
    return addresses[0]


def _post(
    workspace: Workspace, webhook: WebhookRecord, event_id: str, body: bytes
) -> tuple[int, int | None, str | None]:
    """Post the event; return the number of attempts, the last status, and the error."""
    import httpx  # a tenth of a second to import, which a command that sends nothing need not wait for

    def once() -> tuple[int | None, str | None]:
        try:
            address = check_webhook_url(workspace, webhook["url"])
            return _post_once(webhook, event_id, body, address)
        except InvalidRequest as error:
            return None, str(error)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return None, f"{type(error).__name__}: {error}"

    attempt, (status, error) = 1, once()
    while error is not None and attempt < ATTEMPTS:
        time.sleep(random.uniform(0, min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S)))
        attempt, (status, error) = attempt + 1, once()
    return attempt, status, error


def _post_once(webhook: WebhookRecord, event_id: str, body: bytes, address: str) -> tuple[int | None, str | None]:
    import httpx

    timestamp = str(int(datetime.now(UTC).timestamp()))
    url = httpx.URL(webhook["url"])
    headers = ({"traceparent": TRACEPARENT.get()} if TRACEPARENT.get() else {}) | {
        "content-type": "application/cloudevents+json",
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": webhook_signature(webhook["secret"], event_id, timestamp, body),
        "host": url.netloc.decode("ascii"),
    }
    # The address that was looked at is connected to, whatever the name means a moment later; no redirect is followed.
    target = url.copy_with(host=address)
    with httpx.Client(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False) as client:
        extensions = {"sni_hostname": url.host}
        # What a receiver says beside its status is not read: it might have no end.
        with client.stream("POST", target, content=body, headers=headers, extensions=extensions) as answer:
            pass
    if answer.is_success:
        return answer.status_code, None
    return answer.status_code, f"the receiver answered {answer.status_code}"


def _key(secret: str) -> bytes:
    try:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        return b""


def _webhook(workspace: Workspace, webhook: str) -> WebhookRecord:
    webhooks = read_alert_records(workspace.layout.root, "webhooks")
    if webhook not in webhooks:
        raise NotFound("webhook", webhook)
    return cast("WebhookRecord", webhooks[webhook])
