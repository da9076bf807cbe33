"""Alarms that last become alerts: told once, kept, acknowledged, resolved when they are over; and webhooks, which hear of them."""

import base64
import hashlib
import hmac
import json
import secrets
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import cast
from urllib.parse import urlsplit

from learners.monitoring.drift_tests import Limits
from service.product.monitoring.private_networks import private_network_reason
from service.product.monitoring.windows import monitoring_window_report
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.telemetry import TRACEPARENT
from service.workspace import Workspace
from storage.control.tables import utc_now
from storage.errors import NotFound
from storage.monitoring.alert_records import (
    AlertRecord,
    DeliveryRecord,
    RuleRecord,
    WebhookRecord,
    edit_alert_records,
    read_alert_records,
)

PERSISTENCE, LOOKS = 2, 3  # of the last three looks, two must agree
KEPT = 1000  # closed alerts, and deliveries
ATTEMPTS, FIRST_WAIT_S, LONGEST_WAIT_S, TIMEOUT_S = 5, 0.5, 30.0, 10.0
PREFIX = "whsec_"


def alert_rule(workspace: Workspace, name: str) -> RuleRecord:
    """When a model alerts: as somebody said, or else the defaults (NotFound)."""
    version = find_version(workspace, name)
    stored = read_alert_records(workspace.layout.root, "rules").get(version.name, {})
    return cast("RuleRecord", {**default_alert_rule(), **stored, "model": version.name})


def default_alert_rule() -> RuleRecord:
    """A day against training, sure and large enough, in two of three looks."""
    limits = Limits()
    return {
        "window": "24h",
        "against": "training",
        "q": limits.q,
        "nats": limits.nats,
        "points": limits.points,
        "is_muted": False,
        "rollback_labels": None,
    }


def set_alert_rule(workspace: Workspace, name: str, rule: RuleRecord) -> RuleRecord:
    """Say when a model alerts; InvalidRequest if the window or the reference cannot be read, NotFound."""
    version = find_version(workspace, name)
    merged = cast("RuleRecord", {**alert_rule(workspace, version.name), **rule})
    # Looked at once now, so that what can never be read is refused here and not every hour.
    monitoring_window_report(workspace, version.name, window=merged["window"], against=merged["against"])
    with edit_alert_records(workspace.layout.root, "rules") as rules:
        rules[version.name] = dict(merged)
    return merged


def list_alerts(workspace: Workspace, model: str | None = None, *, is_open: bool | None = None) -> list[AlertRecord]:
    """The alerts, the newest first."""
    alerts = cast("Iterable[AlertRecord]", read_alert_records(workspace.layout.root, "alerts").values())
    chosen = [
        one
        for one in alerts
        if (model is None or one["model"] == model) and (is_open is None or (one["resolved_at"] is None) == is_open)
    ]
    return sorted(chosen, key=lambda one: one["fired_at"], reverse=True)


def acknowledge_alert(workspace: Workspace, alert_id: str) -> AlertRecord:
    """Note that somebody has seen an alert (NotFound)."""
    with _changing(workspace, alert_id) as alert:
        alert["acknowledged_at"] = alert["acknowledged_at"] or utc_now().isoformat()
    return alert


def mute_alert(workspace: Workspace, alert_id: str, *, is_muted: bool = True) -> AlertRecord:
    """Send no webhook of this alert's end, nor when the model's same alarm fires again; or send them again (NotFound)."""
    with _changing(workspace, alert_id) as alert:
        alert["muted_at"] = (alert.get("muted_at") or utc_now().isoformat()) if is_muted else None
        alert["is_muted"] = is_muted
    return alert


def resolve_alert(workspace: Workspace, alert_id: str) -> AlertRecord:
    """Close an alert (NotFound); webhooks hear of it after the next look. An alarm that goes on must last anew to fire again."""
    with _changing(workspace, alert_id) as alert:
        if alert["resolved_at"] is None:
            alert["resolved_at"], alert["is_sent"] = utc_now().isoformat(), False
            with edit_alert_records(workspace.layout.root, "looks") as looks:
                own = looks.get(f"{alert['model']}@{alert['version']}", {"last": []})
                own["last"] = [[subject for subject in seen if subject != alert["subject"]] for seen in own["last"]]
    return alert


@contextmanager
def _changing(workspace: Workspace, alert_id: str) -> Iterator[AlertRecord]:
    with edit_alert_records(workspace.layout.root, "alerts") as alerts:
        if alert_id not in alerts:
            raise NotFound("alert", alert_id)
        yield cast("AlertRecord", alerts[alert_id])


