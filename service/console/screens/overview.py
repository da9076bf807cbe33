"""The first screen: a line for each model, and what is at work."""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import islice

from starlette.requests import Request

from service import product
from service.console.pages import MOST, page, part_of_list, workspace_of
from service.console.rendering import Call
from service.requests.json_values import JSONObject
from service.workspace import Workspace
from storage.control.paging import pages
from storage.errors import NotFound
from storage.models.model_versions import CHAMPION, RegisteredModel

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


@page("overview.html")
def overview(request: Request) -> JSONObject:
    """Models by name, with what is served of each; jobs that run or wait."""
    workspace, parameters = workspace_of(request), request.query_params
    search, sort = parameters.get("q", "").strip(), parameters.get("sort", "")
    limit, cursor = part_of_list(request)
    if search or sort in SORTS:  # of all models, not of one page
        found = islice(pages(partial(product.list_models, workspace)), MOST)
        lines = [line for model in found if matches(line := line_of(workspace, model), search)]
        next_cursor = None
    else:
        listed = product.list_models(workspace, limit, cursor)
        lines, next_cursor = [line_of(workspace, model) for model in listed.items], listed.next_cursor
    queue = product.job_queue(workspace)
    return {
        "states": product.model_states(workspace),
        "n_open": open_alerts(workspace),
        "search": search,
        "sort": sort if sort in SORTS else "name",
        "models": ordered(lines, sort),
        "is_first": cursor is None,
        "next_cursor": next_cursor,
        "jobs": queue.list(state="running", limit=N_JOBS).items,
        "n_queued": queue.count("queued"),
        "workspace_path": str(workspace.settings.workspace),
        "calls": [
            Call("GET", "/v1/models"),
            Call("GET", "/v1/jobs?state=running"),
            Call("GET", "/v1/alerts?is_open=true"),
        ],
    }


def matches(line: JSONObject, search: str) -> bool:
    """Whether a model has all the words in its name, its learner, its aliases or its tags ("tag: what it says")."""
    served = line["served"]
    tags = [] if served is None else [served.learner, *(f"{tag}: {value}" for tag, value in served.tags.items())]
    text = " ".join([line["name"], *line["aliases"], *tags]).lower()
    return all(word in text for word in search.lower().split())


def _or_last(value: float | None) -> float:
    return LACKING if value is None else value


def ordered(lines: list[JSONObject], sort: str) -> list[JSONObject]:
    """The lines by what is asked for."""
    return sorted(lines, key=SORTS[sort]) if sort in SORTS else lines


def open_alerts(workspace: Workspace) -> dict[str, int]:
    """How many alerts of each model are open."""
    return dict(Counter(alert["model"] for alert in product.list_alerts(workspace, is_open=True)))


def line_of(workspace: Workspace, model: RegisteredModel) -> JSONObject:
    """What is served under a model's bare name, and how good it was when it was trained."""
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
