"""Sums of files that are checked whenever the files are read: XXH3 runs about as fast as memory.

They show damage, and not malice: SHA-256 stays where somebody may want to deceive.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from pathlib import Path

import xxhash

from storage.errors import CorruptFile

SUM_DIGITS = 32
_SUM, _PIECE = "xxh3_128", 1 << 22


def with_sum(document: Mapping[str, object]) -> str:
    """A JSON object as text, with the sum of all its other members."""
    return json.dumps({_SUM: _sum_of(document), **document}, indent=1)


def checked_document(path: Path, text: str | bytes) -> dict[str, object]:
    """The object that `with_sum` wrote; of one without a sum, as earlier releases wrote them, nothing is checked.

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


def seal(path: Path, token: bytes) -> None:
    """Put the sum of a whole file, a draft, into the file itself, in the places that were left for it.

    `token` stands where the sum belongs, before as many zeros as a sum has digits.
    """
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        places = _places(content, token)
        found = _sum_without(content, places)
        for place in places:
            content[place : place + SUM_DIGITS] = found
        content.flush()


def is_sealed(path: Path, token: bytes, digest: bytes) -> bool:
    """Whether the sum of a whole file is the one that was put into it; all of it is read, once."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        places = _places(content, token)
        is_written = all(content[place : place + SUM_DIGITS] == digest for place in places)
        return is_written and _sum_without(content, places) == digest


def _places(content: mmap.mmap, token: bytes) -> list[int]:
    """Where the sum stands: Arrow writes the metadata of a schema first, and once more at the end."""
    found = {content.find(token), content.rfind(token)} - {-1}
    return [place + len(token) for place in sorted(found)]


def _sum_without(content: mmap.mmap, places: list[int]) -> bytes:
    """The sum of all bytes, with zeros for the sum itself."""
    whole, at = xxhash.xxh3_128(), 0
    with memoryview(content) as view:
        for place in [*places, len(content)]:
            for begin in range(
                at, place, _PIECE
            ):  # as views, each released before the next: a mapping with views cannot close
                with view[begin : min(begin + _PIECE, place)] as piece:
                    whole.update(piece)
                # Pages that have been read need not count as memory of this process.
                content.madvise(mmap.MADV_DONTNEED, begin - begin % mmap.PAGESIZE, _PIECE)
            if place < len(content):
                whole.update(b"0" * SUM_DIGITS)
                at = place + SUM_DIGITS
    return whole.hexdigest().encode()
