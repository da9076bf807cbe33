"""The first screen: a line for each model, and what is at work."""

from collections import Counter

from starlette.requests import Request

from service import product
from service.console.pages import page, whole_number, workspace_of
from service.console.rendering import Call
from service.product.inference.metric_words import METRIC_WORDS
from service.requests.json_values import JSONObject
from service.workspace import Workspace
from storage.errors import NotFound
from storage.models.models import CHAMPION, ModelVersion, RegisteredModel

PER_PAGE = 50
MOST = 500
N_JOBS = 10


@page("overview.html")
def overview(request: Request) -> JSONObject:
    """Models by name, with what is served of each; jobs that run or wait."""
    workspace, cursor = workspace_of(request), request.query_params.get("cursor")
    limit = whole_number(request.query_params.get("limit"), PER_PAGE, MOST)
    listed = product.list_models(workspace, limit, cursor)
    queue = product.job_queue(workspace)
    return {
        "states": product.model_states(workspace),
        "n_open": open_alerts(workspace),
        "models": [line_of(workspace, model) for model in listed.items],
        "next_cursor": listed.next_cursor,
        "jobs": queue.list(state="running", limit=N_JOBS).items,
        "n_queued": queue.count("queued"),
        "workspace_path": str(workspace.settings.workspace),
        "calls": [
            Call("GET", "/v1/models"),
            Call("GET", "/v1/jobs?state=running"),
            Call("GET", "/v1/alerts?is_open=true"),
        ],
    }


def open_alerts(workspace: Workspace) -> dict[str, int]:
    """How many alerts of each model are open."""
    return dict(Counter(alert["model"] for alert in product.list_alerts(workspace, is_open=True)))


def line_of(workspace: Workspace, model: RegisteredModel) -> JSONObject:
    """What is served under a model's bare name, and how good it was when it was trained."""
    try:
        version = product.find_version(workspace, model.name)
    except NotFound:  # its last version was deleted since the list was read
        version = None
    return {
        "name": model.name,
        "n_versions": model.n_versions,
        "latest": model.latest_version,
        "aliases": dict(model.aliases),
        "champion": model.aliases.get(CHAMPION),
        "served": version,
        "loss": None if version is None else loss_of(version),
    }


def loss_of(version: ModelVersion) -> JSONObject | None:
    """The first measure that a version has, as it was measured when the version was trained."""
    for name in ("log_loss", "zero_one_loss", "rmse", "log_likelihood"):
        if version.metrics.get(name) is not None:
            return {
                "name": METRIC_WORDS[name],
                "value": version.metrics[name],
                "of": "held-out rows of its training",
            }
    return None
