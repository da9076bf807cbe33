"""Error handlers: failures of routes as problem+json, and messages for unknown paths and methods."""

import re
from difflib import get_close_matches
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from learners.errors import subject_and_reason
from service.console.page_requests import wants_json
from service.console.pages import page_response
from service.http.api.json_bodies import TOO_DEEP, invalid_json_hint, is_json_content_type, overlong_json_integer_text
from service.requests import problems
from service.requests.json_values import JSONObject
from service.requests.problems import InvalidRequest, MalformedBody, Problem, UnsupportedMediaType
from service.requests.validation_messages import validation_messages_by_place
from storage.control.control import translate_database_error

DOCS = "/docs shows every call."
MOST_COMPARED = 300  # characters: to look for similar ones takes time that grows with their square
NOT_JSON = "The request does not say that its body is JSON: send the header Content-Type: application/json."


def add_error_handlers(app: FastAPI) -> None:
    """Make an application answer every exception of its routes with a problem document."""
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    for kind, _, _ in problems.TABLE:
        app.add_exception_handler(kind, _expected)
    app.add_exception_handler(DBAPIError, _of_database)
    app.add_exception_handler(ClientDisconnect, _gone)
    app.add_exception_handler(Exception, _unexpected)


def _response(problem: Problem, request: Request, headers: dict[str, str] | None = None) -> JSONResponse:
    headers = problems.problem_response_headers(problem) | (headers or {})
    return JSONResponse(problem.body(request.url.path), problem.status, headers=headers, media_type=problems.MEDIA_TYPE)


def _expected(request: Request, error: Exception) -> JSONResponse:
    return _response(problems.problem_from_error(error), request)


def _of_database(request: Request, error: Any) -> JSONResponse:
    """Translate an error of the job queue's own connections, which bypass `storage`."""
    structlog.get_logger("serve").warning("the job queue cannot be used", reason=str(error.orig))
    return _response(problems.problem_from_error(translate_database_error(error)), request)


def _gone(request: Request, error: Exception) -> JSONResponse:
    """Log a client that disconnected while sending its body; no client reads the answer."""
    structlog.get_logger("serve").info("the client went away", path=request.url.path)
    del error
    return _response(problems.problem_from_http_status(400, "The body ended before it was complete."), request)


def _unexpected(request: Request, error: Exception) -> JSONResponse:
    structlog.get_logger("serve").error("request failed", path=request.url.path, exc_info=error)
    return _response(problems.problem_from_error(error), request)


async def _http_error(request: Request, error: Any) -> Response:
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    detail, path = error.detail, request.url.path
    if error.status_code == 404:  # of the routing; a thing that is missing has an error of its own
        detail = unknown_path_message(request.app.openapi(), path)
        if path.startswith("/console/") and not wants_json(request):
            detail = f"There is no page {path}. The menu lists all pages."
            return page_response(
                request, "problem.html", {"problem": problems.problem_from_http_status(404, detail)}, 404
            )
    elif error.status_code == 400 and (cause := error.__cause__) is not None:  # of reading the body
        body = await request.body()  # which has been read already
        words = overlong_json_integer_text(body) or f"The body is not JSON: {cause}"
        detail = TOO_DEEP if isinstance(cause, RecursionError) else f"{words}.{invalid_json_hint(body)}"
    elif error.status_code == 405 and (allowed := allowed_methods(request.app.openapi(), path)):
        detail = f"{path} does not take {request.method}, but {' and '.join(allowed)}. {DOCS}"
        headers["allow"] = ", ".join(allowed)
    return _response(problems.problem_from_http_status(error.status_code, detail), request, headers)


def _invalid_request(request: Request, error: Any) -> JSONResponse:
    """Report Pydantic's findings, each with its place; a body that is not JSON is a 400."""
    findings = error.errors()
    if findings and findings[0]["type"] == "json_invalid":
        reason = findings[0].get("ctx", {}).get("error", "unreadable")
        return _response(problems.problem_from_error(MalformedBody(f"The body is not JSON: {reason}.")), request)
    is_unread = any(finding["loc"] == ("body",) and finding["type"] != "missing" for finding in findings)
    if is_unread and not is_json_content_type(request.headers.get("content-type")):
        return _response(problems.problem_from_error(UnsupportedMediaType(NOT_JSON)), request)
    shape = getattr(request.scope.get("route"), "body_field", None)
    root = None if shape is None else shape.field_info.annotation
    places = [
        {"field": ".".join(map(str, place)), "reason": words}
        for place, words in validation_messages_by_place(findings, root)
    ]
    detail = "; ".join(subject_and_reason(place["field"], place["reason"]) for place in places)
    return _response(problems.problem_from_error(InvalidRequest(detail, errors=places)), request)


def unknown_path_message(document: JSONObject, path: str) -> str:
    """Return the message for a path that is not in the OpenAPI document, with a similar path if there is one."""
    candidates = [_filled(template, path) for template in document["paths"]] if len(path) <= MOST_COMPARED else []
    near = get_close_matches(path.rstrip("/") or "/", candidates, 1, 0.8)
    similar = f" (similar: {near[0]})" if near else ""
    return f"There is no path {path}{similar}. {DOCS}"


def allowed_methods(document: JSONObject, path: str) -> list[str]:
    """Return the methods that a path accepts; empty if no path matches."""
    methods: set[str] = set()
    for template, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template)), path):
            methods |= {method.upper() for method in operations}
    return sorted(methods)


def _filled(template: str, path: str) -> str:
    """Fill the parameters of a path template from a path, as far as the path reaches."""
    parts = path.rstrip("/").split("/")
    named = zip(template.split("/"), [*parts, *[None] * template.count("/")], strict=False)
    return "/".join(part if given is None or not part.startswith("{") else given for part, given in named)
