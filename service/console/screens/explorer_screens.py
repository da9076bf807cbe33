"""The explorer of a model's graph: columns in layers or circuit regions, the table behind each column, and values to
suppose; POST /v1/models/{name}/whatif answers.
"""

import re
import sys
from collections.abc import Mapping
from datetime import datetime
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.requests import Request

from learners.registry.column_graphs import ColumnGraph, graph_outline
from learners.registry.model_kinds import kind_of
from learners.schema import Attribute
from learners.schema.value_choices import attribute_value_choices
from service import product
from service.console.page_requests import parse_bounded_int
from service.console.page_text import format_number
from service.console.pages import Call, render_as_page
from service.console.screens.monitoring_screens import parse_until_parameter
from service.product.inference.metric_words import interval_words
from service.product.views.graph_svg import Bars, column_graph_svg
from service.product.views.regions import region_graph
from service.product.views.version_views import model_family_table
from service.requests.json_values import JSONObject, whole_number_or_none
from service.serving.application_state import served_model_from_request, workspace_from_request
from service.serving.predictor import Served
from service.workspace import Workspace

# From so many columns on, a neighbourhood is shown.
MANY = 100
MOST_STEPS = 4
# More intervals would be thinner than a click.
MOST_UPRIGHT = 120
# What an address of a graph with drift names: the window, its end and what it is compared with.
DRIFT_PARAMETERS = ("drift", "until", "against")


@render_as_page("graph.html")
def explorer_graph_screen(request: Request) -> JSONObject:
    """Show all columns, or those around one, with a bar for each value; for a circuit, its regions."""
    reference = request.path_params["reference"]
    served = served_model_from_request(request, reference)
    kind = kind_of(served.model)
    if kind.is_circuit and not kind.can("graph"):
        return _regions(request)
    context, bars = _explorer(request, served, reference)
    whole = kind.graph(served.model)
    focus, steps = (
        request.query_params.get("around", ""),
        parse_bounded_int(request.query_params.get("steps"), 1, MOST_STEPS),
    )
    if not focus and len(whole.columns) > MANY:
        focus = whole.target or (whole.columns[0] if whole.columns else "")
    near = whole.around(focus, steps) if focus else whole
    has_tables = bool(whole.of_class)

    def link(column: str) -> str:
        return f"/console/models/{quote(reference)}/graph/{quote(column, safe='')}"

    drift = {name: request.query_params[name] for name in DRIFT_PARAMETERS if request.query_params.get(name)}
    until = parse_until_parameter(drift.get("until"))
    blamed = drift_alarm_columns(workspace_from_request(request), reference, drift, until) if "drift" in drift else {}
    name = f"{context['name']}@{served.version}"
    picture = column_graph_svg(
        near, name, link if has_tables else lambda _: None, alone=False, blamed=blamed, bars=bars
    )
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
        "outline": graph_outline(near),
        "target": whole.target,
        "around": {
            name: f"/console/models/{quote(reference)}/graph?{urlencode({'around': name, **drift})}"
            for name in near.columns
        },
        "links": {name: link(name) for name in near.columns} if has_tables else {},
        "regions": None,
    }


@render_as_page("graph.html")
def explorer_circuit_screen(request: Request) -> JSONObject:
    """Show the circuit of a model, or the one its network compiles to, as regions that expand."""
    return _regions(request)


def _regions(request: Request) -> JSONObject:
    reference = request.path_params["reference"]
    served = served_model_from_request(request, reference)
    context, bars = _explorer(request, served, reference)
    text = request.query_params.get("open")
    named = () if text is None else (whole_number_or_none(each, sys.maxsize) for each in text.split(","))
    opened = None if text is None else {number for number in named if number is not None}
    if not kind_of(served.model).has_regions:
        columns = tuple(column["name"] for column in context["start"]["columns"])
        drawn: JSONObject = {"graph": ColumnGraph(None, columns, (), {}, ""), "names": {}, "regions": {}}
    else:
        drawn = region_graph(served.model, opened)
    numbers = {name: number for number, name in drawn["names"].items()}

    def link(name: str) -> str | None:
        number = numbers.get(name)
        if number is None or not drawn["regions"][number].children:
            return None
        base = f"/console/models/{quote(reference)}/regions"
        return f"{base}?open={','.join(map(str, sorted(drawn['opened'] ^ {number})))}"

    graph = drawn.pop("graph")
    picture = column_graph_svg(graph, f"{context['name']}@{served.version}", link, alone=False, bars=bars)
    links = {number: link(name) for name, number in numbers.items()}
    calls = [*context["calls"], Call("GET", f"/v1/models/{reference}/circuit?format=json")]
    return context | drawn | {"picture": Markup(picture), "links": links, "calls": calls}


def _explorer(request: Request, served: Served, reference: str) -> tuple[JSONObject, dict[str, Bars]]:
    """Return the state shared by all clickable pictures of a model, and the bars in its boxes."""
    start = initial_explorer_state(served, reference)
    shown = product.find_version(workspace_from_request(request), reference)
    calls = [
        Call("GET", f"/v1/models/{reference}/structure"),
        Call("GET", f"/v1/models/{reference}/structure.svg"),
        Call("POST", f"/v1/models/{reference}/whatif", {"evidence": {}}),
    ]
    context = {"name": shown.name, "reference": reference, "shown": shown, "start": start, "calls": calls}
    return context, {} if start["is_of_structures"] else explorer_value_bars(start)


