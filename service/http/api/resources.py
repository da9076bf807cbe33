"""Shared parts of the resources: response shapes, the workspace, threads for calls that may hang, and files as bodies."""

import asyncio
import contextlib
import json
import math
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

import anyio.to_thread
from fastapi import Depends, Query, Request, Response
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict, Field
from starlette.types import Message, Receive, Scope, Send

from learners.errors import Cancelled
from learners.passes.threads import available_cores
from service.http.api.bodies import UNCOUNTED, check_whole_body, content_length, send_body
from service.http.api.json_bodies import is_json_content_type
from service.requests.abandonment import check_still_asked
from service.requests.json_values import JSONObject, ShownObject
from service.requests.problems import MEDIA_TYPE, BodyTooLarge, UnsupportedMediaType, problem_from_http_status
from service.requests.requests import AnyRequest
from service.serving.application_state import workspace_from_request
from service.workspace import Workspace
from storage.files.atomic_files import draft_file_path

Item = TypeVar("Item")
LEAST_COMPUTING = 4
UNREADABLE_RANGES = (400, 416)


class Shape(BaseModel):
    """Base class of responses, read from frozen dataclasses."""

    model_config = ConfigDict(from_attributes=True)


class PageShape(Shape, Generic[Item]):
    """A page of a list; pass `next_cursor` to get the next page. It is null on the last page."""

    items: list[Item]
    next_cursor: str | None = None


class Problem(BaseModel):
    """RFC 9457 problem+json; extra members name the offending item, such as `column` or `field`."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=["urn:fewpass:problem:not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["There is no model 'incom'. List the models to see which exist."])
    instance: str | None = Field(default=None, examples=["/v1/models/incom"])


class ModelVersionShape(Shape):
    """One immutable version of a model."""

    name: str
    version: int
    learner: str
    parameters: ShownObject
    dataset: str | None
    metrics: ShownObject
    job_id: str | None
    n_rows: int
    files: list[ShownObject]
    sha256: str
    tags: dict[str, str]
    created_at: datetime | None


def media_type_responses(*media_types: str) -> dict[int | str, JSONObject]:
    """Return the OpenAPI responses of an endpoint that answers in some media types, without a schema of its content."""
    binary: JSONObject = {"type": "string", "format": "binary"}
    schemas = {each: {} if each.endswith("json") else binary for each in media_types}
    return {200: {"content": {each: {"schema": schema} for each, schema in schemas.items()}}}


Answer = TypeVar("Answer")


class BodyRoute(APIRoute):
    """Route that parses and checks a large JSON body on a thread, so that the event loop goes on answering.

    FastAPI finds the checked request in place of the parsed body, and takes it as it is.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return FastAPI's handler behind the parsing of a large body."""
        handle, field = super().get_route_handler(), self.body_field

        async def handle_body(request: Request) -> Response:
            is_json = is_json_content_type(request.headers.get("content-type"))
            if field is not None and is_json and len(body := await request.body()) > UNCOUNTED:
                with contextlib.suppress(ValueError):  # no JSON, no UTF-8, or too many digits: FastAPI finds it, too
                    request._json = await anyio.to_thread.run_sync(_checked_body, field, body)
            return await handle(request)

        return handle_body


def _checked_body(field: ModelField, body: bytes) -> object:
    """Parse a JSON body and check it against the shape of the request; RequestValidationError as FastAPI raises it."""
    content = json.loads(body)
    request, errors = field.validate(content, {}, loc=("body",))
    if errors:
        raise RequestValidationError(errors, body=content)
    return request


class Threads:
    """A pool of at most `n_most` concurrent threads, separate from those of all other requests.

    A request that is given up leaves its thread behind, and the thread its place only when it has ended: else requests
    to a silent store would make more and more threads.
    """

    def __init__(self, n_most: int) -> None:
        self._places = asyncio.Semaphore(n_most)
        self._unlimited = anyio.CapacityLimiter(math.inf)  # the places are the limit

    async def run(self, function: Callable[..., Answer], *arguments: object) -> Answer:
        """Run a function on a thread once one is free, and return its result."""
        await self._places.acquire()
        loop, begun = asyncio.get_running_loop(), threading.Lock()  # or given up: whichever comes first

        def work() -> Answer:
            if not begun.acquire(blocking=False):
                raise Cancelled("The client has disconnected.")
            try:
                check_still_asked()
                return function(*arguments)
            finally:
                with contextlib.suppress(RuntimeError):  # the server has stopped meanwhile
                    loop.call_soon_threadsafe(self._places.release)

        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._unlimited)
        except BaseException:
            if begun.acquire(blocking=False):
                self._places.release()
            raise


