"""Monitoring windows of a version: served rows or rows of files compared with training, other windows or other
versions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path

from learners.errors import EmptyData, SchemaError
from learners.monitoring.count_layout import Watched
from learners.monitoring.drift_findings import Limits, attribute_quality_rates, estimated_prediction_metrics
from learners.monitoring.drift_report import drift_report
from learners.monitoring.label_counts import LabelCounts, labels_to_compare
from learners.monitoring.reference import Reference, served_reference
from learners.monitoring.served_counts import ServedCounts
from learners.passes.engine import collect
from learners.registry.model_kinds import load_model
from service.jobs.steps import Report, ignore_report, progress_reporter
from service.product.datasets.data_sources import open_data_source
from service.product.inference.scoring import absent_column_warnings
from service.product.monitoring.monitoring_choice import monitoring_mode
from service.product.versions.evaluation_records import load_evaluation_counts, reference_of_training
from service.product.versions.registry import find_version
from service.requests.json_values import JSONMapping, JSONObject, whole_number_or_none
from service.requests.problems import InvalidRequest
from service.serving.predictor import map_model_version
from service.settings import available_threads
from service.workspace import Workspace
from storage.errors import NotFound
from storage.models.compiled import map_compiled
from storage.models.model_versions import ModelVersion
from storage.monitoring.monitoring_files import HOUR, MonitoringFiles, is_counting_process_alive

MOST_WINDOWS = 1000
MOST_TESTED = 72
FIRST_YEAR, LAST_YEAR = 1970, 9000
NOTHING = "no rows were served in this window"
SMALLEST = 5  # rows of a cell that is shown
MOST_PREDICTED = 200_000
NO_COUNTS = (
    "A model of kind {!r} has no counts of training rows to compare with, or weighted ones and no rows kept back."
)


@dataclass(frozen=True, eq=False)
class Window:
    """Counts of the rows served in a period; `since` and `until` are timezone-aware, UTC.

    `gaps` are processes that did not end as they should, and from when on rows may be missing; `n_left_out` slices count
    something else, as an earlier release wrote them.
    """

    counts: ServedCounts
    since: datetime
    until: datetime
    gaps: Sequence[JSONObject]
    n_left_out: int

    @property
    def times(self) -> JSONObject:
        """Begin and end of the window as JSON values."""
        return {"since": self.since.isoformat(), "until": self.until.isoformat()}


class Watching:
    """A version ("name", "name@version" or "name@alias") with its monitoring files."""

    def __init__(self, workspace: Workspace, reference: str) -> None:
        self.workspace = workspace
        self.version: ModelVersion = find_version(workspace, reference)
        self.watched = _watched(self.version.arrow_path, self.version.sha256)
        self.files = MonitoringFiles(workspace.layout.root, self.version.name)

    @property
    def name(self) -> JSONObject:
        """Name and number of the version, as JSON."""
        return {"model": self.version.name, "version": self.version.version}

    def window(self, since: datetime, until: datetime) -> Window:
        """Return the sum of all hours of all processes that begin within a period."""
        whole, n_left_out = ServedCounts(self.watched), 0
        gaps: list[JSONObject] = []
        for one in self.files.slices(self.version.version, since, until):
            if one.layout != self.watched.fingerprint:
                n_left_out += 1
                continue
            whole.merge(whole.from_arrow(one.counts()))
            if not one.is_closed and not is_counting_process_alive(self.workspace.layout.root, one.process):
                end = one.covered_until.isoformat()
                gaps.append({"process": one.process, "hour": one.start.isoformat(), "rows_may_be_missing_from": end})
        return Window(whole, since, until, gaps, n_left_out)

    def scored(self) -> ServedCounts | None:
        """Return the counts of the version's evaluation rows, if it has them in this release's layout."""
        return load_evaluation_counts(self.version, self.watched)

    def reference(self, against: str, window: Window) -> Reference:
        """Return the reference that a window is compared with; InvalidRequest for an unknown name."""
        kind, _, more = against.partition(":")
        if kind == "training" and not more:
            reference = reference_of_training(self.workspace, self.version, self.watched)
            if reference is None:
                raise InvalidRequest(
                    f"{NO_COUNTS.format(self.watched.model.kind)} Compare with against="
                    "window:7d, same-hour:4w or version:N.",
                    field="against",
                )
            return reference
        if kind == "window" and (span := time_span_or_none(more)) is not None:
            return served_reference(against, self.window(window.since - span, window.since).counts)
        if kind == "same-hour" and (span := time_span_or_none(more)) is not None and span >= timedelta(weeks=1):
            return served_reference(against, self._same_hours(window, span // timedelta(weeks=1)))
        if kind == "version" and more.isdecimal():
            other = Watching(self.workspace, f"{self.version.name}@{more}")
            if other.watched.fingerprint != self.watched.fingerprint:
                raise InvalidRequest(
                    f"Version {more} counts other columns or families, so they cannot be compared.",
                    field="against",
                )
            return served_reference(against, other.window(window.since, window.until).counts)
        raise InvalidRequest(
            f"The reference {against!r} is unknown. Use training, window:7d, same-hour:4w or version:3.",
            field="against",
        )

    def _same_hours(self, window: Window, n_weeks: int) -> ServedCounts:
        whole = ServedCounts(self.watched)
        for week in range(1, n_weeks + 1):
            back = timedelta(weeks=week)
            whole.merge(self.window(window.since - back, window.until - back).counts)
        return whole


@lru_cache(maxsize=16)
def _watched(arrow_path: Path, sha256: str) -> Watched:
    """Load the monitored columns of a version, whose files never change."""
    del sha256
    return Watched(load_model(*map_compiled(arrow_path)))


def time_span_or_none(text: str) -> timedelta | None:
    """Parse a period such as 24h, 7d or 4w; None if it is invalid."""
    units = {"h": HOUR, "d": timedelta(days=1), "w": timedelta(weeks=1)}
    number, unit = whole_number_or_none(text[:-1], 9_999), text[-1:]
    return number * units[unit] if number and unit in units else None


def parse_time_span(name: str, text: str) -> timedelta:
    """Parse a period such as 24h, 7d or 4w; InvalidRequest names the parameter."""
    span = time_span_or_none(text)
    if span is None:
        raise InvalidRequest(f"{name}={text!r} is not a period of time. Use a form such as 24h, 7d or 4w.", field=name)
    return span


def monitoring_window_report(
    workspace: Workspace,
    reference: str,
    *,
    window: str = "24h",
    until: datetime | None = None,
    against: str = "training",
    limits: Limits | None = None,
) -> JSONObject:
    """Report the last hours of a version: rows, tests, causes, estimates and gaps (InvalidRequest, NotFound).

    A `window` such as 24h or 7d has whole hours, to the one of `until`, or the present one. `against` is training, window:7d,
    same-hour:4w or version:3. Returns what `learners.monitoring.drift_report.drift_report` does, with `model`, `version`, `mode`,
    `since`, `until` and `gaps`; without rows `is_drifting` is None and `why` gives the reason.
    """
    watching = Watching(workspace, reference)
    end = hour_end(until)
    seen = watching.window(end - parse_time_span("window", window), end)
    head: JSONObject = {
        **watching.name,
        "mode": monitoring_mode(workspace, watching.version.name),
        **seen.times,
        "gaps": seen.gaps,
        "n_left_out": seen.n_left_out,
    }
    if not seen.counts.n_rows:
        rows = served_row_counts(seen.counts)
        why = f"{rows['served']} rows were served, but none was counted" if rows["served"] else NOTHING
        return head | {"is_drifting": None, "why": why, "rows": rows}
    try:
        report = drift_report(seen.counts, watching.reference(against, seen), limits or Limits())
    except EmptyData as error:
        return head | {"is_drifting": None, "why": str(error), "rows": served_row_counts(seen.counts)}
    return head | report | {"rows": served_row_counts(seen.counts)}


def hour_end(until: datetime | None) -> datetime:
    """Return the end of the hour that contains a moment, by default now; InvalidRequest if no window fits so far away."""
    if until is not None and not FIRST_YEAR <= until.year <= LAST_YEAR:
        raise InvalidRequest(
            f"until={until.isoformat()} must be within the years {FIRST_YEAR} to {LAST_YEAR}.", field="until"
        )
    moment = (until or datetime.now(UTC)).astimezone(UTC)
    hour = moment.replace(minute=0, second=0, microsecond=0)
    return hour if hour == moment and until is not None else hour + HOUR


def served_row_counts(counts: ServedCounts) -> dict[str, int]:
    """Return the number of rows served and counted."""
    counted, served, requests = (int(number) for number in counts.block("rows"))
    most = max((k for k, n in enumerate(counts.block("rates").tolist()) if n), default=0)
    return {"counted": counted, "served": served, "requests": requests, "counted_one_in_at_most": 1 << most}


def earlier_versions_with_served_rows(workspace: Workspace, name: str, version: int, most: int) -> list[int]:
    """Return the newest versions before one that still exist and whose served rows are stored, at most so many,
    ascending.
    """
    counted = MonitoringFiles(workspace.layout.root, name).versions()
    found = (number for number in reversed(counted) if number < version and _exists(workspace, name, number))
    return sorted(islice(found, most))


def _exists(workspace: Workspace, name: str, version: int) -> bool:
    try:
        find_version(workspace, f"{name}@{version}")
    except NotFound:
        return False
    return True


def monitoring_windows(
    workspace: Workspace,
    reference: str,
    *,
    since: str = "24h",
    step: str = "1h",
    until: datetime | None = None,
    against: str = "training",
) -> JSONObject:
    """Return a timeline: rows, rates, surprise, estimates, and drift of each step (InvalidRequest, NotFound).

    `since` is how far back, such as 24h or 30d; `against` is as in `monitoring_window_report`. Steps are tested for
    drift only if there are at most 72, because each is tested by itself.
    """
    watching = Watching(workspace, reference)
    end, whole, each = hour_end(until), parse_time_span("since", since), parse_time_span("step", step)
    n_windows = -(-whole // each)
    if n_windows > MOST_WINDOWS:
        raise InvalidRequest(f"{n_windows} windows; the limit for one answer is {MOST_WINDOWS}.", field="step")
    tested = against if n_windows <= MOST_TESTED else None
    windows = (watching.window(end - (k + 1) * each, end - k * each) for k in reversed(range(n_windows)))
    return {
        **watching.name,
        "step": step,
        "reference": tested,
        "windows": [_of_window(watching, seen, tested) for seen in windows],
    }


def _of_window(watching: Watching, seen: Window, against: str | None) -> JSONObject:
    counts = seen.counts
    head: JSONObject = {**seen.times, "rows": served_row_counts(counts), "gaps": seen.gaps}
    if not counts.n_rows:
        return head | {"is_drifting": None}
    totals: dict[str, float] = {}
    for own in attribute_quality_rates(counts):
        for kind, (count, n) in own.items():
            totals[kind] = max(totals.get(kind, 0.0), count / n if n else 0.0)
    head |= {"worst_rates": totals, "estimated": estimated_prediction_metrics(counts)}
    if against is None:
        return head | {"is_drifting": None}
    try:
        report = drift_report(counts, watching.reference(against, seen))
    except EmptyData:
        return head | {"is_drifting": None}
    return head | {"is_drifting": report["is_drifting"], "drift_nats": report["drift_nats"], "causes": report["causes"]}


def monitoring_family_drift(
    workspace: Workspace,
    reference: str,
    *,
    window: str = "24h",
    until: datetime | None = None,
    against: str = "training",
) -> JSONObject:
    """Return the change of each column given its parents, for a picture of the graph; InvalidRequest or NotFound."""
    report = monitoring_window_report(workspace, reference, window=window, until=until, against=against)
    members = ("model", "version", "since", "until", "is_drifting", "why", "drift_nats", "reference")
    return {name: report[name] for name in members if name in report} | {"families": report.get("columns", [])}


def monitoring_column_counts(
    workspace: Workspace,
    reference: str,
    column: str,
    *,
    window: str = "24h",
    until: datetime | None = None,
    against: str = "training",
) -> JSONObject:
    """Return the counts of a column's values in a window and in the reference; cells under five rows are null.
    InvalidRequest, NotFound.
    """
    watching = Watching(workspace, reference)
    if column not in watching.watched.names:
        raise InvalidRequest(f"Model {watching.version.name!r} has no column {column!r}.", column=column)
    i, end = watching.watched.names.index(column), hour_end(until)
    seen = watching.window(end - parse_time_span("window", window), end)
    attribute = watching.watched.codes.attributes[i]
    other = watching.reference(against, seen).family(i).sum(axis=0).tolist()
    return {
        **watching.name,
        "column": column,
        "kind": attribute.kind,
        **seen.times,
        "reference": against,
        "labels": [*attribute.labels(), "(unknown)"],
        "window": [n if n == 0 or n >= SMALLEST else None for n in seen.counts.marginal(i).tolist()],
        "expected": [n if n == 0 or n >= SMALLEST else None for n in other],
    }


def file_drift_report(
    workspace: Workspace,
    reference: str,
    uris: Sequence[str],
    *,
    against: Sequence[str] = (),
    limits: Limits | None = None,
    report: Report = ignore_report,
    columns: JSONMapping | None = None,
) -> JSONObject:
    """Compare the rows of files with the training data of a model, or with the rows of other files (`against`).

    Returns what `learners.monitoring.drift_report.drift_report` does, with `model`, `version` and `warnings`. Raises InvalidRequest
    if the data has none of the model's columns, the model uses none, or the model keeps no counts to compare with; EmptyData,
    SourceError, SchemaError or NotFound.
    """
    version = find_version(workspace, reference)
    served = map_model_version(version)
    watched = Watched(served.model)
    if not watched.names:
        raise InvalidRequest("The model uses no columns, so drift cannot be measured.")
    whole, warnings = _counts(workspace, watched, uris, report, columns)
    known = _reference(workspace, version, watched, against, report, columns)
    labels = None
    try:
        own = _label_counts(workspace, watched, uris, columns)
        others = _label_counts(workspace, watched, against, columns) if against else None
        if own is not None and (others is not None or not against):
            labels = labels_to_compare(own, others, known)
    except SchemaError as error:
        warnings = [*warnings, f"Classes are not compared: {error}"]
    comparison = drift_report(whole, known, limits or Limits(), labels)
    return {"model": served.name, "version": served.version, **comparison, "warnings": warnings}


def _counts(
    workspace: Workspace, watched: Watched, uris: Sequence[str], report: Report, columns: JSONMapping | None = None
) -> tuple[ServedCounts, list[str]]:
    source = open_data_source(workspace, uris, is_remote=False, columns=columns, schema=watched.schema)
    warnings = absent_column_warnings(watched.model, source)
    one_in = max(1, source.n_rows // MOST_PREDICTED)
    empty = ServedCounts(watched, predict_one_in=one_in, present=source.arrow_schema.names)
    threads = available_threads(workspace.settings)
    return collect(empty, source, threads=threads, on_progress=progress_reporter(report), n_passes=1), warnings


def _label_counts(
    workspace: Workspace, watched: Watched, uris: Sequence[str], columns: JSONMapping | None
) -> LabelCounts | None:
    """Count the classes of files; None if they lack the class column."""
    source = open_data_source(workspace, uris, is_remote=False, columns=columns, schema=watched.schema)
    if watched.schema.target is None or watched.schema.target not in source.arrow_schema.names:
        return None
    return collect(LabelCounts(watched.schema), source, threads=available_threads(workspace.settings))


def _reference(
    workspace: Workspace,
    version: ModelVersion,
    watched: Watched,
    against: Sequence[str],
    report: Report,
    columns: JSONMapping | None = None,
) -> Reference:
    if against:
        return served_reference(", ".join(against), _counts(workspace, watched, against, report, columns)[0])
    reference = reference_of_training(workspace, version, watched)
    if reference is None:
        raise InvalidRequest(f"{NO_COUNTS.format(watched.model.kind)} Name files of reference rows: --against FILES.")
    return reference
