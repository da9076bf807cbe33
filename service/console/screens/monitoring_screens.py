"""Monitoring screens: served rows, what changed and why, accuracy on labels, and alerts."""

from datetime import datetime

from starlette.requests import Request

from service import product
from service.console.pages import Call, render_as_page
from service.console.screens.model_screens import model_summary, open_alert_counts
from service.product.inference.metric_words import largest_rate_change_words
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest
from service.serving.application_state import workspace_from_request
from service.workspace import Workspace
from storage.errors import NotFound

MOST = 200
# What a timeline is made of, by the length of the window.
WINDOWS = {"24h": "1h", "7d": "6h", "30d": "24h"}
AGAINST = ("training", "window:7d", "same-hour:4w")
MOST_COLUMNS = 100
MOST_EARLIER = 3  # versions that a page without rows links to
KEPT_OF_ROWS = {  # by the mode of monitoring
    "off": "Monitoring of this model is off.",
    "counts": "Rows are counted within a minute of being served.",
    "rows": "Rows are stored, and counted within a minute of being served.",
}
N_PICTURES = 6  # of the columns that have changed most


@render_as_page("monitoring.html")
def monitoring_overview_screen(request: Request) -> JSONObject:
    """Show every model with its open alerts."""
    workspace = workspace_from_request(request)
    return {
        "models": [model_summary(workspace, model) for model in product.list_models(workspace, MOST).items],
        "states": product.load_monitoring_states(workspace),
        "n_open": open_alert_counts(workspace),
        "alerts": product.list_alerts(workspace)[:MOST],
        "calls": [Call("GET", "/v1/alerts")],
    }


@render_as_page("monitoring_model.html")
def model_monitoring_screen(request: Request) -> JSONObject:
    """Show the monitoring of one model: rows, causes, columns by effect, a timeline, labels, alerts."""
    workspace, reference = workspace_from_request(request), request.path_params["reference"]
    shown = product.find_version(workspace, reference)
    window = request.query_params.get("window", "24h")
    whole = request.query_params.get("span", window)
    whole = whole if whole in WINDOWS else "24h"
    until = parse_until_parameter(request.query_params.get("until"))
    against = request.query_params.get("against", "training")
    column = request.query_params.get("column")
    head: JSONObject = {
        "name": shown.name,
        "reference": reference,
        "shown": shown,
        "window": window,
        "windows": tuple(dict.fromkeys([*WINDOWS, window])),
        "span": whole,
        "step": WINDOWS[whole],
        "until": until,
        "labels_span": "30d" if whole == "30d" else "7d",
        "against": against,
        "references": AGAINST,
        "reason": None,
        "earlier": [],
        "alerts": product.list_alerts(workspace, shown.name)[:MOST],
        "rule": product.alert_rule(workspace, shown.name),
        "calls": [
            Call("GET", f"/v1/models/{reference}/monitoring?window={window}&against={against}"),
            Call("GET", f"/v1/models/{reference}/monitoring/performance"),
            Call("GET", f"/v1/models/{shown.name}/alert-rule"),
        ],
    }
    try:
        report = product.monitoring_window_report(workspace, reference, window=window, until=until, against=against)
    except (InvalidRequest, NotFound) as reason:
        return head | {"reason": f"There is nothing to show. {reason}"}
    if report["is_drifting"] is None:
        why = str(report.get("why", ""))
        own = f"Version {shown.version}: {why}. {KEPT_OF_ROWS.get(report['mode'], '')}".strip()
        earlier = product.earlier_versions_with_served_rows(workspace, shown.name, shown.version, MOST_EARLIER)
        return head | {"reason": own, "earlier": earlier}
    columns = [{**row, "quality": largest_rate_change_words(row)} for row in report["columns"][:MOST_COLUMNS]]
    return head | {
        "found": report,
        "columns": columns,
        "pictures": [
            _column(workspace, reference, each["column"], window, against, until)
            for each in columns[:N_PICTURES]
            if each["is_alarming"] or each["quality"]
        ],
        "timeline": product.monitoring_windows(workspace, reference, since=whole, step=WINDOWS[whole], against=against),
        "predicted": _predicted(workspace, reference, window, until),
        "performance": _performance(workspace, reference, head["labels_span"]),
        "column": _column(workspace, reference, column, window, against, until) if column else None,
    }


def parse_until_parameter(text: str | None) -> datetime | None:
    """Parse the moment in a URL; None (now) if it is absent, InvalidRequest if it is invalid."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"until={text!r} is not a timestamp. Use a form such as 2026-01-31T12:00:00+00:00."
        ) from error


def _predicted(workspace: Workspace, reference: str, window: str, until: datetime | None) -> JSONObject | None:
    """Return predicted classes by confidence, in the bins that have predictions; None for a model without a class."""
    try:
        predictions = product.prediction_confidence_counts(workspace, reference, window=window, until=until)
    except InvalidRequest:
        return None
    bins = zip(predictions["bins"], zip(*predictions["counts"], strict=True), strict=True)
    return {
        "classes": predictions["classes"],
        "rows": [{"from": low, "counts": list(counts)} for low, counts in bins if any(n != 0 for n in counts)],
    }


def _performance(workspace: Workspace, reference: str, window: str) -> JSONObject:
    """Return the performance on labels; for a model without a class, the reason for its absence."""
    try:
        return dict(product.monitoring_performance(workspace, reference, window=window))
    except InvalidRequest as reason:
        return {"why": str(reason)}


def _column(
    workspace: Workspace, reference: str, column: str, window: str, against: str, until: datetime | None
) -> JSONObject:
    """Return the shares of each value in the window and in the reference; None for cells too small to show."""
    shares = product.monitoring_column_counts(workspace, reference, column, window=window, until=until, against=against)
    for name in ("window", "expected"):
        total = sum(n for n in shares[name] if n is not None) or 1.0
        shares[f"{name}_shares"] = [None if n is None else n / total for n in shares[name]]
    return shares
