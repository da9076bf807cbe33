"""Alerts: persistent alarms are notified once, stored, acknowledged, and resolved when they end."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import cast

from learners.monitoring.drift_findings import Limits
from service.product.audit import record_audit_act
from service.product.monitoring.windows import monitoring_window_report
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping
from service.requests.problems import InvalidRequest
from service.workspace import Workspace
from storage.control.tables import utc_now
from storage.errors import NotFound
from storage.monitoring.alert_records import AlertRecord, RuleRecord, edit_alert_records, read_alert_records

PERSISTENCE, LOOKS = 2, 3  # of the last three looks, two must agree
KEPT = 1000  # closed alerts, and deliveries


def alert_rule(workspace: Workspace, name: str) -> RuleRecord:
    """Return the alert rule of a model, or the defaults (NotFound)."""
    version = find_version(workspace, name)
    stored = read_alert_records(workspace.layout.root, "rules").get(version.name, {})
    return cast("RuleRecord", {**default_alert_rule(), **stored, "model": version.name})


def default_alert_rule() -> RuleRecord:
    """Return the default rule: a day against training, significant and large enough, in two of three checks."""
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
    """Set the alert rule of a model; InvalidRequest if the window or the reference is invalid, NotFound."""
    version = find_version(workspace, name)
    merged = cast("RuleRecord", {**alert_rule(workspace, version.name), **rule})
    # Looked at once now, so that what can never be read is refused here and not every hour.
    monitoring_window_report(workspace, version.name, window=merged["window"], against=merged["against"])
    with edit_alert_records(workspace.layout.root, "rules") as rules:
        rules[version.name] = dict(merged)
    record_audit_act(workspace, "alert rule set", version.name)
    return merged


def list_alerts(workspace: Workspace, model: str | None = None, *, is_open: bool | None = None) -> list[AlertRecord]:
    """Return the alerts, newest first."""
    alerts = cast("Iterable[AlertRecord]", read_alert_records(workspace.layout.root, "alerts").values())
    chosen = [
        one
        for one in alerts
        if (model is None or one["model"] == model) and (is_open is None or (one["resolved_at"] is None) == is_open)
    ]
    return sorted(chosen, key=lambda one: one["fired_at"], reverse=True)


def acknowledge_alert(workspace: Workspace, alert_id: str) -> AlertRecord:
    """Mark an alert as seen (NotFound)."""
    with _changing(workspace, alert_id, "alert acknowledged") as alert:
        alert["acknowledged_at"] = alert["acknowledged_at"] or utc_now().isoformat()
    return alert


def mute_alert(workspace: Workspace, alert_id: str, *, is_muted: bool = True) -> AlertRecord:
    """Mute or unmute an alert: webhooks get neither its end nor the same alarm of the model while muted (NotFound)."""
    with _changing(workspace, alert_id, "alert muted" if is_muted else "alert unmuted") as alert:
        alert["muted_at"] = (alert.get("muted_at") or utc_now().isoformat()) if is_muted else None
        alert["is_muted"] = is_muted
    return alert


def resolve_alert(workspace: Workspace, alert_id: str) -> AlertRecord:
    """Close an alert (NotFound); webhooks are notified after the next check. A continuing alarm must persist for the
    full time before it fires again.
    """
    with _changing(workspace, alert_id, "alert resolved") as alert:
        if alert["resolved_at"] is None:
            alert["resolved_at"], alert["is_sent"] = utc_now().isoformat(), False
            with edit_alert_records(workspace.layout.root, "looks") as looks:
                own = looks.get(f"{alert['model']}@{alert['version']}", {"last": []})
                own["last"] = [[subject for subject in seen if subject != alert["subject"]] for seen in own["last"]]
    return alert


@contextmanager
def _changing(workspace: Workspace, alert_id: str, action: str) -> Iterator[AlertRecord]:
    """Provide an alert to change, and record the act."""
    with edit_alert_records(workspace.layout.root, "alerts") as alerts:
        if alert_id not in alerts:
            raise NotFound("alert", alert_id)
        alert = cast("AlertRecord", alerts[alert_id])
        yield alert
    record_audit_act(workspace, action, alert_id, model=alert["model"], version=alert["version"])


def update_model_alerts(workspace: Workspace, name: str, at: datetime | None = None) -> list[tuple[str, AlertRecord]]:
    """Test the current window of a model once an hour, and fire or resolve alerts; the version behind its bare name is
    tested.

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
    if note := report.get("note"):
        seen = {subject: cause | {"words": f"{cause['words']}; {note}"} for subject, cause in seen.items()}
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
