"""Render page models as HTML, or as JSON for programs; or an error page."""

import gzip
import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from functools import cache, wraps

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response

from learners.monitoring.drift_findings import LEAST_ROWS
from learners.wording import count_with_noun
from service import product
from service.console.assets import static_asset_url
from service.console.page_requests import role_from_request, wants_json
from service.console.page_text import format_number, format_utc_time, iso_time, shorten_text
from service.product.inference.metric_words import METRIC_WORDS, ROWS_MEASURED, interval_words
from service.requests import problems
from service.requests.json_values import JSONMapping, JSONObject
from service.version import VERSION
from service.workspace import Workspace
from storage.control.api_keys_and_sessions import Role
from storage.errors import NotFound

HTML = "text/html; charset=utf-8"
# Pages are a few kilobytes: the fastest level that finds repetitions is the one that pays.
GZIP_LEVEL = 5
LEAST_PACKED = 1_000


@dataclass(frozen=True)
class Call:
    """The equivalent REST call, with or without a body, shown on every page."""

    method: str
    path: str
    body: JSONMapping | None = None

    @property
    def curl(self) -> str:
        """The call as a curl command."""
        parts = ["curl"] + ([] if self.method == "GET" else ["-X", self.method])
        if self.body is not None:
            body = json.dumps(self.body, ensure_ascii=False)
            parts += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(body)]
        return " ".join([*parts, f'"$FEWPASS_URL"{shlex.quote(self.path)}'])


@cache
def page_template_environment() -> Environment:
    """Return the template environment; every value is escaped, and a name missing in a page model is an error."""
    environment = Environment(
        # The parts of a report are those of the page that `fewpass report` writes.
        loader=ChoiceLoader([PackageLoader("service.console"), PackageLoader("service.product.views")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {
        "asset": static_asset_url,
        "fewpass_version": VERSION,
        "now": lambda: datetime.now(UTC),
        "least_rows": LEAST_ROWS,
    }
    environment.filters |= {
        "digits": format_number,
        "short": shorten_text,
        "moment": format_utc_time,
        "iso": iso_time,
        "metric": lambda name: METRIC_WORDS.get(name, name),
        "rows_measured": lambda value: ROWS_MEASURED.get(value, value),
        "interval": interval_words,
        "number_of": count_with_noun,
    }
    return environment


def page_response(request: Request, template: str, page: JSONMapping, status: int = 200) -> Response:
    """Render a page of plain values and dataclasses as HTML from its template, or as JSON if the visitor accepts it."""
    if wants_json(request):
        return Response(json.dumps(page, default=_plain), status, media_type="application/json")
    role = role_from_request(request)
    shared = {
        "role": role,
        "may": {str(each): role is not None and role.covers(each) for each in Role},
        "path": request.url.path,
        # The page as it is, with its search, order and cursor: what a part fetches that changes while it is shown.
        "same_page": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "has_session": "fewpass.session" in request.scope,
        "calls": (),
    }
    text = page_template_environment().get_template(template).render(shared | dict(page))
    return html_response(request, text, status)


def html_response(request: Request, text: str, status: int = 200) -> Response:
    """Return a text as an HTML response, compressed if the browser accepts gzip."""
    headers = {"cache-control": "no-store", "vary": "Accept, Accept-Encoding, Cookie"}
    body = text.encode("utf-8", "replace")
    if len(body) >= LEAST_PACKED and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, GZIP_LEVEL)
        headers["content-encoding"] = "gzip"
    return Response(body, status, headers, media_type=HTML)


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, tuple | set | frozenset):
        return list(value)
    return str(value)


Screen = Callable[[Request], JSONObject]


def render_as_page(template: str) -> Callable[[Screen], Callable[[Request], Response]]:
    """Decorate a function that builds a page model, so that it answers requests with a template below `templates`."""

    def decorate(screen: Screen) -> Callable[[Request], Response]:
        @wraps(screen)
        def answer(request: Request) -> Response:
            try:
                return page_response(request, template, screen(request))
            except Exception as error:
                if wants_json(request) or not problems.is_expected_error(error):
                    raise
                problem = problems.problem_from_error(error)
                return page_response(request, "problem.html", {"problem": problem}, problem.status)

        return answer

    return decorate


def dataset_column_choices(workspace: Workspace, dataset: str) -> JSONObject:
    """Return the columns and the target of the chosen data set for a form; empty without a known data set."""
    try:
        return {
            "columns": product.dataset_columns(workspace, dataset),
            "of_dataset": product.get_dataset(workspace, dataset).target,
        }
    except NotFound:
        return {"columns": [], "of_dataset": None}
