"""The what-if explorer: what can be supposed of each column. The answers come from POST /v1/models/{name}/whatif."""

import re

from starlette.requests import Request

from learners.orders.model import OrderModel
from learners.registry.networks.of_models import has_arcs
from learners.schema import Attribute
from learners.schema.labels import choices
from service import product
from service.console.pages import page, served_of, workspace_of
from service.console.rendering import Call, digits
from service.product.inference.metric_words import interval
from service.product.inference.what_if_answers import joint_schema, without_missing
from service.requests.json_values import JSONObject
from service.serving.predictor import Served

MOST_INTERVALS = 40
DAY = len("2026-01-31")
MOMENT = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d)\S*")


@page("what_if.html")
def explorer(request: Request) -> JSONObject:
    """The columns of a model with their values, for the explorer to begin with."""
    reference = request.path_params["reference"]
    served = served_of(request, reference)
    workspace = workspace_of(request)
    return {
        "name": served.name,
        "reference": reference,
        "shown": product.find_version(workspace, reference),
        "start": start_of(served, reference),
        "calls": [Call("POST", f"/v1/models/{reference}/whatif", {"evidence": {}})],
    }


def start_of(served: Served, reference: str) -> JSONObject:
    """What the explorer knows before it asks: the columns, and what a click on a value supposes.

    Values are those in which the joint distribution answers. Of too many intervals none is listed; a number can be typed.
    """
    schema, summed_out = joint_schema(served.model), without_missing(served.model)
    columns = [
        {
            "name": attribute.name,
            "kind": attribute.kind,
            "is_time": attribute.is_time or attribute.clock is not None,
            "values": [
                {"label": label, "value": value, "words": words_of(attribute, label)}
                for label, value in choices(attribute)
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
        "is_of_structures": isinstance(served.model, OrderModel),
        "has_arcs": has_arcs(served.model),
    }


def words_of(attribute: Attribute, label: str) -> str:
    """The label of a value as people write it: intervals as such, and of moments the day where all cuts have days of their own."""
    if attribute.kind == "nominal":
        return label
    words = interval(label)
    if not attribute.is_time:
        return words
    n_days = len({word[:DAY] for word in attribute.cuts_in_words()})
    return MOMENT.sub(r"\1" if n_days == len(attribute.cuts) else r"\1 \2", words)


def _ends(attribute: Attribute) -> tuple[str, str] | None:
    """The least and the greatest number that training saw, in words."""
    if not attribute.quantiles:
        return None
    least, most = (attribute.number_in_words(end) for end in (attribute.quantiles[0], attribute.quantiles[-1]))
    return (str(least)[:DAY], str(most)[:DAY]) if attribute.is_time else (digits(least), digits(most))
