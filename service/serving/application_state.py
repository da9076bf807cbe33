"""The workspace and the served models of the application that received a request."""

from starlette.requests import Request

from service.requests.problems import NotReady
from service.serving.predictor import Predictor, Served
from service.workspace import Workspace


def workspace_from_request(request: Request) -> Workspace:
    """Return the workspace of the application."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def served_model_from_request(request: Request, reference: str) -> Served:
    """Return the served model of "name", "name@version" or "name@alias"; raises NotReady while the server starts."""
    predictor: Predictor | None = getattr(request.app.state, "predictor", None)
    if predictor is None:
        raise NotReady("The server is starting. Try again in a few seconds.")
    return predictor.served(reference) or predictor.resolve(reference)
