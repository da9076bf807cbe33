"""Events of models and jobs for webhooks: the audit log is their outbox, so an event is sent if and only if its act was stored.

References
----------
CloudEvents 1.0; the pattern of the transactional outbox.
"""

from collections.abc import Mapping
from typing import cast

import structlog

from service.product.monitoring.webhooks import deliver_webhook_event
from service.requests.event_kinds import EventKind
from service.workspace import Workspace
from storage.control import audit
from storage.control.audit import AuditLine
from storage.monitoring.alert_records import WebhookRecord, edit_alert_records, read_alert_records

ACTIONS: Mapping[str, EventKind] = {
    "version published": "version.published",
    "alias moved": "alias.moved",
    "promotion decided": "promotion.decided",
    "rows forgotten": "rows.forgotten",
    "job failed": "job.failed",
}
MOST_AT_ONCE = 100


def send_pending_events(workspace: Workspace) -> int:
    """Send to every webhook the events that it has not been sent, oldest first; returns how many were tried.

    A receiver that fails misses the event, which the log of deliveries records, and gets the next ones at the next
    call.
    """
    root, n_tried = workspace.layout.root, 0
    for webhook_id, stored in read_alert_records(root, "webhooks").items():
        webhook = cast("WebhookRecord", stored)
        actions = [action for action, kind in ACTIONS.items() if kind in webhook.get("events", ())]
        if not actions:
            continue
        with workspace.control.reading() as connection:
            lines = audit.audit_lines_after(connection, webhook["sent_until"], actions, MOST_AT_ONCE)
        for line in lines:
            error = None
            if _is_of_interest(webhook, line):
                n_tried += 1
                error = deliver_webhook_event(
                    workspace, webhook, f"fewpass.{ACTIONS[line.action]}", line.sha256, _content(line)
                )["error"]
            with edit_alert_records(root, "webhooks") as webhooks:
                if webhook_id in webhooks:  # nobody has deleted it meanwhile
                    webhooks[webhook_id]["sent_until"] = line.id
            if error is not None:
                structlog.get_logger("monitor").warning("an event was not delivered", webhook=webhook_id, reason=error)
                break
    return n_tried


def _is_of_interest(webhook: WebhookRecord, line: AuditLine) -> bool:
    """Return whether the event is of a model that the webhook listens to; without a list it listens to all."""
    models = {line.subject.partition("@")[0], *_models(line)}
    return not webhook["models"] or not models.isdisjoint(webhook["models"])


def _models(line: AuditLine) -> list[str]:
    named = line.detail.get("models", [])
    return [str(name) for name in named] if isinstance(named, list) else []


def _content(line: AuditLine) -> Mapping[str, object]:
    return {"subject": line.subject, "at": line.at.isoformat(), "actor": line.actor, **line.detail}
