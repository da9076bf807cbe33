"""Routes treated differently before routing: matched by method and template, exactly as the routing matches them."""

from collections.abc import Iterable

from starlette._utils import get_route_path
from starlette.routing import BaseRoute, Route, compile_path
from starlette.types import Scope

from storage.control.api_keys_and_sessions import Role

KEYS = "/v1/keys"  # also what a later release puts below


class Routes:
    """A set of routes such as "POST /v1/models/{name}/predict", matched with the routing's own expressions.

    A name in a path may be any text, so neither the end of a path nor a part of it identifies a route: a schedule may
    be called "predict", and to the routing a path may end with a line break.
    """

    def __init__(self, *routes: str) -> None:
        split = [route.split() for route in routes]
        self._routes = [(method, compile_path(path)[0]) for method, path in split]

    def has(self, method: str, path: str) -> bool:
        """Return whether a method and a path match one of the routes."""
        return any(method == known and regex.match(path) for known, regex in self._routes)

    def take(self, scope: Scope) -> bool:
        """Return whether a request matches one of the routes."""
        return self.has(scope["method"], get_route_path(scope))


class RouteRoles:
    """The role that each route of an application needs: declared beside its endpoint (`service.requests.roles`), or
    `read` if it only reads and `train` otherwise.

    A route without a declaration requires `train` if it can change state, so a new route is never left open by mistake.
    """

    def __init__(self, routes: Iterable[BaseRoute]) -> None:
        by_role: dict[Role, list[str]] = {}
        for route in routes:
            role = getattr(route.endpoint, "needed_role", None) if isinstance(route, Route) else None
            if isinstance(route, Route) and role is not None:
                by_role.setdefault(role, []).extend(f"{method} {route.path}" for method in route.methods or ())
        self._declared = {role: Routes(*names) for role, names in by_role.items()}

    def needed(self, method: str, path: str) -> Role:
        """Return the role that a request needs."""
        if path.startswith(KEYS):
            return Role.ADMIN
        for role, routes in self._declared.items():
            if routes.has(method, path):
                return role
        return Role.READ if method in {"GET", "HEAD", "OPTIONS"} else Role.TRAIN


# They look themselves what their bodies will hold, which may be other than JSON.
READING = Routes(
    "POST /v1/models/{name}/predict",
    "POST /v1/models/{name}/explain",
    "POST /v1/models/{name}/score",
    "POST /v1/models/{name}/impute",
    "POST /v2/models/{name}/infer",
    "POST /v2/models/{name}/versions/{version}/infer",
    "POST /invocations",
)
# Of the paths that are open to all, those that read a body.
SIGNING_IN = Routes("POST /console/session")
# Their bodies are read by Python on the event loop.
QUERYING = Routes("POST /v1/models/{name}/query")
# Go to the disk piece by piece, and have limits of their own.
IMPORTING = Routes("POST /v1/models/{name}/import", "PUT /v1/datasets/{name}/files/{file}")
EVENTS = Routes("GET /v1/jobs/{job_id}/events")
# These take or tell something for as long as there is any.
STREAMING = Routes(
    "GET /console/events",
    "GET /v1/jobs/{job_id}/events",
    "GET /v1/jobs/{job_id}/output",
    "GET /v1/models/{reference}/download",
    "GET /v1/models/{reference}/export",
    "POST /v1/models/{name}/import",
    "PUT /v1/datasets/{name}/files/{file}",
)
