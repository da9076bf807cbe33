"""Model screens: the list of models and running jobs; for one model its versions and metrics, aliases, decisions and
lineage.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TypeGuard

from starlette.requests import Request

from learners.passes.sources.file_formats import FORMAT_NAMES
from learners.schema.value_choices import attribute_value_choices
from service import product
from service.console.page_requests import MOST, page_limit_and_cursor
from service.console.pages import Call, render_as_page
from service.product.datasets.example_data import EXAMPLE, TARGET
from service.product.views.reports import LOSSES
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.serving.application_state import workspace_from_request
from service.serving.predictor import map_model_version
from service.workspace import Workspace
from storage.control.paging import iterate_page_items
from storage.errors import NotFound, StorageError
from storage.models.model_versions import CHAMPION, ModelVersion, RegisteredModel

N_JOBS = 10


LACKING = math.inf
# What the list can be sorted by, besides the name; what a model lacks comes last.
SORTS: dict[str, Callable[[JSONObject], float]] = {
    "age": lambda line: -line["served"].created_at.timestamp() if line["served"] else LACKING,
    "rows": lambda line: -line["served"].n_rows if line["served"] else LACKING,
    "wrong": lambda line: _or_last(line["metrics"].get("zero_one_loss")),
    "loss": lambda line: _or_last(line["metrics"].get("log_loss")),
    "versions": lambda line: -line["n_versions"],
}


@render_as_page("overview.html")
def models_overview_screen(request: Request) -> JSONObject:
    """List the models by name with their served versions, and the running and queued jobs."""
    workspace, parameters = workspace_from_request(request), request.query_params
    search, sort = parameters.get("q", "").strip(), parameters.get("sort", "")
    limit, cursor = page_limit_and_cursor(request)
    if search or sort in SORTS:  # of all models, not of one page
        models = islice(iterate_page_items(partial(product.list_models, workspace)), MOST)
        lines = [line for model in models if matches_model_search(line := model_summary(workspace, model), search)]
        next_cursor = None
    else:
        listed = product.list_models(workspace, limit, cursor)
        lines, next_cursor = [model_summary(workspace, model) for model in listed.items], listed.next_cursor
    queue = product.job_queue(workspace)
    return {
        "states": product.load_monitoring_states(workspace),
        "n_open": open_alert_counts(workspace),
        "search": search,
        "sort": sort if sort in SORTS else "name",
        "models": sort_model_summaries(lines, sort),
        "is_first": cursor is None,
        "next_cursor": next_cursor,
        "jobs": queue.list(state="running", limit=N_JOBS).items,
        "n_queued": queue.count("queued"),
        "workspace_path": str(workspace.settings.workspace),
        "example": {"dataset": EXAMPLE, "target": TARGET},
        "formats": FORMAT_NAMES,
        "calls": [
            Call("GET", "/v1/models"),
            Call("GET", "/v1/jobs?state=running"),
            Call("GET", "/v1/alerts?is_open=true"),
        ],
    }


def matches_model_search(line: JSONObject, search: str) -> bool:
    """Return whether a model has all search words in its name, learner, aliases or tags ("tag: value")."""
    served = line["served"]
    tags = [] if served is None else [served.learner, *(f"{tag}: {value}" for tag, value in served.tags.items())]
    text = " ".join([line["name"], *line["aliases"], *tags]).lower()
    return all(word in text for word in search.lower().split())


def _or_last(value: float | None) -> float:
    return LACKING if value is None else value


def sort_model_summaries(lines: list[JSONObject], sort: str) -> list[JSONObject]:
    """Sort the model summaries by the requested key."""
    return sorted(lines, key=SORTS[sort]) if sort in SORTS else lines


def open_alert_counts(workspace: Workspace) -> dict[str, int]:
    """Count the open alerts of each model."""
    return dict(Counter(alert["model"] for alert in product.list_alerts(workspace, is_open=True)))


def model_summary(workspace: Workspace, model: RegisteredModel) -> JSONObject:
    """Summarise the version served under a model's bare name, with its metrics from training."""
    try:
        version = product.find_version(workspace, model.name)
    except NotFound:  # its last version was deleted since the list was read
        version = None
    metrics = {} if version is None else dict(version.metrics)
    return {
        "name": model.name,
        "n_versions": model.n_versions,
        "latest": model.latest_version,
        "aliases": dict(model.aliases),
        "champion": model.aliases.get(CHAMPION),
        "served": version,
        "metrics": metrics,
        # The two have different measures, which never stand in one column.
        "is_of_rows": metrics.get("log_likelihood") is not None,
    }


