"""The what-if explorer: what can be supposed of each column. The answers come from POST /v1/models/{name}/whatif."""

from starlette.requests import Request

from learners.orders.model import OrderModel
from service import product
from service.console.pages import page, workspace_of
from service.console.rendering import Call
from service.product.inference.metric_words import interval
from service.product.inference.what_if import asked_schema, choices
from service.requests.json_values import JSONObject
from service.serving.predictor import Predictor, Served

MOST_INTERVALS = 40


@page("what_if.html")
def explorer(request: Request) -> JSONObject:
    """The columns of a model with their values, for the explorer to begin with."""
    reference = request.path_params["reference"]
    predictor: Predictor = request.app.state.predictor
    served = predictor.served(reference) or predictor.resolve(reference)
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
    schema = asked_schema(served.model)
    columns = [
        {
            "name": attribute.name,
            "kind": attribute.kind,
            "type": attribute.arrow_type,
            "is_time": attribute.is_time or attribute.clock is not None,
            "values": [
                {"label": label, "value": value, "words": interval(label) if attribute.kind == "numeric" else label}
                for label, value in choices(attribute)
            ],
            "is_listed": attribute.kind == "nominal" or attribute.n_values <= MOST_INTERVALS,
            "is_continuous": attribute.distribution is not None,
        }
        for attribute in schema.attributes
    ]
    return {
        "reference": reference,
        "model": served.name,
        "version": served.version,
        "kind": served.model.kind,
        "target": served.schema.target,
        "classes": served.classes if served.schema.target is not None else [],
        "columns": columns,
        "is_of_structures": isinstance(served.model, OrderModel),
        "left_out": [{"name": column.name, "reason": column.reason} for column in served.schema.left_out],
    }
