"""The table of file formats: what ends their names, and what reads them.

A format that `pyarrow.dataset` reads is one line here. Another one also needs its functions in `tabular`: one that finds the columns,
one that yields the rows. Messages, `--help` and the console list the formats from this table.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class FileFormat:
    """A file format."""

    name: str
    ends: tuple[str, ...]
    is_text: bool = False
    """Whether types are found in the values, and the file may be compressed as a whole."""
    arrow: str | None = None
    """The class of `pyarrow.dataset` that reads it, for a format whose files contain the types and are read from end to end."""


PARQUET, CSV, JSON_LINES = "Parquet", "CSV", "JSON lines"
FORMATS = {
    each.name: each
    for each in (
        FileFormat(PARQUET, (".parquet", ".pq")),
        FileFormat(CSV, (".csv", ".tsv"), is_text=True),
        FileFormat(JSON_LINES, (".jsonl", ".ndjson", ".json"), is_text=True),
        FileFormat("Feather", (".feather", ".arrow", ".ipc"), arrow="IpcFileFormat"),
        FileFormat("ORC", (".orc",), arrow="OrcFileFormat"),
    )
}
FORMAT_NAMES = ", ".join(FORMATS)
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}


def file_format_by_extension(path: str) -> str | None:
    """Return the format of a file by its extension; None if unknown.

    Text files may be compressed.
    """
    name = path.lower()
    packed = next((end for end in PACKED if name.endswith(end)), "")
    bare = name.removesuffix(packed)
    return next(
        (each.name for each in FORMATS.values() if bare.endswith(each.ends) and (each.is_text or not packed)), None
    )
