"""Monitoring loop: every few minutes one process tests served rows, sends alerts, rolls back to the previous version,
and removes old records.
"""

import fcntl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import scipy
import structlog

from learners.evaluation.metrics import standard_error
from learners.monitoring.drift_findings import estimated_prediction_metrics
from learners.schema import Chunk
from service.product.monitoring.alerting import alert_rule, update_model_alerts
from service.product.monitoring.events import send_pending_events
from service.product.monitoring.monitoring_states import (
    delete_monitoring_states,
    save_monitoring_state,
    set_prometheus_series,
)
from service.product.monitoring.predictions import LEAST, labelled_row_codes, recent_labelled_report
from service.product.monitoring.webhooks import notify_alert_webhooks
from service.product.monitoring.windows import Watching, monitoring_window_report, served_row_counts
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest, is_expected_error
from service.workspace import Workspace
from storage.errors import NotFound
from storage.models import aliases, model_versions
from storage.models.model_versions import CHAMPION
from storage.monitoring.monitoring_files import HOUR, MonitoringFiles, compact_hourly_counts, monitored_models

COMPACTED_AFTER = timedelta(days=14)
LEAST_PROBABILITY = 0.99
SPAN = timedelta(days=30)
EVENTS_S = 2.0  # between two looks for events to send


class Looker:
    """A thread that monitors the models of a workspace; only one of several processes does it at a time."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.log = structlog.get_logger("monitor")
        self._stopping = threading.Event()
        self._cleared: datetime | None = None
        # A daemon: a receiver of webhooks that does not answer shall not hold up the end of the server.
        self._thread = threading.Thread(target=self._run, name="looker", daemon=True)

    def start(self) -> "Looker":
        """Start the thread."""
        self._thread.start()
        return self

    def close(self) -> None:
        """Stop the thread."""
        self._stopping.set()
        self._thread.join(1)

    def _run(self) -> None:
        look_s = self.workspace.settings.monitoring_look_s
        due = time.monotonic() + look_s
        while not self._stopping.wait(min(EVENTS_S, look_s)):
            self._try("events could not be sent", self.send_events)
            if time.monotonic() >= due:
                self._try("models could not be monitored", self.look)
                due = time.monotonic() + look_s

    def _try(self, words: str, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception as error:
            self.log.warning(words, reason=str(error), exc_info=not is_expected_error(error))

    def send_events(self) -> None:
        """Send the events that webhooks have not been sent yet, unless another process is doing so."""
        with self._alone() as is_alone:
            if is_alone:
                send_pending_events(self.workspace)

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the lock of the workspace's watcher; False if another process holds it."""
        place = self.workspace.layout.root / "monitoring" / ".look.lock"
        try:
            place.parent.mkdir(exist_ok=True)
        except FileNotFoundError:  # the workspace was moved away: nobody makes an empty one in its place
            yield False
            return
        with place.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def look(self) -> None:
        """Check every model once, unless another process is doing so."""
        root = self.workspace.layout.root
        with self._alone() as is_alone:
            if not is_alone:
                return
            for name in monitored_models(root):
                try:
                    self._look_at(name)
                except NotFound:  # deleted, and a process that had it in memory has written once more
                    MonitoringFiles(root, name).remove()
                except Exception as error:  # one model shall not keep the others from being monitored
                    more = {"model": name, "reason": str(error), "exc_info": not is_expected_error(error)}
                    self.log.warning("a model could not be monitored", **more)
            delete_monitoring_states(root, monitored_models(root))
            self._clear(root)

    def _look_at(self, name: str) -> None:
        for change, alert in update_model_alerts(self.workspace, name):
            self.log.info(f"alert {change}", model=name, cause=alert["words"])
            for delivery in notify_alert_webhooks(self.workspace, change, alert):
                if (reason := delivery["error"]) is not None:
                    self.log.warning("a webhook was not delivered", webhook=delivery["webhook"], reason=reason)
        n_labels = alert_rule(self.workspace, name).get("rollback_labels")
        if n_labels is not None:
            compare_with_previous(self.workspace, name, n_labels)
        report, labels = last_day_monitoring(self.workspace, name)
        set_prometheus_series(name, report, labels)
        save_monitoring_state(self.workspace, name, report, labels)

    def _clear(self, root: Path) -> None:
        """Compact old records and remove very old ones, once an hour."""
        now = datetime.now(UTC)
        if self._cleared is not None and now - self._cleared < timedelta(hours=1):
            return
        self._cleared = now
        settings = self.workspace.settings
        for name in monitored_models(root):
            files = MonitoringFiles(root, name)
            compact_hourly_counts(files, now - COMPACTED_AFTER)
            files.remove_before(
                now - timedelta(days=settings.monitoring_days), now - timedelta(days=settings.monitoring_row_days)
            )


