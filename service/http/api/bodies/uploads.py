"""Files as request bodies: they go to the disk piece by piece, and are gone when the request has been answered."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from service.console.pages import workspace_of
from service.http.api.bodies.bodies import content_length
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge, UnsupportedMediaType
from storage.files.atomic_files import drafting

TAR = "application/x-tar"


def _body_of(media_type: str) -> JSONObject:
    schema = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": {media_type: schema}}}


TAR_BODY, BYTES_BODY = _body_of(TAR), _body_of("application/octet-stream")


async def received(request: Request) -> AsyncIterator[Path]:
    """The body in a file; UnsupportedMediaType or BodyTooLarge if it is none that is read."""
    workspace = workspace_of(request)
    max_bytes = workspace.settings.max_import_bytes
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != TAR:
        raise UnsupportedMediaType(
            f"Content type {content_type!r} is not supported. Send {TAR}.", content_type=content_type
        )
    with drafting(workspace.layout.scratch, "upload.tar") as path:
        await write_body(request, path, max_bytes)
        yield path


async def write_body(request: Request, path: Path, max_bytes: int) -> int:
    """Write the body to a file, piece by piece; returns its bytes. BodyTooLarge ends it."""
    n_bytes = content_length(request.scope) or 0
    with path.open("wb") as file:
        async for chunk in request.stream():
            n_bytes = max(n_bytes, file.tell() + len(chunk))
            if n_bytes > max_bytes:
                raise BodyTooLarge(
                    f"The file has {n_bytes} bytes or more; at most {max_bytes} are taken.", max_bytes=max_bytes
                )
            file.write(chunk)
        return file.tell()


Upload = Annotated[Path, Depends(received)]