def explorer_value_bars(start: JSONObject) -> dict[str, Bars]:
    """Return a bar for each value known to the explorer; for numbers without intervals, a bar over their central range."""
    bars = {}
    for column in start["columns"]:
        is_numeric = column["kind"] == "numeric"
        has_list = not column["is_continuous"] and (not is_numeric or len(column["values"]) <= MOST_UPRIGHT)
        words = [each["words"] for each in column["values"] if has_list or each["value"] is None]
        bars[column["name"]] = Bars(words, is_numeric, None if has_list else column["ends"])
    if start["target"] is not None:
        bars[start["target"]] = Bars([str(each) for each in start["classes"]])
    return bars


def drift_alarm_columns(
    workspace: Workspace, reference: str, parameters: Mapping[str, str], until: datetime | None
) -> dict[str, str]:
    """Return the columns with an alarm in a window of served rows, each with its change given its parents.

    `parameters` name the window (`drift`) and what it is compared with (`against`; by default what the alerts of the
    model compare with).
    """
    against = parameters.get("against")
    if not against:
        against = product.alert_rule(workspace, product.find_version(workspace, reference).name)["against"]
    drift = product.monitoring_family_drift(
        workspace, reference, window=parameters["drift"], until=until, against=against
    )
    return {
        each["column"]: f"changed: {each['family_nats']:.3g} of added log loss"
        for each in drift["families"]
        if each["is_alarming"]
    }


@render_as_page("family.html")
def explorer_family_screen(request: Request) -> JSONObject:
    """Show the table behind one column: rows and probabilities in each context of its parents."""
    reference, column = request.path_params["reference"], request.path_params["column"]
    shown = product.find_version(workspace_from_request(request), reference)
    return {
        "name": shown.name,
        "reference": reference,
        "shown": shown,
        "family": model_family_table(served_model_from_request(request, reference).model, column),
        "around": f"/console/models/{quote(reference)}/graph?{urlencode({'around': column})}",
        "calls": [Call("GET", f"/v1/models/{reference}/families/{quote(column, safe='')}")],
    }


MOST_INTERVALS = 40
DAY = len("2026-01-31")
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*")


@render_as_page("what_if.html")
def what_if_explorer_screen(request: Request) -> JSONObject:
    """Show the columns of a model with their values, as the start of the explorer."""
    reference = request.path_params["reference"]
    served = served_model_from_request(request, reference)
    workspace = workspace_from_request(request)
    return {
        "name": served.name,
        "reference": reference,
        "shown": product.find_version(workspace, reference),
        "start": initial_explorer_state(served, reference),
        "calls": [Call("POST", f"/v1/models/{reference}/whatif", {"evidence": {}})],
    }


def initial_explorer_state(served: Served, reference: str) -> JSONObject:
    """Return the initial state of the explorer: the columns, and the evidence that a click on a value sets.

    Values are those in which the joint distribution answers. If there are too many intervals, it lists none, and a number can be typed.
    """
    # The joint member of an ensemble has fewer cuts than the ensemble, and answers in its own words.
    schema, summed_out = served.model.joint.schema, served.model.columns_without_missing_state()
    columns = [
        {
            "name": attribute.name,
            "kind": attribute.kind,
            "is_time": attribute.is_time or attribute.clock is not None,
            "values": [
                {
                    "label": label,
                    # A click on an interval supposes the interval, not a number in it.
                    "value": value if attribute.kind == "nominal" or value is None else label,
                    "words": value_label_text(attribute, label),
                }
                for label, value in attribute_value_choices(attribute)
                if value is not None or attribute.name not in summed_out
            ],
            "is_listed": attribute.kind == "nominal" or attribute.n_values <= MOST_INTERVALS,
            "is_continuous": attribute.distribution is not None,
            "is_date": attribute.is_time,
            "ends": _ends(attribute),
            "range": [attribute.quantiles[0], attribute.quantiles[-1]] if attribute.quantiles else None,
        }
        for attribute in schema.attributes
    ]
    return {
        "reference": reference,
        "target": served.schema.target,
        "classes": served.classes if served.schema.target is not None else [],
        "columns": columns,
        "is_of_structures": kind_of(served.model).can("structures"),
        "has_arcs": kind_of(served.model).has_arcs,
    }


def value_label_text(attribute: Attribute, label: str) -> str:
    """Format the label of a value: intervals in words, and times as days if all cut points fall on different days."""
    if attribute.kind == "nominal" or attribute.part is not None:
        return label
    words = interval_words(label)
    if not attribute.is_time:
        return words
    n_days = len({word[:DAY] for word in attribute.cuts_in_words()})
    return MOMENT.sub(r"\1" if n_days == len(attribute.cuts) else r"\1 \2", words)


def _ends(attribute: Attribute) -> tuple[str, str] | None:
    """Return the smallest and largest number seen in training, formatted; None without quantiles."""
    if not attribute.quantiles:
        return None
    least, most = (attribute.number_in_words(end) for end in (attribute.quantiles[0], attribute.quantiles[-1]))
    return (str(least)[:DAY], str(most)[:DAY]) if attribute.is_time else (format_number(least), format_number(most))
