"""Static files of the console, each served under its SHA-256 so that browsers fetch it once."""

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
        """First digits of the file's SHA-256."""
        return hashlib.sha256(self.content).hexdigest()[:N_DIGITS]

    @cached_property
    def packed(self) -> bytes:
        """Gzip-compressed content."""
        return gzip.compress(self.content, 9, mtime=0)


@cache
def find_static_asset(name: str) -> Asset | None:
    """Return a static file by its path below `static`; None if it does not exist."""
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
    """Return the URL of the current version of a static file; raises LookupError if it does not exist."""
    asset = find_static_asset(name)
    if asset is None:
        raise LookupError(f"service/console/static has no file {name!r}")
    return f"{PREFIX}{name}?v={asset.digest}"