class Openings:
    """Threads that open data sets, at most `n_most` of each kind: object stores, which may hang, have separate threads.

    So have files that are read, which may take as long as a request may, beside those that are only looked for; and queries and
    what-ifs, which compute: so requests that list or submit something do not wait for them.
    """

    def __init__(self, n_most: int) -> None:
        self.here, self.elsewhere, self.reading = Threads(n_most), Threads(n_most), Threads(n_most)
        self.computing = Threads(max(LEAST_COMPUTING, available_cores()))

    def of(self, uris: Iterable[str], *, are_read: bool = False) -> Threads:
        """Return the pool in which to open these URIs; a name without a scheme counts as local."""
        is_elsewhere = any("://" in uri and not uri.lower().startswith("file://") for uri in uris)
        return self.elsewhere if is_elsewhere else self.reading if are_read else self.here

    def of_job(self, request: AnyRequest | None) -> Threads:
        """Return the pool in which to look for the files of a job."""
        named = getattr(request, "train", request)
        return self.of([*(getattr(named, "uris", None) or ()), *(getattr(named, "test_uris", None) or ())])


class File(FileResponse):
    """A file, or a range of it, as a response; an invalid range is answered with a problem document."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file, or the problem of an invalid range."""
        refusal: list[Message] = []

        async def send_problem_instead(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in UNREADABLE_RANGES:
                refusal.append(message)
            elif refusal:
                start, detail = refusal[0], message.get("body", b"").decode() or "The range lies outside the file"
                problem = problem_from_http_status(
                    start["status"], f"{detail.rstrip('.')}. Send Range: bytes=FIRST-LAST."
                )
                ranges = [pair for pair in start["headers"] if pair[0] == b"content-range"]
                body = json.dumps(problem.body(scope["path"])).encode()
                await send_body(send, problem.status, MEDIA_TYPE, body, ranges)
            else:
                await send(message)

        await super().__call__(scope, receive, send_problem_instead)


TAR = "application/x-tar"


def _body_of(media_type: str) -> JSONObject:
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": {media_type: schema}}}


TAR_BODY, BYTES_BODY = _body_of(TAR), _body_of("application/octet-stream")


async def receive_tar_upload(request: Request) -> AsyncIterator[Path]:
    """Receive a tar upload into a file; raises UnsupportedMediaType or BodyTooLarge if it cannot be read."""
    workspace = workspace_from_request(request)
    max_bytes = workspace.settings.max_import_bytes
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != TAR:
        raise UnsupportedMediaType(
            f"Content type {content_type!r} is not supported. Send {TAR}.", content_type=content_type
        )
    with draft_file_path(workspace.layout.scratch, "upload.tar") as path:
        await write_body_to_file(request, path, max_bytes)
        yield path


AHEAD_BYTES = 8 << 20  # reserved at once for a body whose length is unknown


async def write_body_to_file(
    request: Request, path: Path, max_bytes: int, reserve: Callable[[int, int], int] | None = None
) -> int:
    """Write the body to a file piece by piece and return its size in bytes.

    `reserve`, called in a thread with the least and the most bytes to reserve for the file, returns how many it has
    reserved; or raises. Raises BodyTooLarge above `max_bytes`; MalformedBody or UnsupportedMediaType if the body is not
    the bytes of the whole file.
    """
    check_whole_body(request.scope)
    declared = content_length(request.scope)
    check_file_size(declared or 0, max_bytes)
    n_reserved = 0

    async def extend(n_bytes: int) -> int:
        most = n_bytes if declared is not None else min(n_bytes + AHEAD_BYTES, max_bytes)
        return most if reserve is None else await anyio.to_thread.run_sync(reserve, n_bytes, most)

    with path.open("wb") as file:
        n_reserved = await extend(declared or 0)
        async for chunk in request.stream():
            end = file.tell() + len(chunk)
            check_file_size(end, max_bytes)
            if end > n_reserved:
                n_reserved = await extend(end)
            file.write(chunk)
        file.truncate()
        return file.tell()


def check_file_size(n_bytes: int, max_bytes: int) -> None:
    """Refuse a file of more than `max_bytes` (BodyTooLarge)."""
    if n_bytes > max_bytes:
        raise BodyTooLarge(f"The file has {n_bytes} bytes or more; the limit is {max_bytes}.", max_bytes=max_bytes)


Upload = Annotated[Path, Depends(receive_tar_upload)]
Ours = Annotated[Workspace, Depends(workspace_from_request)]
Limit = Annotated[int, Query(ge=1, le=1000)]


async def openings_from_request(request: Request) -> Openings:
    """Return the thread pools that open data sets, which may wait as long as a store does not answer."""
    opening: Openings = request.app.state.opening
    return opening


Opening = Annotated[Openings, Depends(openings_from_request)]