def update_model_alerts(workspace: Workspace, name: str, at: datetime | None = None) -> list[tuple[str, AlertRecord]]:
    """Test the present window of a model, once an hour, and fire or resolve alerts; what its bare name means is looked at.

    Returns what has changed: ("fired" or "resolved", alert).
    """
    moment = at or utc_now()
    rule = alert_rule(workspace, name)
    limits = Limits(rule["q"], rule["nats"], rule["points"])
    try:
        report = monitoring_window_report(
            workspace, name, window=rule["window"], until=moment, against=rule["against"], limits=limits
        )
    except InvalidRequest:  # a model without counts of its training, and no other reference chosen
        return []
    version = report["version"]
    seen = {" ".join([cause["kind"], *cause["columns"]]): cause for cause in report.get("causes", [])}
    with edit_alert_records(workspace.layout.root, "looks") as looks:
        own = looks.setdefault(f"{name}@{version}", {"at": "", "last": []})
        hour = f"{moment:%Y%m%dT%H}"
        if own["at"] == hour:
            own["last"][-1] = sorted(seen)  # the hour's last look counts
        else:
            own["at"], own["last"] = hour, [*own["last"], sorted(seen)][-LOOKS:]
        lasting = {subject for subject in seen if sum(subject in one for one in own["last"]) >= PERSISTENCE}
    return _change(workspace, name, version, rule, seen, lasting, moment)


def _change(
    workspace: Workspace,
    name: str,
    version: int,
    rule: RuleRecord,
    seen: Mapping[str, JSONMapping],
    lasting: set[str],
    moment: datetime,
) -> list[tuple[str, AlertRecord]]:
    changed: list[tuple[str, AlertRecord]] = []
    with edit_alert_records(workspace.layout.root, "alerts") as alerts:
        of_model = [one for one in alerts.values() if one["model"] == name]
        own = {one["subject"]: one for one in of_model if one["resolved_at"] is None}
        unsent = [one for one in of_model if not one.pop("is_sent", True)]
        changed += [("resolved", cast("AlertRecord", dict(one))) for one in unsent]
        muted = {one["subject"]: one.get("muted_at") for one in sorted(of_model, key=lambda one: one["fired_at"])}
        for subject, one in own.items():
            if subject not in seen or one["version"] != version:
                one["resolved_at"] = moment.isoformat()
                changed.append(("resolved", cast("AlertRecord", dict(one))))
        for subject in sorted(lasting - {s for s, one in own.items() if one["version"] == version}):
            cause = seen[subject]
            fired: AlertRecord = {
                "id": hashlib.sha256(f"{name}@{version} {subject} {moment.isoformat()}".encode()).hexdigest()[:16],
                "model": name,
                "version": version,
                "subject": subject,
                "kind": cause["kind"],
                "columns": list(cause["columns"]),
                "words": cause["words"],
                "effect": cause["effect"],
                "unit": cause["unit"],
                "against": rule["against"],
                "window": rule["window"],
                "is_muted": rule["is_muted"] or muted.get(subject) is not None,
                "muted_at": muted.get(subject),
                "fired_at": moment.isoformat(),
                "acknowledged_at": None,
                "resolved_at": None,
            }
            alerts[fired["id"]] = dict(fired)
            changed.append(("fired", fired))
        closed = sorted((one["resolved_at"], key) for key, one in alerts.items() if one["resolved_at"])
        for _, key in closed[: max(0, len(closed) - KEPT)]:
            del alerts[key]
    return changed


def create_webhook(workspace: Workspace, url: str, models: list[str], secret: str | None = None) -> JSONObject:
    """Send alerts of some models (all, if none is named) to a URL; the answer alone tells the secret.

    Raises InvalidRequest if the URL is none, or leads to an address that is not allowed.
    """
    check_webhook_url(workspace, url)
    webhook: WebhookRecord = {
        "id": secrets.token_hex(8),
        "url": url,
        "secret": secret or PREFIX + base64.b64encode(secrets.token_bytes(24)).decode(),
        "models": models,
        "created_at": utc_now().isoformat(),
    }
    if not webhook["secret"].startswith(PREFIX) or len(_key(webhook["secret"])) < 16:
        raise InvalidRequest(
            f"A secret is {PREFIX} and at least 16 bytes in base64; leave it out to get one.", field="secret"
        )
    with edit_alert_records(workspace.layout.root, "webhooks") as webhooks:
        webhooks[webhook["id"]] = dict(webhook)
    return dict(webhook)


def list_webhooks(workspace: Workspace) -> list[JSONObject]:
    """The webhooks, without their secrets."""
    webhooks = read_alert_records(workspace.layout.root, "webhooks").values()
    return [{name: value for name, value in webhook.items() if name != "secret"} for webhook in webhooks]


