"""Whether the models are still right: what was served, what has changed and why, what labels say, and alerts."""

from starlette.requests import Request

from service import product
from service.console.pages import page, workspace_of
from service.console.rendering import Call
from service.console.screens.overview import line_of
from service.json_values import JSONObject
from service.problems import InvalidRequest
from service.workspace import Workspace
from storage.errors import NotFound

MOST = 200
NO_DATA = "This model has no monitoring data."
# What a timeline is made of, by the length of the window.
WINDOWS = {"24h": "1h", "7d": "6h", "30d": "24h"}
AGAINST = ("training", "window:7d", "same-hour:4w")
MOST_COLUMNS = 100


@page("monitoring.html")
def overview(request: Request) -> JSONObject:
    """Every model with its open alerts."""
    workspace = workspace_of(request)
    alerts = product.list_alerts(workspace)
    n_open: dict[str, int] = {}
    for alert in alerts:
        if alert["resolved_at"] is None:
            n_open[alert["model"]] = n_open.get(alert["model"], 0) + 1
    return {
        "models": [line_of(workspace, model) for model in product.list_models(workspace, MOST).items],
        "n_open": n_open,
        "alerts": alerts[:MOST],
        "calls": [Call("GET", "/v1/alerts")],
    }


@page("monitoring_model.html")
def of_model(request: Request) -> JSONObject:
    """One model: rows, causes, columns by effect, a timeline, labels, alerts."""
    workspace, reference = workspace_of(request), request.path_params["reference"]
    shown = product.find_version(workspace, reference)
    window = request.query_params.get("window", "24h")
    window = window if window in WINDOWS else "24h"
    against = request.query_params.get("against", "training")
    column = request.query_params.get("column")
    told: JSONObject = {
        "name": shown.name,
        "reference": reference,
        "shown": shown,
        "window": window,
        "windows": tuple(WINDOWS),
        "against": against,
        "references": AGAINST,
        "reason": None,
        "alerts": product.list_alerts(workspace, shown.name)[:MOST],
        "rule": product.alert_rule(workspace, shown.name),
        "calls": [
            Call("GET", f"/v1/models/{reference}/monitoring?window={window}&against={against}"),
            Call("GET", f"/v1/models/{reference}/monitoring/performance"),
            Call("GET", f"/v1/models/{shown.name}/alert-rule"),
        ],
    }
    try:
        found = product.monitoring(workspace, reference, window=window, against=against)
    except (InvalidRequest, NotFound) as reason:
        return told | {"reason": f"{NO_DATA} {reason}"}
    if found["is_drifting"] is None:
        why = str(found.get("why", ""))
        return told | {"reason": f"{NO_DATA} {why[:1].upper()}{why[1:]}. What is kept of served rows: {found['mode']}."}
    return told | {
        "found": found,
        "columns": _rows(found.get("columns")),
        "timeline": product.monitoring_windows(
            workspace, reference, since=window, step=WINDOWS[window], against=against
        ),
        "performance": _performance(workspace, reference),
        "column": _column(workspace, reference, column, window, against) if column else None,
    }


def _performance(workspace: Workspace, reference: str) -> JSONObject:
    """What labels say; of a model without a class, why they say nothing."""
    try:
        return dict(product.performance(workspace, reference, window="7d"))
    except InvalidRequest as reason:
        return {"why": str(reason)}


def _rows(told: object) -> list[JSONObject]:
    """The columns with the largest effects."""
    return list(told)[:MOST_COLUMNS] if isinstance(told, list) else []


def _column(workspace: Workspace, reference: str, column: str, window: str, against: str) -> JSONObject:
    """The shares of each value in the window and in the reference; None of cells that are too small to show."""
    told = dict(product.monitoring_column(workspace, reference, column, window=window, against=against))
    for name in ("window", "expected"):
        cells = [None if n is None else float(n) for n in _cells(told[name])]
        total = sum(n for n in cells if n is not None) or 1.0
        told[f"{name}_shares"] = [None if n is None else n / total for n in cells]
    return told


def _cells(told: object) -> list[float | None]:
    return told if isinstance(told, list) else []
