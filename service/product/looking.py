"""Looking after models: every few minutes one process tests what was served, alerts, and clears what is old."""

import fcntl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import structlog

from service.problems import is_expected
from service.product.alerts import alert_rule, look
from service.product.labels import realised_of
from service.product.rolling_back import judged
from service.product.webhooks import send
from service.product.windows import Watching, monitoring
from service.telemetry import MONITOR, SERIES
from service.workspace import Workspace
from storage.errors import NotFound
from storage.monitoring import MonitoringFiles, compact_old, monitored_models

COMPACTED_AFTER = timedelta(days=14)


class Looker:
    """A thread that looks after the models of a workspace; of several processes one does.

    Parameters
    ----------
    workspace : Workspace
    """

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
        """Look no more."""
        self._stopping.set()
        self._thread.join(1)

    def _run(self) -> None:
        while not self._stopping.wait(self.workspace.settings.monitoring_look_s):
            try:
                self.look()
            except Exception as error:
                self.log.warning("models could not be looked after", reason=str(error), exc_info=not is_expected(error))

    def look(self) -> None:
        """Look once at every model, unless another process does just now."""
        root = self.workspace.layout.root
        place = root / "monitoring" / ".look.lock"
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            for name in monitored_models(root):
                try:
                    self._look_at(name)
                except NotFound:  # deleted, and a process that had it in memory has written once more
                    MonitoringFiles(root, name).remove()
            self._clear(root)

    def _look_at(self, name: str) -> None:
        for change, alert in look(self.workspace, name):
            self.log.info(f"alert {change}", model=name, cause=alert["words"])
            for told in send(self.workspace, change, alert):
                if told["error"] is not None:
                    self.log.warning("a webhook was not delivered", webhook=told["webhook"], reason=told["error"])
        labels = alert_rule(self.workspace, name).get("rollback_labels")
        if labels is not None:
            judged(self.workspace, name, labels)
        set_series(self.workspace, name)

    def _clear(self, root: Path) -> None:
        """Once an hour: compact what is old, remove what is very old."""
        now = datetime.now(UTC)
        if self._cleared is not None and now - self._cleared < timedelta(hours=1):
            return
        self._cleared = now
        settings = self.workspace.settings
        for name in monitored_models(root):
            files = MonitoringFiles(root, name)
            compact_old(files, now - COMPACTED_AFTER)
            files.remove_before(
                now - timedelta(days=settings.monitoring_days), now - timedelta(days=settings.monitoring_row_days)
            )


def set_series(workspace: Workspace, name: str) -> None:
    """Set the Prometheus series of a model to what the last day shows."""
    found = monitoring(workspace, name)
    columns = cast("list[dict[str, object]]", found.get("columns", []))
    told: dict[str, object] = {
        "window_end_timestamp_seconds": datetime.fromisoformat(str(found["until"])).timestamp(),
        "columns_alerting": sum(bool(column["is_alarming"]) for column in columns),
        "max_effect_nats": max((float(str(column["family_nats"])) for column in columns), default=0.0),
    }
    for series, kind in (("unseen_ratio", "unseen"), ("missing_ratio", "missing")):
        shares = [cast("dict[str, dict[str, float]]", column["rates"])[kind]["share"] for column in columns]
        told[series] = max(shares, default=0.0)
    estimated = cast("dict[str, object]", found.get("estimated", {}))
    told |= {"surprise_nats": estimated.get("surprise_nats"), "estimated_log_loss": estimated.get("log_loss")}
    labels = realised_of(Watching(workspace, name), timedelta(days=1))
    told |= {"realised_log_loss": labels.get("log_loss"), "label_coverage_ratio": labels["coverage"]}
    delay = labels.get("delay_s")
    told["label_delay_seconds"] = cast("dict[str, float]", delay)["median"] if delay else None
    for series in SERIES:
        value = told.get(series)
        if value is not None:
            MONITOR[series].labels(name).set(float(str(value)))
