"""The page of licences: what the console brings of others, with the licence texts that came with it."""

import json
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from service.console.assets import asset
from service.console.rendering import respond
from service.requests.json_values import JSONObject

FOLDER = "vendor"


def licences(request: Request) -> Response:
    """Every vendored file with its package, version and licence; each text once."""
    listed = vendored()
    names = dict.fromkeys(name for each in listed for name in each["licence_files"])
    return respond(request, "licences.html", {"files": listed, "texts": {name: _text(name) for name in names}})


@cache
def vendored() -> tuple[JSONObject, ...]:
    """What `vendored.json` tells of each vendored file."""
    return tuple(json.loads(_text("vendored.json")))


def _text(name: str) -> str:
    found = asset(f"{FOLDER}/{name}")
    if found is None:
        raise LookupError(f"service/console/static/{FOLDER} has no file {name!r}")
    return found.content.decode()