N_DECISIONS = 20
MOST_SHARES = 12
MOST_EXAMPLE = 20
# Shown beside each other, where a version has them; the comparison of two versions shows all.
LEAST_SPREAD = 0.2  # of the largest value: what the axis of a metric over the versions covers at least
FIRST_METRICS = ("zero_one_loss", "log_loss", "class_shares_log_loss", "ece", "log_likelihood")
# The line of a metric is drawn with what the class shares alone lose.
FLOORS = {"log_loss": "class_shares_log_loss"}


@render_as_page("model.html")
def model_screen(request: Request) -> JSONObject:
    """Show the quality report of a version; all versions, newest first, with their metrics; aliases, decisions and
    lineage.
    """
    workspace, reference = workspace_from_request(request), request.path_params["reference"]
    shown = product.find_version(workspace, reference)
    name = shown.name
    listed = product.list_versions(workspace, name, *page_limit_and_cursor(request))
    metrics = [each for each in version_metric_names(listed.items) if each in FIRST_METRICS]
    report, predict, damage = None, None, None
    try:
        report, predict = product.load_model_report(shown), example_predict_call(shown)
    except StorageError as error:  # what the registry knows of a version is shown without its file, too
        damage = str(error)
    return {
        "name": name,
        "reference": reference,
        "shown": shown,
        "damage": damage,
        "report": report,
        "words": LOSSES,
        "most_shares": MOST_SHARES,
        "state": product.load_monitoring_states(workspace).get(name),
        "predict": predict,
        "versions": listed.items,
        "next_cursor": listed.next_cursor,
        "metrics": metrics,
        "lines": [
            line
            for each in metrics
            if each not in FLOORS.values() and (line := version_metric_sparkline(listed.items, each))
        ],
        "aliases": product.aliases_of(workspace, name),
        "history": product.alias_history(workspace, name, N_DECISIONS).items,
        "promotions": product.list_promotions(workspace, name, N_DECISIONS).items,
        "retention": product.retention_of(workspace, name),
        "others": [each.name for each in product.list_models(workspace, MOST).items if each.name != name],
        "calls": [
            Call("GET", f"/v1/models/{reference}"),
            Call("GET", f"/v1/models/{name}/versions"),
            Call("GET", f"/v1/models/{name}/promotions"),
            Call("GET", f"/v1/models/{name}/history"),
            Call("GET", f"/v1/models/{reference}/lineage"),
        ],
    }


@render_as_page("compare.html")
def compare_versions_screen(request: Request) -> JSONObject:
    """Compare two versions: metrics, parameters, and the edges that only one has."""
    workspace, name = workspace_from_request(request), request.path_params["name"]
    left, right = (_version(workspace, name, request.query_params.get(side)) for side in ("left", "right"))
    here, there = (version_graph_edges(workspace, side) for side in (left, right))
    return {
        "name": name,
        "left": left,
        "right": right,
        "metrics": version_differences(left.metrics, right.metrics),
        "parameters": version_differences(left.parameters, right.parameters),
        "titles": [
            f"version {side.version}" if side.name == name else f"{side.name}@{side.version}" for side in (left, right)
        ],
        "is_of_same_rows": [file.get("path") for file in left.files] == [file.get("path") for file in right.files],
        "only_left": sorted(here - there),
        "only_right": sorted(there - here),
        "n_shared": len(here & there),
        "calls": [Call("GET", f"/v1/models/{side.name}@{side.version}/structure") for side in (left, right)],
    }


