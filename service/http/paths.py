"""Routes treated differently before routing: matched by method and template, exactly as the routing matches them."""

from starlette._utils import get_route_path
from starlette.routing import compile_path
from starlette.types import Scope


class Routes:
    """A set of routes such as "POST /v1/models/{name}/predict", matched with the routing's own expressions.

    A name in a path may be any text, so neither the end of a path nor a part of it tells a route: a schedule may be called
    "predict", and to the routing a path may end with a line break.
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


_OF_ROWS = (
    "POST /v1/models/{name}/predict",
    "POST /v1/models/{name}/explain",
    "POST /v1/models/{name}/score",
    "POST /v1/models/{name}/impute",
    "POST /v2/models/{name}/infer",
    "POST /v2/models/{name}/versions/{version}/infer",
    "POST /invocations",
)
PREDICTING = Routes(
    *_OF_ROWS, "POST /v1/models/{name}/query", "POST /v1/models/{name}/whatif", "POST /v1/models/{reference}/labels"
)
# Remove things, or bring in what others have made.
ADMINISTERING = Routes(
    "PUT /v1/models/{name}/retention",
    "POST /v1/models/{name}/prune",
    "POST /v1/models/{name}/import",
    "DELETE /v1/models/{name}",
    "DELETE /v1/models/{name}/versions/{version}",
    "DELETE /v1/datasets/{name}",
    # Brings back rows that were to be forgotten.
    "POST /v1/datasets/{name}/rules/withdraw",
    "POST /v1/models/{name}/rules/withdraw",
    # Whoever makes one lets this server ask others; and the addresses of many receivers are secrets.
    "GET /v1/webhooks",
    "GET /v1/webhooks/{webhook}/deliveries",
    "POST /v1/webhooks",
    "POST /v1/webhooks/{webhook}/test",
    "DELETE /v1/webhooks/{webhook}",
    # Says what each key has done.
    "GET /v1/audit",
)
# Rows of data, which whoever may submit jobs may see.
ROWS = Routes(
    "GET /v1/jobs/{job_id}/output",
    "GET /v1/models/{reference}/monitoring/slices",
    "GET /v1/datasets/{name}/profile",
    "GET /console/data/{name}/rows",
)
KEYS = "/v1/keys"  # also what a later release puts below
# They look themselves what their bodies will hold, which may be other than JSON.
READING = Routes(*_OF_ROWS)
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
