"""One model: its versions and their metrics, its aliases and the decisions about them, where a version comes from."""

from collections.abc import Sequence
from typing import TypeGuard

from starlette.requests import Request

from service import product
from service.console.pages import page, whole_number, workspace_of
from service.console.rendering import Call
from service.requests.json_values import JSONMapping, JSONObject
from service.requests.problems import InvalidRequest
from service.workspace import Workspace
from storage.models.models import ModelVersion

PER_PAGE = 50
MOST = 500
N_DECISIONS = 20
MOST_DRAWN = 4
# Shown first, where a version has them: the rest follows by name.
FIRST_METRICS = ("log_loss", "zero_one_loss", "rmse", "ece", "log_likelihood")


@page("model.html")
def model(request: Request) -> JSONObject:
    """Versions, newest first, metrics over versions, aliases, decisions and lineage."""
    workspace, reference = workspace_of(request), request.path_params["reference"]
    shown = product.find_version(workspace, reference)
    name = shown.name
    limit = whole_number(request.query_params.get("limit"), PER_PAGE, MOST)
    listed = product.list_versions(workspace, name, limit, request.query_params.get("cursor"))
    metrics = metric_names(listed.items)
    return {
        "name": name,
        "reference": reference,
        "shown": shown,
        "versions": listed.items,
        "next_cursor": listed.next_cursor,
        "metrics": metrics,
        "series": series_of(listed.items, metrics),
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


@page("compare.html")
def compare(request: Request) -> JSONObject:
    """Two versions beside each other: metrics, parameters, and the edges that only one has."""
    workspace, name = workspace_of(request), request.path_params["name"]
    left, right = (_version(workspace, name, request.query_params.get(side)) for side in ("left", "right"))
    here, there = (edges_of(workspace, side) for side in (left, right))
    return {
        "name": name,
        "left": left,
        "right": right,
        "metrics": differences(left.metrics, right.metrics),
        "parameters": differences(left.parameters, right.parameters),
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
            "Say which versions to compare, such as ?left=1&right=2; or of another model, such as ?left=1&right=other@champion.",
            field="left",
        )
    return product.find_version(workspace, f"{name}@{text}" if text.isdecimal() else text)


def edges_of(workspace: Workspace, version: ModelVersion) -> set[tuple[str, str]]:
    """The edges of a version's graph between columns."""
    structure = product.structure(workspace, f"{version.name}@{version.version}")
    edges: Sequence[JSONMapping] = structure.get("edges", ())
    return {(str(edge["from"]), str(edge["to"])) for edge in edges if "from" in edge}


def differences(left: JSONMapping, right: JSONMapping) -> list[JSONObject]:
    """What each of two has of every name, and their difference where both have numbers."""
    found = []
    for name in sorted(left.keys() | right.keys(), key=_rank):
        a, b = left.get(name), right.get(name)
        difference = float(b) - float(a) if is_plain_number(a) and is_plain_number(b) else None
        found.append({"name": name, "left": a, "right": b, "difference": difference, "is_equal": a == b})
    return found


def is_plain_number(value: object) -> TypeGuard[int | float]:
    """Whether a value can be drawn and subtracted."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def metric_names(versions: Sequence[ModelVersion]) -> list[str]:
    """The metrics that any of the versions has as a number, those that people ask for first."""
    names = {name for version in versions for name, value in version.metrics.items() if is_plain_number(value)}
    return sorted(names, key=_rank)


def series_of(versions: Sequence[ModelVersion], metrics: Sequence[str]) -> JSONObject:
    """The first metrics over the version numbers, ascending; null where a version lacks one."""
    ascending = sorted(versions, key=lambda version: version.version)
    drawn = [name for name in metrics if name in FIRST_METRICS][:MOST_DRAWN]
    return {
        "versions": [version.version for version in ascending],
        "names": drawn,
        "lines": [
            [value if is_plain_number(value := version.metrics.get(name)) else None for version in ascending]
            for name in drawn
        ],
    }


def _rank(name: str) -> tuple[int, str]:
    return (FIRST_METRICS.index(name) if name in FIRST_METRICS else len(FIRST_METRICS), name)
