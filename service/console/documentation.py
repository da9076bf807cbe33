"""Offline pages about the REST API, an interactive and a static one, and the licences of vendored files."""

import json
from functools import cache

from starlette.requests import Request
from starlette.responses import Response

from service.console.assets import find_static_asset
from service.console.pages import page_response
from service.requests.json_values import JSONObject

FOLDER = "vendor"
METHODS = ("get", "post", "put", "patch", "delete")


def swagger_documentation_page(request: Request) -> Response:
    """Render Swagger UI from the vendored files."""
    return page_response(request, "docs.html", {})


def html_documentation_page(request: Request) -> Response:
    """Render every operation on one plain HTML page, with its parameters, bodies and answers."""
    document = request.app.openapi()
    groups: dict[str, list[JSONObject]] = {}
    for path, operations in document["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = _operation(method, path, operations[method])
                groups.setdefault(operation["tag"], []).append(operation)
    shapes = {name: _members(shape) for name, shape in sorted(document["components"]["schemas"].items())}
    return page_response(request, "docs_read.html", {"groups": groups, "shapes": shapes})


def _operation(method: str, path: str, operation: JSONObject) -> JSONObject:
    content = operation.get("requestBody", {}).get("content", {})
    return {
        "id": operation["operationId"],
        "tag": (operation.get("tags") or ["others"])[0],
        "method": method.upper(),
        "path": path,
        "summary": operation.get("summary", ""),
        "description": operation.get("description", ""),
        "role": operation.get("x-fewpass-role"),
        "parameters": [
            {
                "name": each["name"],
                "place": each["in"],
                "is_required": each.get("required", False),
                "type": _words(each.get("schema", {})),
                "description": each.get("description", ""),
            }
            for each in operation.get("parameters", ())
        ],
        "bodies": [(kind, _words(each.get("schema", {}))) for kind, each in content.items()],
        "answers": [
            (
                status,
                answer.get("description", ""),
                [_words(each.get("schema", {})) for each in answer.get("content", {}).values()],
            )
            for status, answer in operation["responses"].items()
        ],
    }


def _members(shape: JSONObject) -> JSONObject:
    required = set(shape.get("required", ()))
    members = [
        (name, _words(member), member.get("description", ""), name in required)
        for name, member in shape.get("properties", {}).items()
    ]
    return {"description": shape.get("description", ""), "type": _words(shape), "members": members}


def _words(schema: JSONObject) -> str:
    """Describe a JSON schema in words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(dict.fromkeys(_words(each) for each in schema[several]))
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_words(schema.get('items', {}))}"
    kind = schema.get("type", "any value")
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


def vendored_licences_page(request: Request) -> Response:
    """List every vendored file with its package, version and licence, each licence text once."""
    listed = vendored_files()
    names = dict.fromkeys(name for each in listed for name in each["licence_files"])
    return page_response(request, "licences.html", {"files": listed, "texts": {name: _text(name) for name in names}})


@cache
def vendored_files() -> tuple[JSONObject, ...]:
    """Return the entries of `vendored.json`, one for each vendored file."""
    return tuple(json.loads(_text("vendored.json")))


def _text(name: str) -> str:
    asset = find_static_asset(f"{FOLDER}/{name}")
    if asset is None:
        raise LookupError(f"service/console/static/{FOLDER} has no file {name!r}")
    return asset.content.decode()
