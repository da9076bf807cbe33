"""Sums of files and documents, by which a changed byte is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import xxhash

from storage.errors import CorruptFile
from storage.files.atomic_files import write_file_atomically

_SUM = "xxh3_128"


def sha256_of_file(path: Path | str) -> str:
    """SHA-256 of the bytes of a file, in hexadecimal digits."""
    with Path(path).open("rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(path: Path | str, files: dict[str, str]) -> None:
    """Publish file name -> SHA-256 beside `path`, in the format that ``sha256sum --check`` reads."""
    with write_file_atomically(path, replace=True) as draft:
        draft.write_text("".join(f"{sha256}  {name}\n" for name, sha256 in sorted(files.items())), encoding="utf-8")


def read_manifest(path: Path | str) -> dict[str, str]:
    """File name -> SHA-256 of a manifest; CorruptFile if it is missing or not a manifest."""
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptFile(path, f"the manifest cannot be read ({error}). Restore it from a backup.") from error
    files = {}
    for line in lines:
        sha256, separator, name = line.partition("  ")
        if not separator or len(sha256) != 64:
            raise CorruptFile(path, f"{line!r} is not a line of a manifest. Restore it from a backup.")
        files[name] = sha256
    return files


def verify_file_sha256(path: Path | str, sha256: str) -> None:
    """Check the bytes of a file; CorruptFile if it is missing or its SHA-256 differs."""
    path = Path(path)
    try:
        actual = sha256_of_file(path)
    except OSError as error:
        raise CorruptFile(path, f"it cannot be read ({error.strerror}). Restore it from a backup.") from error
    if actual != sha256:
        raise CorruptFile(path, f"its SHA-256 is {actual[:16]}…, not {sha256[:16]}…. Restore it from a backup.")


def json_with_checksum(document: Mapping[str, object]) -> str:
    """A JSON object as text, with the sum of all its other members."""
    return json.dumps({_SUM: _sum_of(document), **document}, indent=1)


def parse_checked_json(path: Path, text: str | bytes) -> dict[str, object]:
    """The object that `json_with_checksum` wrote; of one without a sum, as earlier releases wrote them, nothing is checked.

    Raises CorruptFile if the sum is another one, ValueError or TypeError if the text is no JSON object.
    """
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError("It holds no JSON object")
    digest = document.pop(_SUM, None)
    if digest is not None and digest != _sum_of(document):
        raise CorruptFile(path, "its content is not what was written. Restore it from a backup.")
    return document


def _sum_of(document: Mapping[str, object]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_128_hexdigest(canonical.encode())
