"""The role that a route needs, declared beside the route.

A route without a declaration needs `read` if it only reads and `train` otherwise; `service.http.security` adds the few
paths that are open to all.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from storage.control.api_keys_and_sessions import Role

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def needs_role(role: Role) -> Callable[[Endpoint], Endpoint]:
    """Decorate an endpoint with the role that its routes need."""

    def declare(endpoint: Endpoint) -> Endpoint:
        endpoint.needed_role = role  # type: ignore[attr-defined]
        return endpoint

    return declare
