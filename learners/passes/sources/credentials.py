"""Data locations that need a secret: the URI names the location, the environment holds the secret.

`FEWPASS_CREDENTIALS_SHOP=https://ana:…@host/tables` makes `credentials://shop/week-1.parquet` readable. The
secret belongs to that location, so no request can send it to another server; only the URI without it is
stored, shown or logged.
"""

from __future__ import annotations

import os
import re
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit, urlunsplit

from learners.errors import SourceError

PREFIX = "FEWPASS_CREDENTIALS_"
SCHEME = "credentials"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def resolve_credentials_uri(uri: str) -> str:
    """Resolve `credentials://name/path` to the URI with its secret, which must only be used to open the file.

    Raises SourceError if no credentials have that name, or the path could lead to another location.
    """
    name, _, path = uri.partition("://")[2].partition("/")
    if NAME.fullmatch(name) is None:
        raise SourceError(
            uri, "lacks the name of credentials. Write credentials://name/path for FEWPASS_CREDENTIALS_NAME."
        )
    if ".." in path.split("/") or set("?#@%\\") & set(path):
        raise SourceError(
            uri,
            "may contain only plain names of folders and files after the credentials, without '..', '?', '#', '@' and '%'.",
        )
    base = urlsplit(_held(uri, name))
    if not base.scheme or base.scheme == SCHEME:
        raise SourceError(
            uri, f"its credentials contain no folder URI. Set {_variable(name)} to one, such as https://…."
        )
    whole = base.path.rstrip("/") + "/" + path if path else base.path
    return urlunsplit((base.scheme, base.netloc, whole, base.query, ""))


def split_http_credentials(uri: str) -> tuple[str, dict[str, Any]]:
    """Split an http(s) URI into the URI without user, password and query, and the HTTP client options that replace
    them.
    """
    parts = urlsplit(uri)
    options: dict[str, Any] = {"params": dict(parse_qsl(parts.query))} if parts.query else {}
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        options["headers"] = {"Authorization": f"Basic {b64encode(login.encode()).decode()}"}
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")), options


def _held(uri: str, name: str) -> str:
    variable = _variable(name)
    if (held := os.environ.get(variable)) is not None:
        return held.strip()
    if (file := os.environ.get(f"{variable}_FILE")) is None:
        raise SourceError(
            uri, f"credentials {name!r} are not set. Set {variable}, or {variable}_FILE to a file that contains them."
        )
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        raise SourceError(uri, f"the file of {variable}_FILE cannot be read ({type(error).__name__}).") from error


def _variable(name: str) -> str:
    return PREFIX + name.upper().replace("-", "_")
