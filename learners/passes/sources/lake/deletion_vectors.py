"""Files that a Delta Lake log references besides data: deletion vectors and checkpoint sidecars.

The library opens them at any location, so they are checked first.
"""

from __future__ import annotations

import json
import re
import uuid
from base64 import b85decode
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs
import pyarrow.parquet as pq

from learners.errors import SourceError
from learners.passes.sources.guarded_files import is_local_filesystem
from learners.passes.sources.lake.snapshots import LOG

# Alphabets of ZeroMQ's and of Python's base 85, in the order of their digits.
Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
B85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
UUID_DIGITS = 20
# A key of JSON may be written with escapes.
MARKS = (b"deletionVector", b"sidecar", b"\\u")
# The library resolves names as URLs: it drops tabs and line breaks, takes "\\" for "/", decodes "%2e", and cuts at "?" and
# "#". So a name that a URL would change is refused; of an absolute one, which may be percent-encoded, only the first two.
_CHANGED = re.compile(r"[\x00-\x20\x7f\\]")
_CHANGED_IF_RELATIVE = re.compile(r"[\x00-\x20\x7f\\%?#:]")


def named_log_files(filesystem: pafs.FileSystem, place: str, path: str, logs: Iterable[str]) -> list[str]:
    """Return the paths of the non-data files that commits and checkpoints reference.

    `place`: the table as requested, for messages.
    `path`: the same on the file system.
    `logs`: commits and checkpoints, by their paths.
    Raises SourceError if one is outside the folder of the table.
    """
    named: dict[str, None] = {}
    for log in logs:
        for action in _actions(filesystem, log):
            sidecar = action.get("sidecar")
            if isinstance(sidecar, dict):
                named[f"{path}/{LOG}/_sidecars/{_relative(place, sidecar.get('path'))}"] = None
            for kind in ("add", "remove"):
                vector = (action.get(kind) or {}).get("deletionVector") if isinstance(action.get(kind), dict) else None
                if isinstance(vector, dict) and vector.get("storageType") != "i":
                    named[f"{path}/{_vector_file(filesystem, place, path, vector)}"] = None
    return list(named)


def _actions(filesystem: pafs.FileSystem, log: str) -> Iterator[dict[str, Any]]:
    """Yield the actions of a commit or checkpoint that may reference another file."""
    if log.endswith(".parquet"):
        with filesystem.open_input_file(log) as stream:
            parquet = pq.ParquetFile(stream)
            leaves = [parquet.schema.column(leaf).path for leaf in range(len(parquet.schema))]
            naming = [
                leaf
                for leaf in leaves
                if leaf.startswith(("sidecar.", "add.deletionVector.", "remove.deletionVector."))
            ]
            for batch in parquet.iter_batches(columns=naming) if naming else ():
                yield from batch.to_pylist()
        return
    with filesystem.open_input_stream(log, compression=None) as stream:
        commit = stream.read()
    if any(mark in commit for mark in MARKS):
        for line in commit.splitlines():
            action = json.loads(line) if line.strip() else {}
            if isinstance(action, dict):
                yield action


def _vector_file(filesystem: pafs.FileSystem, place: str, path: str, vector: dict[str, Any]) -> str:
    """Return the path of a deletion vector's file, relative to the table's folder."""
    text = str(vector.get("pathOrInlineDv"))
    if vector.get("storageType") == "u":
        prefix, digits = text[:-UUID_DIGITS], text[-UUID_DIGITS:]
        try:
            name = uuid.UUID(bytes=b85decode(digits.translate(str.maketrans(Z85, B85))))
        except ValueError as error:
            raise SourceError(place, f"refers to a deletion vector without a path ({text[:40]}).") from error
        return _relative(place, f"{prefix}/deletion_vector_{name}.bin" if prefix else f"deletion_vector_{name}.bin")
    parts = urlsplit(text)
    is_local = is_local_filesystem(filesystem) and parts.scheme == "file" and parts.netloc in ("", "localhost")
    own, folder = unquote(parts.path), str(PurePosixPath(path)).rstrip("/") + "/"
    if not is_local or not own.startswith(folder) or _CHANGED.search(text):
        raise _outside(place, text)
    return _inside(place, own.removeprefix(folder))


def _relative(place: str, name: object) -> str:
    """Return a path relative to the table's folder, as the log has it. Raises SourceError if it leads outside."""
    if _CHANGED_IF_RELATIVE.search(str(name)):
        raise _outside(place, str(name))
    return _inside(place, name)


def _inside(place: str, name: object) -> str:
    """Return a path below the table's folder. Raises SourceError if it leads outside."""
    text = unquote(str(name))
    if (
        not text
        or "://" in text
        or text.startswith(("/", "file:"))
        or ".." in PurePosixPath(text).parts
        or "\0" in text
    ):
        raise _outside(place, str(name))
    return str(name)


def _outside(place: str, name: str) -> SourceError:
    return SourceError(place, f"has a file outside its folder ({name[:200]}), as a shallow clone has. Copy the table.")
