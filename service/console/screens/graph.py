"""The graph of a model, by which it is asked: columns in layers or regions of a circuit, and the table behind each column."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.requests import Request

from learners.circuits.mixtures.model import GaussianModel
from learners.circuits.model import CircuitModel
from learners.registry.networks.model import ArcModel
from service import product
from service.console.pages import page, served_of, whole_number, workspace_of
from service.console.rendering import Call
from service.console.screens.monitoring import moment_of
from service.console.screens.what_if import start_of
from service.product.views.column_graphs import ColumnGraph, family_of, graph_of, outline
from service.product.views.graph_svg import Bars, to_svg
from service.product.views.regions import unfolded
from service.requests.json_values import JSONObject
from service.serving.predictor import Served
from service.workspace import Workspace

# From so many columns on, a neighbourhood is shown.
MANY = 100
MOST_STEPS = 4
# More intervals would be thinner than a click.
MOST_UPRIGHT = 120
# What an address of a graph with drift names: the window, its end and what it is compared with.
DRIFT_PARAMETERS = ("drift", "until", "against")


@page("graph.html")
def graph(request: Request) -> JSONObject:
    """All columns, or those around one, with a bar for each value; of a circuit its regions."""
    reference = request.path_params["reference"]
    served = served_of(request, reference)
    if isinstance(served.model, CircuitModel) and not isinstance(served.model, ArcModel):
        return _regions(request)
    context, bars = _explorer(request, served, reference)
    whole = graph_of(served.model)
    focus, steps = (
        request.query_params.get("around", ""),
        whole_number(request.query_params.get("steps"), 1, MOST_STEPS),
    )
    if not focus and len(whole.columns) > MANY:
        focus = whole.target or (whole.columns[0] if whole.columns else "")
    near = whole.around(focus, steps) if focus else whole
    has_tables = bool(whole.of_class)

    def link(column: str) -> str:
        return f"/console/models/{quote(reference)}/graph/{quote(column, safe='')}"

    drift = {name: request.query_params[name] for name in DRIFT_PARAMETERS if request.query_params.get(name)}
    until = moment_of(drift.get("until"))
    blamed = blamed_columns(workspace_of(request), reference, drift, until) if "drift" in drift else {}
    name = f"{context['name']}@{served.version}"
    picture = to_svg(near, name, link if has_tables else lambda _: None, alone=False, blamed=blamed, bars=bars)
    return context | {
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
        "links": {name: link(name) for name in near.columns} if has_tables else {},
        "regions": None,
    }


@page("graph.html")
def circuit(request: Request) -> JSONObject:
    """The circuit of a model, or the one that its network compiles to, by regions that unfold."""
    return _regions(request)


def _regions(request: Request) -> JSONObject:
    reference = request.path_params["reference"]
    served = served_of(request, reference)
    context, bars = _explorer(request, served, reference)
    text = request.query_params.get("open")
    opened = None if text is None else {int(each) for each in text.split(",") if each.isdecimal()}
    if isinstance(served.model, GaussianModel):
        columns = tuple(column["name"] for column in context["start"]["columns"])
        found: JSONObject = {"graph": ColumnGraph(None, columns, (), {}, ""), "names": {}, "regions": {}}
    else:
        found = unfolded(served.model, opened)
    numbers = {name: number for number, name in found["names"].items()}

    def link(name: str) -> str | None:
        number = numbers.get(name)
        if number is None or not found["regions"][number].children:
            return None
        base = f"/console/models/{quote(reference)}/regions"
        return f"{base}?open={','.join(map(str, sorted(found['opened'] ^ {number})))}"

    graph = found.pop("graph")
    picture = to_svg(graph, f"{context['name']}@{served.version}", link, alone=False, bars=bars)
    links = {number: link(name) for name, number in numbers.items()}
    calls = [*context["calls"], Call("GET", f"/v1/models/{reference}/circuit?format=json")]
    return context | found | {"picture": Markup(picture), "links": links, "calls": calls}


def _explorer(request: Request, served: Served, reference: str) -> tuple[JSONObject, dict[str, Bars]]:
    """What every picture of a model needs that can be asked by clicks, and the bars in its boxes."""
    start = start_of(served, reference)
    shown = product.find_version(workspace_of(request), reference)
    calls = [
        Call("GET", f"/v1/models/{reference}/structure"),
        Call("GET", f"/v1/models/{reference}/structure.svg"),
        Call("POST", f"/v1/models/{reference}/whatif", {"evidence": {}}),
    ]
    context = {"name": shown.name, "reference": reference, "shown": shown, "start": start, "calls": calls}
    return context, {} if start["is_of_structures"] else bars_of(start)


def bars_of(start: JSONObject) -> dict[str, Bars]:
    """A bar for each value that the explorer knows; of numbers without intervals, where most of them lie."""
    found = {}
    for column in start["columns"]:
        is_numeric = column["kind"] == "numeric"
        has_list = not column["is_continuous"] and (not is_numeric or len(column["values"]) <= MOST_UPRIGHT)
        words = [each["words"] for each in column["values"] if has_list or each["value"] is None]
        found[column["name"]] = Bars(words, is_numeric, None if has_list else column["ends"])
    if start["target"] is not None:
        found[start["target"]] = Bars([str(each) for each in start["classes"]])
    return found


def blamed_columns(
    workspace: Workspace, reference: str, parameters: Mapping[str, str], until: datetime | None
) -> dict[str, str]:
    """The columns with an alarm in a window of served rows, each with how much it has changed given its parents.

    `parameters` name the window (`drift`) and what it is compared with (`against`; by default what the alerts of the
    model compare with).
    """
    against = parameters.get("against")
    if not against:
        against = product.alert_rule(workspace, product.find_version(workspace, reference).name)["against"]
    found = product.monitoring_families(workspace, reference, window=parameters["drift"], until=until, against=against)
    return {
        each["column"]: f"changed: {each['family_nats']:.3g} of added log loss"
        for each in found["families"]
        if each["is_alarming"]
    }


@page("family.html")
def family(request: Request) -> JSONObject:
    """The table behind one column: rows and probabilities in each context of its parents."""
    reference, column = request.path_params["reference"], request.path_params["column"]
    shown = product.find_version(workspace_of(request), reference)
    return {
        "name": shown.name,
        "reference": reference,
        "shown": shown,
        "family": family_of(served_of(request, reference).model, column),
        "around": f"/console/models/{quote(reference)}/graph?{urlencode({'around': column})}",
        "calls": [Call("GET", f"/v1/models/{reference}/families/{quote(column, safe='')}")],
    }
