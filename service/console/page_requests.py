"""Context of a page request: visitor, part of a list, and whether JSON is wanted."""

from starlette.requests import Request

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
