"""Files as request bodies: they go to the disk piece by piece, and are gone when the request has been answered."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request

from service.http.api.bodies.bodies import content_length
from service.http.api.bodies.shapes import workspace_of
from service.requests.json_values import JSONObject
from service.requests.problems import BodyTooLarge, UnsupportedMediaType
from storage.files.workspace_layout import drafting

TAR = "application/x-tar"
TAR_BODY: JSONObject = {
    "requestBody": {"required": True, "content": {TAR: {"schema": {"type": "string", "format": "binary"}}}}
}


async def received(request: Request) -> AsyncIterator[Path]:
    """The body in a file.

    Raises
    ------
    UnsupportedMediaType, BodyTooLarge
    """
    workspace = workspace_of(request)
    max_bytes = workspace.settings.max_import_bytes
    content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != TAR:
        raise UnsupportedMediaType(
            f"Content type {content_type!r} is not supported. Send {TAR}.", content_type=content_type
        )
    n_bytes = content_length(request.scope) or 0
    with drafting(workspace.layout.scratch, "upload.tar") as path:
        with path.open("wb") as file:
            async for chunk in request.stream():
                n_bytes = max(n_bytes, file.tell() + len(chunk))
                if n_bytes > max_bytes:
                    raise BodyTooLarge(
                        f"The file has {n_bytes} bytes or more; at most {max_bytes} are imported.", max_bytes=max_bytes
                    )
                file.write(chunk)
        yield path


Upload = Annotated[Path, Depends(received)]