def last_day_monitoring(workspace: Workspace, name: str) -> tuple[JSONMapping, JSONMapping]:
    """Return the monitoring report of a model's last day against the reference of its rule, and the report on its
    labels.
    """
    watching, against = Watching(workspace, name), str(alert_rule(workspace, name)["against"])
    try:
        report = monitoring_window_report(workspace, name, against=against)
    except InvalidRequest as reason:  # a model without counts of its training, and no other reference chosen
        seen = watching.window(datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + HOUR)
        report = {
            "is_drifting": None,
            "why": str(reason),
            "rows": served_row_counts(seen.counts),
            "until": seen.until.isoformat(),
        }
        report["version"] = watching.version.version
        if seen.counts.n_rows:
            report["estimated"] = estimated_prediction_metrics(seen.counts)
    if watching.watched.schema.target is None:
        return report, {}
    return report, recent_labelled_report(watching, timedelta(days=1))


def compare_with_previous(workspace: Workspace, name: str, min_labels: int, now: datetime | None = None) -> JSONObject:
    """Compare the champion with the previous version on labelled rows that the champion served.

    Both predict the same rows, which are kept in mode "rows"; the posterior of the mean difference of their log losses,
    with a flat prior, says how probably the champion is worse. Fewer than `min_labels` decide nothing. Returns
    `is_rolled_back`, `reason`, and the figures where there are any.
    """
    end = now or datetime.now(UTC)
    try:
        own = Watching(workspace, f"{name}@{CHAMPION}")
        before = _before(workspace, name, own.version.version)
        other = Watching(workspace, f"{name}@{before}")
    except (NotFound, LookupError):
        return {"is_rolled_back": False, "reason": "the champion has no previous version"}
    if own.watched.schema != other.watched.schema:
        reason = f"versions {own.version.version} and {before} encode rows differently, so they cannot be compared"
        return {"is_rolled_back": False, "reason": reason}
    x, y = labelled_row_codes(own.files, own.version.version, own.watched.schema, end - SPAN, end)
    if y.size < min_labels:
        return {
            "is_rolled_back": False,
            "reason": f"{y.size} labelled rows are fewer than the required {min_labels}",
        }
    losses = [
        -np.log(np.maximum(one.watched.model.predict_proba(Chunk(x, None))[np.arange(y.size), y], LEAST))
        for one in (own, other)
    ]
    difference = losses[0] - losses[1]
    error = standard_error(difference)
    worse = float(scipy.special.ndtr(float(difference.mean()) / error)) if error else 0.5
    figures: JSONObject = {
        "n_rows": int(y.size),
        "champion": own.version.version,
        "before": before,
        "log_loss": float(losses[0].mean()),
        "log_loss_before": float(losses[1].mean()),
        "probability_worse": worse,
    }
    words = (
        f"log_loss {losses[0].mean():.6g} against {losses[1].mean():.6g} of version {before}, on {y.size} labelled rows"
    )
    if worse < LEAST_PROBABILITY:
        return figures | {"is_rolled_back": False, "reason": f"version {own.version.version} has {words}"}
    reason = f"rolled back: version {own.version.version} has {words}; worse with probability {worse:.4f}"
    aliases.roll_back(workspace.control, name, CHAMPION, reason)
    structlog.get_logger("monitor").warning("champion rolled back", model=name, reason=reason)
    return figures | {"is_rolled_back": True, "reason": reason}


def _before(workspace: Workspace, name: str, version: int) -> int:
    """Return the previous champion; LookupError without one."""
    moves = aliases.alias_history(workspace.control, name, 100).items
    known = {one.version for one in model_versions.list_model_versions(workspace.control, name, limit=1000).items}
    others = [
        move.version for move in moves if move.alias == CHAMPION and move.version != version and move.version in known
    ]
    if not others:
        raise LookupError(name)
    return others[0]
