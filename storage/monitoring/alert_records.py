"""Small monitoring records: rules, alerts, webhooks, deliveries; one JSON file per kind, changed under a lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from storage.errors import CorruptFile
from storage.files.atomic_files import create_folder, exclusive_file_lock, write_file_atomically
from storage.files.workspace_layout import private_file_mode

# What JSON holds; each kind has a TypedDict below that says what is in it.
Records = dict[str, dict[str, Any]]


class RuleRecord(TypedDict, total=False):
    """Alert rule of a model."""

    model: str
    window: str
    against: str
    q: float
    nats: float
    points: float
    is_muted: bool
    rollback_labels: int | None


class AlertRecord(TypedDict):
    """One alert; times are ISO 8601.

    No webhook gets it if `is_muted`: by the rule of its model, or since a person muted it at `muted_at`. `is_sent` is false
    from when a person resolves it until the next look.
    """

    id: str
    model: str
    version: int
    subject: str
    kind: str
    columns: list[str]
    words: str
    effect: float
    unit: str
    against: str
    window: str
    is_muted: bool
    fired_at: str
    acknowledged_at: str | None
    resolved_at: str | None
    muted_at: NotRequired[str | None]
    is_sent: NotRequired[bool]


class StateRecord(TypedDict):
    """Result of the last check of a model, on the rows served in the last day."""

    version: int
    looked_at: str  # ISO 8601
    served: int
    is_drifting: bool | None  # None where nothing could be compared
    first_cause: str | None
    log_loss: float | None  # in nats, if it is known
    log_loss_of: str | None  # "labels"; or "estimate", what the predictions expect of themselves


class WebhookRecord(TypedDict):
    """A URL that alerts and events are sent to; the secret is never shown again.

    `events` are kinds of events; webhooks of release 0.2.0 lack it and get alerts. `sent_until` is the id of the last line of
    the audit log whose event was sent.
    """

    id: str
    url: str
    secret: str
    models: list[str]
    created_at: str
    events: NotRequired[list[str]]
    sent_until: NotRequired[int]


class DeliveryRecord(TypedDict):
    """Result of one delivery."""

    id: str
    webhook: str
    type: str
    alert: str | None
    at: str
    attempts: int
    status: int | None
    error: str | None


def read_alert_records(root: Path, kind: str) -> Records:
    """Return all records of a kind by id; CorruptFile if a file is damaged."""
    path = _path(root, kind)
    try:
        records: Records = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise CorruptFile(path, f"it is not JSON ({error}). Restore it from a backup, or remove it.") from error
    return records


def alert_records_fingerprint(root: Path) -> tuple[int, ...]:
    """Return file status values that change when alerts or model states are written."""
    mark: list[int] = []
    for kind in ("alerts", "states"):
        with suppress(OSError):
            status = _path(root, kind).stat()
            mark += (status.st_mtime_ns, status.st_ino)
    return tuple(mark)


@contextmanager
def edit_alert_records(root: Path, kind: str) -> Iterator[Records]:
    """Provide the records of a kind for changes under a lock; they are written if the block raises nothing."""
    path = _path(root, kind)
    create_folder(path.parent, 0o700)  # secrets of webhooks are nobody else's
    with exclusive_file_lock(path):
        records = read_alert_records(root, kind)
        before = json.dumps(records)
        yield records
        if json.dumps(records) != before:
            with write_file_atomically(path, replace=True, mode=private_file_mode(path.parent, 0o660)) as draft:
                draft.write_text(json.dumps(records), encoding="utf-8")


def _path(root: Path, kind: str) -> Path:
    return Path(root) / "monitoring" / ".records" / f"{kind}.json"