def delete_webhook(workspace: Workspace, webhook: str) -> None:
    """Send nothing there any more (NotFound)."""
    _webhook(workspace, webhook)
    with edit_alert_records(workspace.layout.root, "webhooks") as webhooks:
        webhooks.pop(webhook, None)


def list_webhook_deliveries(workspace: Workspace, webhook: str | None = None) -> list[DeliveryRecord]:
    """What was sent, the newest first; the last thousand are kept."""
    deliveries = [
        cast("DeliveryRecord", one) for one in read_alert_records(workspace.layout.root, "deliveries").values()
    ]
    chosen = [one for one in deliveries if webhook is None or one["webhook"] == webhook]
    return sorted(chosen, key=lambda one: one["at"], reverse=True)


def test_webhook(workspace: Workspace, webhook: str) -> DeliveryRecord:
    """Send an event that says it is a test, and tell what came of it (NotFound)."""
    return deliver_webhook_event(
        workspace, _webhook(workspace, webhook), "fewpass.test", None, {"message": "This is a test."}
    )


def notify_alert_webhooks(workspace: Workspace, change: str, alert: AlertRecord) -> list[DeliveryRecord]:
    """Tell every webhook that listens to the model that an alert was fired or resolved; muted ones are told to nobody."""
    if alert["is_muted"]:
        return []
    webhooks = [cast("WebhookRecord", one) for one in read_alert_records(workspace.layout.root, "webhooks").values()]
    listening = [one for one in webhooks if not one["models"] or alert["model"] in one["models"]]
    return [
        deliver_webhook_event(workspace, one, f"fewpass.alert.{change}", alert["id"], dict(alert)) for one in listening
    ]


def deliver_webhook_event(
    workspace: Workspace, webhook: WebhookRecord, kind: str, alert: str | None, content: Mapping[str, object]
) -> DeliveryRecord:
    """Send one event, five times at most, and keep what came of it; its id follows from what it says, so receivers know it."""
    event_id = hashlib.sha256(f"{webhook['id']} {kind} {alert or secrets.token_hex(8)}".encode()).hexdigest()[:32]
    head = {"specversion": "1.0", "id": event_id, "source": "/fewpass", "type": kind, "time": utc_now().isoformat()}
    body = json.dumps(head | {"datacontenttype": "application/json", "data": content}).encode()
    attempts, status, error = _post(workspace, webhook, event_id, body)
    delivery: DeliveryRecord = {
        "id": event_id,
        "webhook": webhook["id"],
        "type": kind,
        "alert": alert,
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
    """As https://www.standardwebhooks.com has it: version 1, HMAC-SHA256 of id, time and body."""
    signed = f"{event_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(_key(secret), signed, hashlib.sha256).digest()).decode()


def check_webhook_url(workspace: Workspace, url: str) -> str:
    """Refuse what is no http(s) URL or leads inside: loopback, private networks, link-local (where clouds keep secrets).

    `FEWPASS_WEBHOOK_HOSTS` names hosts that are allowed all the same. Returns the address to connect to: what was looked at
    is what is asked. Raises InvalidRequest.
    """
    parts = urlsplit(url)
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
                f"{host!r} resolves to {address}, which is not a public address: {reason}. To allow it, name the host in "
                "FEWPASS_WEBHOOK_HOSTS.",
                field="url",
            )
    return addresses[0]


def _post(
    workspace: Workspace, webhook: WebhookRecord, event_id: str, body: bytes
) -> tuple[int, int | None, str | None]:
    """Attempts, the last status, and what was wrong."""
    import httpx  # a tenth of a second to import, which a command that sends nothing need not wait for
    from tenacity import RetryError, Retrying, retry_if_result, stop_after_attempt, wait_random_exponential

    waits = wait_random_exponential(multiplier=FIRST_WAIT_S, max=LONGEST_WAIT_S)
    retrying = Retrying(
        stop=stop_after_attempt(ATTEMPTS), wait=waits, retry=retry_if_result(lambda answer: answer[1] is not None)
    )

    def once() -> tuple[int | None, str | None]:
        try:
            address = check_webhook_url(workspace, webhook["url"])
            return _post_once(webhook, event_id, body, address)
        except InvalidRequest as error:
            return None, str(error)
        except httpx.HTTPError as error:
            return None, f"{type(error).__name__}: {error}"

    try:
        status, error = retrying(once)
    except RetryError as failed:
        status, error = failed.last_attempt.result()
    return int(retrying.statistics["attempt_number"]), status, error


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
