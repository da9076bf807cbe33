"""From a screen's model to an answer: a page, its JSON, or in words why there is none."""

from collections.abc import Callable
from functools import wraps

from starlette.requests import Request
from starlette.responses import Response

from service import product
from service.console.rendering import respond, wants_json
from service.requests import problems
from service.requests.json_values import JSONObject
from service.requests.problems import NotReady
from service.serving.predictor import Predictor, Served
from service.workspace import Workspace
from storage.errors import NotFound

Screen = Callable[[Request], JSONObject]
PER_PAGE, MOST = 50, 500  # of a list; and the most that anybody may ask for


def page(template: str) -> Callable[[Screen], Callable[[Request], Response]]:
    """Let a function that makes the model of a page answer requests with a template below `templates`."""

    def decorate(screen: Screen) -> Callable[[Request], Response]:
        @wraps(screen)
        def answer(request: Request) -> Response:
            try:
                return respond(request, template, screen(request))
            except Exception as error:
                if wants_json(request) or not problems.is_expected(error):
                    raise
                problem = problems.problem_of(error)
                return respond(request, "problem.html", {"problem": problem}, problem.status)

        return answer

    return decorate


def workspace_of(request: Request) -> Workspace:
    """The workspace of the application."""
    workspace: Workspace = request.app.state.workspace
    return workspace


def served_of(request: Request, reference: str) -> Served:
    """The model of "name", "name@version" or "name@alias" as this process serves it; NotReady while the server is starting."""
    predictor: Predictor | None = getattr(request.app.state, "predictor", None)
    if predictor is None:
        raise NotReady("The server is starting.")
    return predictor.served(reference) or predictor.resolve(reference)


def columns_to_choose(workspace: Workspace, dataset: str) -> JSONObject:
    """The columns of the chosen data set, and the one that it predicts: a form offers them. Of no or another data set none is known."""
    try:
        return {
            "columns": product.dataset_columns(workspace, dataset),
            "of_dataset": product.get_dataset(workspace, dataset).target,
        }
    except NotFound:
        return {"columns": [], "of_dataset": None}


def part_of_list(request: Request) -> tuple[int, str | None]:
    """Which page of a list is asked for: how many items, and the cursor of the page before."""
    parameters = request.query_params
    return whole_number(parameters.get("limit"), PER_PAGE, MOST), parameters.get("cursor")


def whole_number(text: str | None, default: int, most: int) -> int:
    """A number of a query string within 1 and `most`; the default for whatever is none."""
    try:
        return min(max(int(text or default), 1), most)
    except ValueError:
        return default
