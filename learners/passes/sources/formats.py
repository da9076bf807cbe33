"""The formats of files, told by the ends of their names."""

from __future__ import annotations

FORMATS = {
    "Parquet": (".parquet", ".pq"),
    "CSV": (".csv", ".tsv"),
    "JSON lines": (".jsonl", ".ndjson", ".json"),
    "Feather": (".feather", ".arrow", ".ipc"),
    "ORC": (".orc",),
}
TEXT = ("CSV", "JSON lines")
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def format_of(path: str) -> str | None:
    """The format of a file; None if the end of its name tells none.

    Files of text may be packed as well.
    """
    name = path.lower()
    for packed in PACKED:
        if name.endswith(packed):
            bare = name.removesuffix(packed)
            return next((kind for kind in TEXT if bare.endswith(FORMATS[kind])), None)
    return next((kind for kind, ends in FORMATS.items() if name.endswith(ends)), None)


def codec_of(path: str) -> str | None:
    """How a file is packed, by its name."""
    return next((codec for packed, codec in PACKED.items() if path.lower().endswith(packed)), None)