def _version(workspace: Workspace, name: str, text: str | None) -> ModelVersion:
    if not text:
        raise InvalidRequest(
            "Name the versions to compare, such as ?left=1&right=2, or one of another model, such as ?left=1&right=other@champion.",
            field="left",
        )
    return product.find_version(workspace, f"{name}@{text}" if text.isdecimal() else text)


def version_graph_edges(workspace: Workspace, version: ModelVersion) -> set[tuple[str, str]]:
    """Return the edges between columns in a version's graph."""
    structure = product.version_structure(workspace, f"{version.name}@{version.version}")
    edges: Sequence[JSONMapping] = structure.get("edges", ())
    return {(str(edge["from"]), str(edge["to"])) for edge in edges if "from" in edge}


def version_differences(left: JSONMapping, right: JSONMapping) -> list[JSONObject]:
    """Return both values of every name, and their difference if both are numbers."""
    differences = []
    for name in sorted(left.keys() | right.keys(), key=_rank):
        a, b = left.get(name), right.get(name)
        difference = float(b) - float(a) if is_plain_number(a) and is_plain_number(b) else None
        differences.append({"name": name, "left": a, "right": b, "difference": difference, "is_equal": a == b})
    return differences


def is_plain_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number that can be drawn and subtracted."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def version_metric_names(versions: Sequence[ModelVersion]) -> list[str]:
    """Return the metrics that any version has as a number, the most important first."""
    names = {name for version in versions for name, value in version.metrics.items() if is_plain_number(value)}
    return sorted(names, key=_rank)


def version_metric_sparkline(versions: Sequence[ModelVersion], metric: str) -> JSONObject | None:
    """Draw one metric of the versions in order of creation, in a picture of 100 by 30; None with fewer than two values.

    The axis of a metric that is never negative begins at 0, and any axis covers a fifth of the size of its values or
    more, so that noise does not look like a jump.
    """
    ascending = [version for version in reversed(versions) if is_plain_number(version.metrics.get(metric))]
    if len(ascending) < 2:
        return None
    own = [float(version.metrics[metric]) for version in ascending]
    floor = [version.metrics.get(FLOORS.get(metric, "")) for version in ascending]
    known = [*own, *(float(each) for each in floor if is_plain_number(each))]
    times = [0.0 if version.created_at is None else version.created_at.timestamp() for version in ascending]
    low, high, length = min(known), max(known), times[-1] - times[0] or 1.0
    widening = max(0.0, LEAST_SPREAD * max(map(abs, known)) - (high - low)) / 2
    low, high = (0.0, high) if low >= 0 else (low - widening, high + widening)
    spread = high - low or 1.0

    def points(values: Sequence[object]) -> list[tuple[float, float]]:
        return [
            (round(2 + 96 * (at - times[0]) / length, 1), round(27 - 24 * (value - low) / spread, 1))
            for at, value in zip(times, values, strict=True)
            if is_plain_number(value)
        ]

    return {
        "name": metric,
        "last": own[-1],
        "points": points(own),
        "floor": points(floor),
        "floor_last": floor[-1],
        "low": low,
        "high": high,
        "first_at": ascending[0].created_at,
        "last_at": ascending[-1].created_at,
    }


def example_predict_call(version: ModelVersion) -> Call | None:
    """Return an example prediction to copy, with a value of each of the first columns; None for a model without a
    class.
    """
    schema = map_model_version(version).schema
    if schema.target is None:
        return None
    offered = {
        each.name: [value for _, value in attribute_value_choices(each)] for each in schema.attributes[:MOST_EXAMPLE]
    }
    record = {name: values[len(values) // 2] for name, values in offered.items() if values}
    return Call("POST", f"/v1/models/{version.name}/predict", {"records": [record]})


def _rank(name: str) -> tuple[int, str]:
    return (FIRST_METRICS.index(name) if name in FIRST_METRICS else len(FIRST_METRICS), name)
