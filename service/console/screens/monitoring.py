"""Whether the models are still right, as far as there are data about it."""

from starlette.requests import Request

from service import product
from service.console.pages import page, workspace_of
from service.console.screens.overview import line_of
from service.json_values import JSONObject

MOST = 200
NO_DATA = "This model has no monitoring data."


@page("monitoring.html")
def overview(request: Request) -> JSONObject:
    """Every model, with what is known of its predictions."""
    workspace = workspace_of(request)
    return {"models": [line_of(workspace, model) for model in product.list_models(workspace, MOST).items]}


@page("monitoring_model.html")
def of_model(request: Request) -> JSONObject:
    """One model."""
    reference = request.path_params["reference"]
    shown = product.find_version(workspace_of(request), reference)
    return {"name": shown.name, "reference": reference, "shown": shown, "reason": NO_DATA}
