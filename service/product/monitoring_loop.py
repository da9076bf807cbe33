"""Looking after models: every few minutes one process tests what was served, alerts, and clears what is old."""

import fcntl
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import structlog

from learners.monitoring.drift_tests import estimates
from service.product.monitoring.alerts import alert_rule, look
from service.product.monitoring.labels import realised_of
from service.product.monitoring.webhooks import send
from service.product.monitoring.windows import Watching, monitor, rows_of
from service.product.promotion.rollback import judged
from service.requests.json_values import JSONMapping
from service.requests.problems import InvalidRequest, is_expected
from service.telemetry import MONITOR, SERIES
from service.workspace import Workspace
from storage.errors import NotFound
from storage.monitoring.counts import HOUR, MonitoringFiles, compact_old, monitored_models
from storage.monitoring.records import StateRecord, records_of, with_records

COMPACTED_AFTER = timedelta(days=14)


class Looker:
    """A thread that looks after the models of a workspace; of several processes one does."""

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
                except Exception as error:  # one model shall not keep the others from being looked after
                    more = {"model": name, "reason": str(error), "exc_info": not is_expected(error)}
                    self.log.warning("a model could not be looked after", **more)
            forget_states(root, monitored_models(root))
            self._clear(root)

    def _look_at(self, name: str) -> None:
        for change, alert in look(self.workspace, name):
            self.log.info(f"alert {change}", model=name, cause=alert["words"])
            for delivery in send(self.workspace, change, alert):
                if (reason := delivery["error"]) is not None:
                    self.log.warning("a webhook was not delivered", webhook=delivery["webhook"], reason=reason)
        n_labels = alert_rule(self.workspace, name).get("rollback_labels")
        if n_labels is not None:
            judged(self.workspace, name, n_labels)
        found, labels = observed(self.workspace, name)
        set_series(name, found, labels)
        keep_state(self.workspace, name, found, labels)

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


def observed(workspace: Workspace, name: str) -> tuple[JSONMapping, JSONMapping]:
    """What the last day of a model shows, against what its rule compares with; and what labels say of it."""
    watching, against = Watching(workspace, name), str(alert_rule(workspace, name)["against"])
    try:
        found = monitor(workspace, name, against=against)
    except InvalidRequest as reason:  # a model without counts of its training, and no other reference chosen
        seen = watching.window(datetime.now(UTC) - timedelta(days=1), datetime.now(UTC) + HOUR)
        found = {"is_drifting": None, "why": str(reason), "rows": rows_of(seen.counts), "until": seen.until.isoformat()}
        found["version"] = watching.version.version
        if seen.counts.n_rows:
            found["estimated"] = estimates(seen.counts)
    return found, realised_of(watching, timedelta(days=1)) if watching.watched.schema.target is not None else {}


def set_series(name: str, found: JSONMapping, labels: JSONMapping) -> None:
    """Set the Prometheus series of a model to what the last day shows."""
    columns, estimated, delay = found.get("columns", []), found.get("estimated", {}), labels.get("delay_s")
    values = {
        "window_end_timestamp_seconds": datetime.fromisoformat(found["until"]).timestamp(),
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


def keep_state(workspace: Workspace, name: str, found: JSONMapping, labels: JSONMapping) -> None:
    """Keep what a look has found, for lists of models: they read one small file, and test nothing."""
    realised, causes = labels.get("log_loss"), found.get("causes")
    loss = found.get("estimated", {}).get("log_loss") if realised is None else realised
    state: StateRecord = {
        "version": found["version"],
        "looked_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "served": found["rows"]["served"],
        "is_drifting": found["is_drifting"],
        "first_cause": causes[0]["words"] if causes else None,
        "log_loss": loss,
        "log_loss_of": None if loss is None else "estimate" if realised is None else "labels",
    }
    with with_records(workspace.layout.root, "states") as states:
        states[name] = dict(state)


def forget_states(root: Path, names: Sequence[str]) -> None:
    """Keep no state of models that are gone."""
    with with_records(root, "states") as states:
        for name in set(states) - set(names):
            del states[name]


def model_states(workspace: Workspace) -> dict[str, StateRecord]:
    """What the last look at each model has found, by name; models that have served nothing yet have none."""
    return {name: cast("StateRecord", one) for name, one in records_of(workspace.layout.root, "states").items()}
