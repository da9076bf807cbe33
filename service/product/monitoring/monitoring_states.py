"""Latest monitoring results of models, stored for Prometheus, the console and the next check."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from learners.monitoring.drift_findings import LEAST_ROWS
from service.requests.json_values import JSONMapping
from service.telemetry import MONITOR, SERIES
from service.workspace import Workspace
from storage.monitoring.alert_records import StateRecord, edit_alert_records, read_alert_records


def set_prometheus_series(name: str, report: JSONMapping, labels: JSONMapping) -> None:
    """Set the Prometheus series of a model to the results of the last day."""
    columns, estimated, delay = report.get("columns", []), report.get("estimated", {}), labels.get("delay_s")
    values = {
        "window_end_timestamp_seconds": datetime.fromisoformat(report["until"]).timestamp(),
        "columns_alerting": sum(bool(column["is_alarming"]) for column in columns),
        "max_effect_nats": max((column["family_nats"] for column in columns), default=0.0),
        "surprise_nats": estimated.get("surprise_nats"),
        "estimated_log_loss": estimated.get("log_loss"),
        "realised_log_loss": labels.get("log_loss"),
        "label_coverage_ratio": labels.get("coverage"),
        "label_delay_seconds": delay["median"] if delay else None,
    }
    for series, kind in (("unseen_ratio", "unseen"), ("missing_ratio", "missing")):
        values[series] = max((column["rates"][kind]["share"] for column in columns), default=0.0)
    for series in SERIES:
        if (value := values.get(series)) is not None:
            MONITOR[series].labels(name).set(value)


def save_monitoring_state(workspace: Workspace, name: str, report: JSONMapping, labels: JSONMapping) -> None:
    """Store the result of a check, so that lists of models read one small file and test nothing."""
    realised, causes = labels.get("log_loss"), report.get("causes")
    if labels.get("labelled", 0) < LEAST_ROWS:  # of few rows a loss says nothing
        realised = None
    estimate = report.get("estimated", {}).get("log_loss") if report["rows"]["served"] >= LEAST_ROWS else None
    loss = estimate if realised is None else realised
    state: StateRecord = {
        "version": report["version"],
        "looked_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "served": report["rows"]["served"],
        "is_drifting": report["is_drifting"],
        "first_cause": causes[0]["words"] if causes else None,
        "log_loss": loss,
        "log_loss_of": None if loss is None else "estimate" if realised is None else "labels",
    }
    with edit_alert_records(workspace.layout.root, "states") as states:
        states[name] = dict(state)


def delete_monitoring_states(root: Path, names: Sequence[str]) -> None:
    """Delete the states of models that no longer exist."""
    with edit_alert_records(root, "states") as states:
        for name in set(states) - set(names):
            del states[name]


def load_monitoring_states(workspace: Workspace) -> dict[str, StateRecord]:
    """Return the latest state of each model by name; models that have served nothing are absent."""
    return {name: cast("StateRecord", one) for name, one in read_alert_records(workspace.layout.root, "states").items()}
