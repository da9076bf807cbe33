"""Where a request went that no route takes: which paths are similar, which methods a path knows."""

import re
from difflib import get_close_matches

from service.requests.json_values import JSONObject

DOCS = "/docs shows every call."
MOST_COMPARED = 300  # characters: to look for similar ones takes time that grows with their square


def unknown_path(document: JSONObject, path: str) -> str:
    """What to say of a path that is none of those of the OpenAPI document."""
    candidates = [_filled(template, path) for template in document["paths"]] if len(path) <= MOST_COMPARED else []
    near = get_close_matches(path.rstrip("/") or "/", candidates, 1, 0.8)
    similar = f" (similar: {near[0]})" if near else ""
    return f"There is no path {path}{similar}. {DOCS}"


def allowed_methods(document: JSONObject, path: str) -> list[str]:
    """The methods that a path knows; none if no path matches."""
    found: set[str] = set()
    for template, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path):
            found |= {method.upper() for method in operations}
    return sorted(found)


def wrong_method(method: str, path: str, allowed: list[str]) -> str:
    """What to say of a method that a path does not know."""
    return f"{path} does not take {method}, but {' and '.join(allowed)}. {DOCS}"


def _filled(template: str, path: str) -> str:
    """A path's template with its parameters as the path has them, as far as it reaches."""
    parts = path.rstrip("/").split("/")
    named = zip(template.split("/"), [*parts, *[None] * template.count("/")], strict=False)
    return "/".join(part if given is None or not part.startswith("{") else given for part, given in named)
