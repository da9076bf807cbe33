"""The first line of a CSV file: its delimiter and the names of its columns."""

from __future__ import annotations

import csv
import io
from collections import Counter
from itertools import islice

import pyarrow as pa

from learners.errors import SourceError

DELIMITERS = ",;\t|"
MOST_BYTES = 4 << 20  # of the line of names; pyarrow reads such blocks, and it must lie in one
SAMPLE_BYTES = 1 << 16  # behind that line
SAMPLE_ROWS = 50


def csv_header(stream: pa.NativeFile, path: str) -> tuple[str, list[str]]:
    """The delimiter of a CSV file and the names of its columns.

    The delimiter is the one by which the first rows have most fields, all of them as many as there are names; if there is
    none, the one by which there are most names. So neither what is in quotes nor a name with a semicolon decides it.

    Parameters
    ----------
    stream : NativeFile
        At the beginning of the file, unpacked.
    path : str
        For messages.

    Raises
    ------
    SourceError
        If there are no names, one of them twice, or more of them than fit.
    """
    head, is_whole = _head(stream)
    if not head.strip():
        raise SourceError(path, "is empty: it must begin with a line of names.")
    if not is_whole:
        raise SourceError(
            path, f"has no end of its line of names within {MOST_BYTES >> 20} MiB. Shorten the names, or write Parquet."
        )
    found = {mark: _rows(head, mark) for mark in DELIMITERS}
    delimiter = max(DELIMITERS, key=lambda mark: _fitness(found[mark]))
    names = found[delimiter][0] if found[delimiter] else []
    name, n_times = next(iter(Counter(names).most_common(1)), ("", 0))
    if n_times > 1:
        raise SourceError(path, f"has two columns named {name!r}. Rename one.")
    if not names or not any(names):
        raise SourceError(path, "has no names of columns in its first line. Add a line with a name for each column.")
    return delimiter, names


def _head(stream: pa.NativeFile) -> tuple[str, bool]:
    """The line of names with some rows behind it, and whether that line has an end."""
    read, text = b"", ""
    while len(read) < MOST_BYTES:
        more = stream.read(max(SAMPLE_BYTES, len(read)))
        read += more
        text = read.decode("utf-8-sig", errors="replace")
        if not more or len(_rows(text, DELIMITERS[0], 3)) > 1:
            return text, True
    return text, False


def _rows(head: str, delimiter: str, most: int = SAMPLE_ROWS) -> list[list[str]]:
    """The names and the first rows, without empty lines and without the last row, which may be cut."""
    rows: list[list[str]] = []
    try:
        rows += (row for row in islice(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter), most) if row)
    except csv.Error:  # a value of more characters than the module takes: what is before it is enough
        return rows
    return rows[:-1] if 1 < len(rows) < most and not head.endswith(("\n", "\r")) else rows


def _fitness(rows: list[list[str]]) -> tuple[bool, int]:
    """How well rows are cut: all alike, and into many fields."""
    n_names = len(rows[0]) if rows else 0
    return n_names > 1 and all(len(row) == n_names for row in rows), n_names
