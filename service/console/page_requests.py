"""Context of a page request: visitor, workspace, model, part of a list, and whether JSON is wanted."""

from starlette.requests import Request

from service.requests.problems import NotReady
from service.serving.predictor import Predictor, Served
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role

PER_PAGE, MOST = 50, 500  # of a list; and the most that anybody may ask for


def role_from_request(request: Request) -> Role | None:
    """Return the visitor's role as found by the guard; None on pages open to all."""
    role: Role | None = request.scope.get("fewpass.role")
    return role


def wants_json(request: Request) -> bool:
    """Return whether the visitor is a program: it accepts JSON and not HTML."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def workspace_from_request(request: Request) -> Workspace:
    """Return the workspace of the application."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def served_model_from_request(request: Request, reference: str) -> Served:
    """Return the served model of "name", "name@version" or "name@alias"; raises NotReady while the server starts."""
    predictor: Predictor | None = getattr(request.app.state, "predictor", None)
    if predictor is None:
        raise NotReady("The server is starting.")
    return predictor.served(reference) or predictor.resolve(reference)


def page_limit_and_cursor(request: Request) -> tuple[int, str | None]:
    """Return the number of items and the cursor of the requested page of a list."""
    parameters = request.query_params
    return parse_bounded_int(parameters.get("limit"), PER_PAGE, MOST), parameters.get("cursor")


def parse_bounded_int(text: str | None, default: int, most: int) -> int:
    """Parse an integer of a query string and clip it to 1..`most`; the default if it is invalid."""
    try:
        return min(max(int(text or default), 1), most)
    except ValueError:
        return default
