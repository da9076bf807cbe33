"""Errors and their presentation over HTTP and on the command line: one table, RFC 9457 problem+json.

References
----------
RFC 9457, Problem Details for HTTP APIs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError

from learners import errors as learner_errors
from learners.errors import subject_and_reason
from service.requests import requests
from service.requests.json_values import JSONObject
from service.requests.validation_messages import validation_messages_by_place
from storage import errors as storage_errors

MEDIA_TYPE = "application/problem+json"


class ServiceError(Exception):
    """Base of the service's own errors; `fields` become members of the problem."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__(message)
        self.fields = fields


class MalformedBody(ServiceError, ValueError):
    """A body that cannot be parsed as its content type."""


class InvalidRequest(ServiceError, ValueError):
    """A body that can be parsed but does not have the required shape."""


class BodyTooLarge(ServiceError, ValueError):
    """A body or a batch beyond the configured limits."""


class QuotaExceeded(ServiceError, ValueError):
    """An upload beyond the space that all uploaded files may take."""


class UnsupportedMediaType(ServiceError, ValueError):
    """A content type that the endpoint does not read."""


class Conflict(ServiceError, ValueError):
    """The request conflicts with the current state; nothing changed."""


class PreconditionFailed(ServiceError, ValueError):
    """The state is not the one that the request's `If-Match` or `If-None-Match` names; nothing changed."""


class OutsideRoots(ServiceError, PermissionError, learner_errors.SourceError):
    """A URI outside the folders that this server may read, or a link that leads there."""

    def __init__(self, message: str, **fields: Any) -> None:
        Exception.__init__(self, message)
        self.fields, self.path = fields, str(fields.get("uri", ""))


class KeyNeeded(ServiceError, PermissionError):
    """The request has no API key, and this server requires one."""


class Forbidden(ServiceError, PermissionError):
    """The role of the key does not allow the call, or the origin of the request is not allowed."""


class TooSlow(ServiceError, RuntimeError):
    """A request was cancelled because it took too long."""


class Overloaded(ServiceError, RuntimeError):
    """The requests in progress use all the memory that requests may; this one can be sent again."""


class TooManyRequests(ServiceError, RuntimeError):
    """A key makes more requests per second than it may."""


class NotReady(ServiceError, RuntimeError):
    """The server is starting, stopping, or lacks what the endpoint needs."""


class JobFailed(ServiceError, RuntimeError):
    """A job ended without a result; raised if a client waits for it."""


class OutOfMemory(JobFailed):
    """A job ended because it exceeded its memory limit, or the memory of the machine."""


# First match wins, so the special stands before the general.
TABLE: tuple[tuple[type[Exception], int, str], ...] = (
    (MalformedBody, 400, "Malformed body"),
    (InvalidRequest, 422, "Invalid request"),
    (BodyTooLarge, 413, "Body too large"),
    (QuotaExceeded, 507, "Upload quota exceeded"),
    (UnsupportedMediaType, 415, "Unsupported media type"),
    (Conflict, 409, "Conflict"),
    (PreconditionFailed, 412, "Precondition failed"),
    (OutsideRoots, 403, "Outside the data roots"),
    (KeyNeeded, 401, "API key needed"),
    (Forbidden, 403, "Forbidden"),
    (TooManyRequests, 429, "Too many requests"),
    (TooSlow, 503, "Too slow"),
    (NotReady, 503, "Not ready"),
    (Overloaded, 503, "Overloaded"),
    (OutOfMemory, 500, "Out of memory"),
    (JobFailed, 500, "Job failed"),
    (storage_errors.NotFound, 404, "Not found"),
    (storage_errors.Conflict, 409, "Conflict"),
    (storage_errors.InvalidName, 422, "Invalid name"),
    (storage_errors.InvalidCursor, 422, "Invalid cursor"),
    (storage_errors.InvalidPredicate, 422, "Invalid condition"),
    (storage_errors.InvalidKey, 401, "Invalid API key"),
    (storage_errors.OutdatedModel, 409, "Outdated model"),
    (storage_errors.CorruptFile, 500, "Corrupt file"),
    (storage_errors.OutcomeUnknown, 507, "Outcome unknown"),
    (storage_errors.Unwritable, 507, "Workspace cannot be written"),
    (storage_errors.ControlUnavailable, 503, "Control database unavailable"),
    (storage_errors.NewerDatabase, 500, "Newer control database"),
    (storage_errors.StorageError, 500, "Storage error"),
    (learner_errors.UnknownColumn, 422, "Unknown column"),
    (learner_errors.InvalidParameter, 422, "Invalid parameter"),
    (learner_errors.SourceError, 422, "Unreadable data"),
    (learner_errors.SchemaError, 422, "Schema error"),
    (learner_errors.EmptyData, 422, "No rows"),
    (learner_errors.FamilyTooLarge, 422, "Family too large"),
    (learner_errors.ClusterError, 503, "Cluster unavailable"),
    (learner_errors.Cancelled, 409, "Cancelled"),
    (learner_errors.InvalidCounts, 500, "Wrong counts"),
    (learner_errors.InvalidPrediction, 500, "Wrong prediction"),
    (learner_errors.LearnerError, 422, "Learner error"),
    (PermissionError, 403, "Permission denied"),
    (FileNotFoundError, 422, "No such file"),
)

