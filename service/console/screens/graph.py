"""The graph of a model: layers of columns, a neighbourhood where there are many, and the table behind each column."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import cast
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.requests import Request

from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from service import product
from service.console.pages import page, whole_number, workspace_of
from service.console.rendering import Call
from service.console.screens.monitoring import moment_of
from service.product.views.graphs import NoGraph, family_of, graph_of, outline
from service.product.views.regions import unfolded
from service.product.views.structure_svg import to_svg
from service.requests.json_values import JSONObject
from service.serving.predictor import Predictor
from service.workspace import Workspace

# From so many columns on, a neighbourhood is shown.
MANY = 100
MOST_STEPS = 4
MOST_DIGITS = 10
# What an address of a graph with drift names: the window, its end and what it is compared with.
ASKED_OF_DRIFT = ("drift", "until", "against")


@page("graph.html")
def graph(request: Request) -> JSONObject:
    """All columns, or those around one; of a circuit its regions."""
    reference = request.path_params["reference"]
    predictor: Predictor = request.app.state.predictor
    model = (predictor.served(reference) or predictor.resolve(reference)).model
    shown = product.find_version(workspace_of(request), reference)
    told: JSONObject = {
        "name": shown.name,
        "reference": reference,
        "shown": shown,
        "calls": [
            Call("GET", f"/v1/models/{reference}/structure"),
            Call("GET", f"/v1/models/{reference}/structure.svg"),
        ],
        "is_circuit": isinstance(model, CircuitModel) and not isinstance(model, GaussianModel),
        "reason": None,
    }
    try:
        whole = graph_of(model)
    except NoGraph as reason:
        return told | {"reason": str(reason)}
    focus, steps = (
        request.query_params.get("around", ""),
        whole_number(request.query_params.get("steps"), 1, MOST_STEPS),
    )
    if not focus and len(whole.columns) > MANY:
        focus = whole.target or (whole.columns[0] if whole.columns else "")
    near = whole.around(focus, steps) if focus else whole
    link = _link(reference)
    drift = {name: request.query_params[name] for name in ASKED_OF_DRIFT if request.query_params.get(name)}
    until = moment_of(drift.get("until"))
    blamed = blamed_columns(workspace_of(request), reference, drift, until) if "drift" in drift else {}
    picture = to_svg(near, f"{shown.name}@{shown.version}", link, alone=False, blamed=blamed)
    return told | {
        "focus": focus,
        "window": drift.get("drift"),
        "until": until,
        "drift": drift,
        "blamed": blamed,
        "steps": steps,
        "n_columns": len(whole.columns),
        "n_shown": len(near.columns),
        "names": [*([whole.target] if whole.target is not None else []), *whole.columns],
        "unit": near.unit,
        # Every text in it was escaped where it was written.
        "picture": Markup(picture),
        "outline": outline(near),
        "target": whole.target,
        "around": {
            name: f"/console/models/{quote(reference)}/graph?{urlencode({'around': name, **drift})}"
            for name in near.columns
        },
        "links": {name: link(name) for name in near.columns},
    }


def blamed_columns(
    workspace: Workspace, reference: str, asked: Mapping[str, str], until: datetime | None
) -> dict[str, str]:
    """The columns with an alarm in a window of served rows, each with how much it has changed given its parents.

    `asked` names the window (`drift`) and what it is compared with (`against`; by default what the alerts of the
    model compare with).
    """
    against = asked.get("against") or str(
        product.alert_rule(workspace, product.find_version(workspace, reference).name)["against"]
    )
    found = product.monitoring_families(workspace, reference, window=asked["drift"], until=until, against=against)
    columns = cast("list[JSONObject]", found["families"])
    return {each["column"]: f"changed by {each['family_nats']:.3g} nats" for each in columns if each["is_alarming"]}


@page("family.html")
def family(request: Request) -> JSONObject:
    """The table behind one column: rows and probabilities in each context of its parents."""
    reference, column = request.path_params["reference"], request.path_params["column"]
    predictor: Predictor = request.app.state.predictor
    model = (predictor.served(reference) or predictor.resolve(reference)).model
    shown = product.find_version(workspace_of(request), reference)
    return {
        "name": shown.name,
        "reference": reference,
        "shown": shown,
        "family": family_of(model, column),
        "around": f"/console/models/{quote(reference)}/graph?{urlencode({'around': column})}",
        "calls": [Call("GET", f"/v1/models/{reference}/families/{quote(column, safe='')}")],
    }


@page("regions.html")
def circuit(request: Request) -> JSONObject:
    """The circuit of a model, or the one that its network compiles to, by regions that unfold."""
    reference, asked = request.path_params["reference"], request.query_params.get("region", "")
    predictor: Predictor = request.app.state.predictor
    model = (predictor.served(reference) or predictor.resolve(reference)).model
    shown = product.find_version(workspace_of(request), reference)
    told = unfolded(model, int(asked) if asked.isdecimal() and len(asked) < MOST_DIGITS else None)
    base = f"/console/models/{quote(reference)}/regions"
    numbers = {name: number for number, name in told["names"].items()}
    title = f"{shown.name}@{shown.version}, region {told['number']}"
    picture = to_svg(told.pop("graph"), title, lambda name: f"{base}?region={numbers[name]}", alone=False)
    return told | {
        "name": shown.name,
        "reference": reference,
        "shown": shown,
        "base": base,
        "picture": Markup(picture),  # every text in it was escaped where it was written
        "calls": [Call("GET", f"/v1/models/{reference}/circuit?format=json")],
    }


def _link(reference: str) -> Callable[[str], str]:
    return lambda column: f"/console/models/{quote(reference)}/graph/{quote(column, safe='')}"
