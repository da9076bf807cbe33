"""The file system that a path or URI is on."""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from learners.errors import SourceError, one_line
from learners.passes.sources import credentials
from learners.passes.sources.lake import catalogs

# What pyarrow reaches by itself, and what fsspec adds. No others: a scheme such as fsspec's `local` would be a way around the
# checks of paths.
NATIVE = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs", "mock")
BY_FSSPEC = ("memory", "http", "https")
DATABASES = ("duckdb", "postgresql", "postgres")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def filesystem_of(uri: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a path or URI, and the path on it. Raises SourceError if the URI is none, or its scheme is not known."""
    if "://" not in uri:
        return pafs.LocalFileSystem(), uri
    found = SCHEME.match(uri)
    scheme = found[1].lower() if found else ""
    if scheme == credentials.SCHEME:
        return _with_credentials(uri)
    if scheme == catalogs.SCHEME:
        return filesystem_of(catalogs.metadata_of(uri))
    if scheme in BY_FSSPEC:
        return _by_fsspec(uri, scheme)
    if scheme in DATABASES:
        raise SourceError(
            uri,
            "is a database. The commands train, evaluate, predict, score, impute and report read it; elsewhere write its rows to a Parquet file, or give an "
            "estimator their Arrow stream, such as duckdb.connect(path).sql(query).",
        )
    if scheme not in NATIVE:
        known = ", ".join(f"{name}://" for name in (*NATIVE[:-1], *BY_FSSPEC, credentials.SCHEME, catalogs.SCHEME))
        raise SourceError(uri, f"is not a usable URI. Give a path, or one of {known}.")
    # A glob is no valid URI everywhere: resolve its fixed part and put the rest back.
    fixed = uri.split("*")[0].rsplit("/", 1)[0] if "*" in uri else uri
    try:
        place, path = pafs.FileSystem.from_uri(fixed)
    except (ValueError, OSError, pa.ArrowException) as error:
        raise SourceError(uri, f"is not a usable URI ({one_line(error)}).") from error
    return place, path + uri[len(fixed) :]


def _with_credentials(uri: str) -> tuple[pafs.FileSystem, str]:
    """As `filesystem_of`; the path that comes back, and the errors, hold no secret."""
    place = credentials.place_of(uri)
    scheme = place.partition("://")[0].lower()
    options: dict[str, Any] = {}
    try:
        if scheme in ("http", "https"):
            place, options = credentials.without_secret(place)
            return _by_fsspec(place, scheme, **options)
        return filesystem_of(place)
    except (SourceError, ImportError, ValueError):  # whose words may be those of the secret
        reason = (
            f"cannot be opened with its credentials. Check the {scheme} URI in them, and pip install 'fewpass[remote]'."
        )
    raise SourceError(uri, reason)


def _by_fsspec(uri: str, scheme: str, **options: Any) -> tuple[pafs.FileSystem, str]:
    try:
        import fsspec

        if scheme == "memory":
            place = fsspec.filesystem("memory")
        else:
            # A redirection could lead to a server that nobody has allowed.
            place = fsspec.filesystem(
                scheme, allow_redirects=False, use_listings_cache=False, skip_instance_cache=True, **options
            )
    except ImportError as error:
        raise SourceError(uri, f"needs more libraries ({one_line(error)}): pip install 'fewpass[remote]'.") from error
    return pafs.PyFileSystem(pafs.FSSpecHandler(place)), str(place._strip_protocol(uri))


def read_bytes(uri: str) -> bytes:
    """The content of a small file. Raises SourceError."""
    filesystem, path = filesystem_of(uri)
    try:
        with filesystem.open_input_file(path) as stream:
            content: bytes = stream.read()
    except FileNotFoundError as error:
        raise SourceError(uri, "no such file.") from error
    except (OSError, ValueError, pa.ArrowException) as error:
        raise SourceError(uri, f"cannot be read ({one_line(error)}).") from error
    return content