STATUSES = sorted({status for _, status, _ in TABLE} | {500})


def is_disk_write_refused(error: BaseException) -> bool:
    """Return whether the error is a file refused by a full or read-only disk."""
    return isinstance(error, OSError) and storage_errors.is_disk_write_refusal(error)


@dataclass(frozen=True)
class Problem:
    """One problem, ready for a response body or a terminal."""

    status: int
    title: str
    detail: str
    fields: JSONObject = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """Last part of the problem's type: "Unknown column" -> "unknown-column"."""
        return self.title.lower().replace(" ", "-")

    def body(self, instance: str | None = None) -> JSONObject:
        """Return the members of the problem+json document for a request to `instance`."""
        members: JSONObject = {
            "type": f"urn:fewpass:problem:{self.slug}",
            "title": self.title,
            "status": self.status,
            "detail": self.detail,
        }
        if instance is not None:
            members["instance"] = instance
        # Where clients of the Open Inference Protocol look.
        of_protocol = {"error": self.detail} if (instance or "").startswith("/v2") else {}
        return members | self.fields | of_protocol


def is_expected_error(error: BaseException) -> bool:
    """Return whether the error is in the table: one of ours, or one caused by the request."""
    return is_disk_write_refused(error) or isinstance(error, (ValidationError, *(kind for kind, _, _ in TABLE)))


def problem_from_error(error: BaseException) -> Problem:
    """Return the problem of an exception; one missing from the table reveals no internals."""
    if isinstance(error, ValidationError):
        return Problem(422, "Invalid request", _complaints(error))
    if (
        isinstance(error, OSError)
        and not isinstance(error, storage_errors.StorageError)
        and is_disk_write_refused(error)
    ):
        detail = f"{error}. {storage_errors.disk_remedy(error)}, then try again."
        return Problem(507, "Workspace cannot be written", detail)
    for kind, status, title in TABLE:
        if isinstance(error, kind):
            return Problem(status, title, str(error), dict(_fields(error)))
    return Problem(500, "Internal error", "The server failed; its log says more under this request id.")


def _complaints(error: ValidationError) -> str:
    """Describe each wrong member of a request shape."""
    root = getattr(requests, error.title, None)
    is_setting = error.title == "Settings"
    messages = (
        subject_and_reason(_name_of(place, is_setting), words)
        for place, words in validation_messages_by_place(error.errors(), root)
    )
    return "; ".join(messages) + "."


def _name_of(place: tuple[object, ...], is_setting: bool) -> str:
    text = ".".join(map(str, place)) or "request"
    return f"FEWPASS_{text.upper()}" if is_setting else text


def problem_from_http_status(status: int, detail: str | None = None) -> Problem:
    """Return the problem of a bare HTTP status, such as 404 for a path or 405 for a method."""
    title = HTTPStatus(status).phrase
    return Problem(status, title, detail or title)


def problem_response_headers(problem: Problem) -> dict[str, str]:
    """Return the response headers of a problem: how to authenticate, and when to retry."""
    if problem.status == HTTPStatus.UNAUTHORIZED:
        return {"www-authenticate": "Bearer"}
    if problem.status == HTTPStatus.TOO_MANY_REQUESTS:
        return {"retry-after": str(math.ceil(problem.fields["retry_after_s"]))}
    return {"retry-after": "1"} if problem.status == HTTPStatus.SERVICE_UNAVAILABLE else {}


def _fields(error: BaseException) -> Iterator[tuple[str, Any]]:
    """Yield the public attributes of an error that JSON can represent."""
    if isinstance(error, ServiceError):
        yield from error.fields.items()
        return
    if isinstance(error, OSError):
        return
    for name, value in vars(error).items():
        if not name.startswith("_") and isinstance(value, str | int | float | bool):
            # `kind` and `name` of a missing thing are members too, but never overwrite those of RFC 9457.
            yield (f"{name}_" if name in {"type", "title", "status", "detail", "instance"} else name), value
