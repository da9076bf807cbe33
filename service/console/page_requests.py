"""What a page is asked for: by whom, of which workspace, model and part of a list, and whether as JSON."""

from starlette.requests import Request

from service.requests.problems import NotReady
from service.serving.predictor import Predictor, Served
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role

PER_PAGE, MOST = 50, 500  # of a list; and the most that anybody may ask for


def role_from_request(request: Request) -> Role | None:
    """What the visitor may do, as the guard has found it; None of pages that are open to all."""
    role: Role | None = request.scope.get("fewpass.role")
    return role


def wants_json(request: Request) -> bool:
    """Whether the visitor is a program: it names JSON, and HTML not."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/html" not in accept


def workspace_from_request(request: Request) -> Workspace:
    """The workspace of the application."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def served_model_from_request(request: Request, reference: str) -> Served:
    """The model of "name", "name@version" or "name@alias" as this process serves it; NotReady while the server is starting."""
    predictor: Predictor | None = getattr(request.app.state, "predictor", None)
    if predictor is None:
        raise NotReady("The server is starting.")
    return predictor.served(reference) or predictor.resolve(reference)


def page_limit_and_cursor(request: Request) -> tuple[int, str | None]:
    """Which page of a list is asked for: how many items, and the cursor of the page before."""
    parameters = request.query_params
    return parse_bounded_int(parameters.get("limit"), PER_PAGE, MOST), parameters.get("cursor")


def parse_bounded_int(text: str | None, default: int, most: int) -> int:
    """A number of a query string within 1 and `most`; the default for whatever is none."""
    try:
        return min(max(int(text or default), 1), most)
    except ValueError:
        return default
