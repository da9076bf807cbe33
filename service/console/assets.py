"""The console's static files, each under the SHA-256 of what it holds, so that browsers ask for it once."""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from importlib.resources.abc import Traversable

PREFIX = "/console/static/"
TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".json": "application/json",
}
N_DIGITS = 12


@dataclass(frozen=True)
class Asset:
    """One static file."""

    content: bytes
    media_type: str

    @cached_property
    def digest(self) -> str:
        """The first digits of its SHA-256."""
        return hashlib.sha256(self.content).hexdigest()[:N_DIGITS]

    @cached_property
    def packed(self) -> bytes:
        """The same by gzip."""
        return gzip.compress(self.content, 9, mtime=0)


@cache
def find_static_asset(name: str) -> Asset | None:
    """A static file by its path below `static`; None if there is none."""
    place: Traversable = files("service.console").joinpath("static")
    for part in name.split("/"):
        # A part that leads elsewhere names no file of ours.
        if part in {"", ".", ".."} or "\\" in part:
            return None
        place = place.joinpath(part)
    suffix = f".{name.rpartition('.')[2]}"
    if suffix not in TYPES or not place.is_file():
        return None
    return Asset(place.read_bytes(), TYPES[suffix])


def static_asset_url(name: str) -> str:
    """Where a browser gets a static file, in its present form; LookupError if there is none of that name."""
    asset = find_static_asset(name)
    if asset is None:
        raise LookupError(f"service/console/static has no file {name!r}")
    return f"{PREFIX}{name}?v={asset.digest}"
