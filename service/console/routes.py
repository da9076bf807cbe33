"""URL routes of the pages."""

from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope

from service.console import documentation, live_events
from service.console.assets import N_DIGITS, PREFIX, find_static_asset
from service.console.pages import page_response
from service.console.screens import (
    dataset_screens,
    explorer_screens,
    job_screens,
    model_screens,
    monitoring_screens,
    record_screens,
    settings_screen,
)
from service.requests.column_paths import COLUMN

A_YEAR = "public, max-age=31536000, immutable"
A_LOOK = "no-cache"


class Page(Route):
    """A route counted by the request metrics: Starlette's own route is not recorded in the scope, FastAPI's is."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether a request matches this route, and the scope entries to add."""
        match, noted = super().matches(scope)
        return match, {**noted, "route": self}


def console_routes() -> list[BaseRoute]:
    """Return the routes of every console page, its files and its event stream."""
    pages = {
        "/console": model_screens.models_overview_screen,
        "/console/models/{reference}": model_screens.model_screen,
        "/console/models/{name}/compare": model_screens.compare_versions_screen,
        "/console/models/{reference}/graph": explorer_screens.explorer_graph_screen,
        f"/console/models/{{reference}}/graph/{COLUMN}": explorer_screens.explorer_family_screen,
        "/console/models/{reference}/regions": explorer_screens.explorer_circuit_screen,
        "/console/models/{reference}/what-if": explorer_screens.what_if_explorer_screen,
        "/console/models/{reference}/monitoring": monitoring_screens.model_monitoring_screen,
        "/console/monitoring": monitoring_screens.monitoring_overview_screen,
        "/console/jobs": job_screens.jobs_screen,
        "/console/jobs/{job_id}": job_screens.job_screen,
        "/console/train": job_screens.train_form_screen,
        "/console/data": dataset_screens.datasets_screen,
        "/console/data/{name}": dataset_screens.dataset_screen,
        "/console/data/{name}/rows": dataset_screens.dataset_rows_screen,
        "/console/settings": settings_screen.settings_screen,
        "/console/receipts": record_screens.receipts_screen,
        "/console/receipts/{receipt_id}": record_screens.receipt_screen,
        "/console/audit": record_screens.audit_screen,
    }
    return [
        Page("/console/login", login_page, methods=["GET"]),
        Page("/console/events", live_events.live_event_stream, methods=["GET"]),
        Page(f"{PREFIX}{{name:path}}", static_file_response, methods=["GET"]),
        *(Page(path, endpoint, methods=["GET"]) for path, endpoint in pages.items()),
    ]


def documentation_routes() -> list[BaseRoute]:
    """Return the routes of the API documentation and its files, also available without the control plane."""
    return [
        Page("/docs", documentation.swagger_documentation_page, methods=["GET"]),
        Page("/docs/read", documentation.html_documentation_page, methods=["GET"]),
        Page("/docs/licences", documentation.vendored_licences_page, methods=["GET"]),
        Page("/redoc", lambda _: RedirectResponse("/docs/read", HTTPStatus.MOVED_PERMANENTLY), methods=["GET"]),
        Page(f"{PREFIX}{{name:path}}", static_file_response, methods=["GET"]),
    ]


def login_page(request: Request) -> Response:
    """Render the page that exchanges a key for a session."""
    is_refused = "refused" in request.query_params
    status = HTTPStatus.UNAUTHORIZED if is_refused else HTTPStatus.OK
    context = {"next": request.query_params.get("next", "/console"), "is_refused": is_refused}
    return page_response(request, "login.html", context, status)


def static_file_response(request: Request) -> Response:
    """Return a static file; it is immutable under its digest."""
    asset = find_static_asset(request.path_params["name"])
    if asset is None:
        return Response("There is no such file.", HTTPStatus.NOT_FOUND, media_type="text/plain")
    tag = f'"{asset.digest}"'
    is_fixed = request.query_params.get("v", "")[:N_DIGITS] == asset.digest
    headers = {"etag": tag, "vary": "Accept-Encoding", "cache-control": A_YEAR if is_fixed else A_LOOK}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, headers=headers | {"content-encoding": "gzip"}, media_type=asset.media_type)
    return Response(asset.content, headers=headers, media_type=asset.media_type)
