"""Header of a CSV file: its dialect and column names."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

import pyarrow as pa
import pyarrow.csv as pacsv

from learners.errors import SourceError, columns_setting
from learners.passes.sources.csv.lines import (
    UTF8,
    PlainLines,
    csv_encoding_error,
    detect_csv_encoding,
    first_invalid_utf8_index,
)
from learners.schema.reading import Dialect

DELIMITERS = ",;\t|"
RARE = "^~:\x01\x1f "  # no text is cut by them unless a user says so
MOST_BYTES = 4 << 20  # of the line of names; pyarrow reads such blocks, and it must lie in one
SAMPLE_BYTES = 1 << 16  # behind that line
SAMPLE_ROWS = 50
SEPARATOR = re.compile(r'"?sep=([^\r\n])"?(?:\r\n|\r|\n|$)', re.IGNORECASE)


@dataclass(frozen=True)
class Header:
    """Dialect and column names of a CSV file."""

    dialect: Dialect  # with its delimiter and its encoding
    names: tuple[str, ...]
    n_skipped: int = 0  # lines of the file above the names
    are_written: bool = True  # whether the names stand in the file as they are here

    def plain(self, stream: pa.NativeFile, path: str) -> pa.NativeFile:
        """Wrap a file's stream for pyarrow: UTF-8, names first, without comments."""
        if self.dialect.encoding in UTF8 and not self.n_skipped and not self.dialect.comment:
            return stream
        return pa.PythonFile(PlainLines(stream, self.dialect, self.n_skipped, path), mode="r")

    def read_options(self, block_bytes: int) -> pacsv.ReadOptions:
        """Return the read options for pyarrow."""
        options = pacsv.ReadOptions(block_size=block_bytes, use_threads=False)
        if not self.are_written:
            options.column_names = list(self.names)
            options.skip_rows_after_names = int(self.dialect.header > 0)
        return options

    def parse_options(self) -> pacsv.ParseOptions:
        """Return the parse options for pyarrow: quoted values may contain line breaks, and in a single-column file an
        empty line is a row.
        """
        return pacsv.ParseOptions(
            delimiter=self.dialect.delimiter,
            quote_char=self.dialect.quote or False,
            escape_char=self.dialect.escape or False,
            newlines_in_values=True,
            ignore_empty_lines=len(self.names) != 1,
        )


def read_csv_header(stream: pa.NativeFile, path: str, options: Dialect) -> Header:
    """Detect the dialect of a CSV file and read its column names.

    The delimiter is the one that gives the most fields in the first rows, with as many in each row as there are
    names; if none does, the one that gives the most names. So quoted text or a name with a semicolon does not
    decide it.

    `stream`: at the beginning of the file, unpacked.
    `path`: for messages.
    `options`: the user's options for it. Raises SourceError if there are no names, one of them twice, or more of them
    than fit; and where another dialect reads what this one does not.
    """
    dialect, text, is_whole = _head(stream, path, options)
    if not text.strip():
        raise SourceError(path, "is empty: it must begin with a line of names.")
    n_skipped = max(0, dialect.header - 1)
    mark = SEPARATOR.match(text)
    if mark is not None and dialect.header <= 1:
        n_skipped, dialect = 1, replace(dialect, delimiter=options.delimiter or mark[1])
    if n_skipped or dialect.comment:
        plain = PlainLines(pa.BufferReader(text.encode()), replace(dialect, encoding="utf-8"), n_skipped, path)
        text = plain.read().decode()
    if not is_whole:
        raise SourceError(
            path, f"has a header line longer than {MOST_BYTES >> 20} MiB. Shorten the names, or write Parquet."
        )
    dialect = dialect if dialect.delimiter else replace(dialect, delimiter=_delimiter(text, dialect, path))
    rows = _rows(text, dialect)
    written = list(rows[0]) if rows else []
    if dialect.header == 0:
        names = [f"column_{place}" for place in range(1, len(written) + 1)]
    else:
        names = _unique(written) if dialect.names else written
    _check_names(path, names)
    if options.header == 1 and not options.comment:
        _check_rows(path, rows, dialect)
    return Header(dialect, tuple(names), n_skipped, names == written and dialect.header > 0)


def _head(stream: pa.NativeFile, path: str, options: Dialect) -> tuple[Dialect, str, bool]:
    """Return the dialect with its encoding, the line of names with some rows after it, and whether that line is
    complete.
    """
    read, text, dialect = b"", "", options
    while len(read) < MOST_BYTES:
        more = stream.read(max(SAMPLE_BYTES, len(read)))
        read += more
        dialect = replace(options, encoding=detect_csv_encoding(read, options.encoding))
        if dialect.encoding in UTF8 and (start := first_invalid_utf8_index(read)) is not None:
            raise csv_encoding_error(path, dialect.encoding, read, 1, start)
        text = read.decode("utf-8-sig" if dialect.encoding in UTF8 else dialect.encoding, errors="replace")
        if (
            not more
            or len(_rows(text, replace(dialect, delimiter=DELIMITERS[0]), 3 + dialect.header)) > 1 + dialect.header
        ):
            return dialect, text, True
    return dialect, text, False


def _rows(text: str, dialect: Dialect, most: int = SAMPLE_ROWS, is_strict: bool = False) -> list[list[str]]:
    """Return the names and first rows, without empty lines and without the last row, which may be incomplete.

    Raises csv.Error if `is_strict` and text follows a closing quote.
    """
    rows: list[list[str]] = []
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=dialect.delimiter,
        quotechar=dialect.quote or None,
        quoting=csv.QUOTE_MINIMAL if dialect.quote else csv.QUOTE_NONE,
        escapechar=dialect.escape or None,
        strict=is_strict,
    )
    try:
        rows += (row for row in islice(reader, most) if row)
    except csv.Error as error:  # a value of more characters than the module takes: what is before it is enough
        if is_strict and "expected after" in str(error):
            raise
        return rows
    return rows[:-1] if 1 < len(rows) < most and not text.endswith(("\n", "\r")) else rows


def _delimiter(text: str, dialect: Dialect, path: str) -> str:
    """Return the delimiter that divides the first rows best."""
    rows_by_mark = {mark: _rows(text, replace(dialect, delimiter=mark)) for mark in DELIMITERS}
    best = max(DELIMITERS, key=lambda mark: _fitness(rows_by_mark[mark]))
    if _is_clean(text, replace(dialect, delimiter=best)):
        if rows_by_mark[best] and len(rows_by_mark[best][0]) == 1:
            _refuse_single(text, dialect, path)
            _refuse_aligned([row[0] for row in rows_by_mark[best] if row], path)
        return best
    escaped = replace(dialect, escape="\\")
    for mark in DELIMITERS:
        form = replace(escaped, delimiter=mark)
        if not dialect.escape and _fitness(_rows(text, form))[0] and _is_clean(text, form):
            raise SourceError(
                path,
                f"has quotes after a backslash. Declare it: {_option(escape=chr(92))}, or write quotes twice.",
            )
    _refuse_single(text, dialect, path, is_clean=False)
    return best


def _refuse_single(text: str, dialect: Dialect, path: str, is_clean: bool = True) -> None:
    """Refuse a single-column file that a rare delimiter divides into several columns."""
    for mark in RARE[:-1] if is_clean else RARE:
        form = replace(dialect, delimiter=mark)
        rows = _rows(text, form)
        n_fields = len(rows[-1]) if rows else 0
        is_cut = len(rows) > 1 and n_fields > 1 and {len(row) for row in rows[1:]} == {n_fields}
        if is_cut and n_fields - len(rows[0]) in (0, 1) and _is_clean(text, form):
            keep = f" (or {_option(delimiter=',')} if it has one column)" if is_clean else ""
            raise SourceError(
                path,
                f"has one column by ',', ';', tab and '|', and {n_fields} by {mark!r}. Set the delimiter: {_option(delimiter=mark)}{keep}.",
            )


def _refuse_aligned(lines: Sequence[str], path: str) -> None:
    """Refuse lines whose values are aligned by blanks."""
    sizes = {len(re.split(r" {2,}|\t+", line.strip())) for line in lines}
    if len(lines) > 2 and len(sizes) == 1 and sizes.pop() > 1:
        raise SourceError(
            path,
            "has columns aligned by spaces, which is not CSV. Read it with pandas.read_fwf and write it as Parquet, or put one "
            "delimiter between values.",
        )


def _is_clean(text: str, dialect: Dialect) -> bool:
    """Return whether no text follows a closing quote."""
    try:
        _rows(text, dialect, is_strict=True)
    except csv.Error:
        return False
    return True


def _fitness(rows: list[list[str]]) -> tuple[bool, int]:
    """Rate a division into fields: first whether all rows have equally many, then their number."""
    n_names = len(rows[0]) if rows else 0
    return n_names > 1 and all(len(row) == n_names for row in rows), n_names


def _unique(names: Sequence[str]) -> list[str]:
    """Make names unique: empty names become their position, repeated names get a number."""
    unique_names: list[str] = []
    names_in_file = set(names)
    for place, name in enumerate(names, 1):
        unique, number = name or f"column_{place}", 2
        if unique in unique_names or (not name and unique in names_in_file):
            while f"{unique}_{number}" in names_in_file or f"{unique}_{number}" in unique_names:
                number += 1
            unique = f"{unique}_{number}"
        unique_names.append(unique)
    return unique_names


def _check_names(path: str, names: Sequence[str]) -> None:
    name, n_times = next(iter(Counter(names).most_common(1)), ("", 0))
    if n_times > 1:
        what = f"two columns named {name!r}" if name else "two columns without a name"
        no_names = "" if not name else f"; if the first line contains values instead of names, set {_option(header=0)}"
        raise SourceError(path, f"has {what}. Rename one, or number them with {_option(names='unique')}{no_names}.")
    if not names or not any(names):
        raise SourceError(
            path,
            f"has no column names in its first line. Add a header line, or set the line of the names: {_option(header=2)} (0 for no header).",
        )


def _check_rows(path: str, rows: Sequence[Sequence[str]], dialect: Dialect) -> None:
    """Refuse a file whose rows all have a different number of values than the header."""
    sizes = {len(row) for row in rows[1:]}
    if len(rows) < 2 or len(rows[0]) in sizes:
        return
    message = f"has {len(rows[0])} names in its first line but {len(rows[1])} values in the next."
    if sizes == {len(rows[0]) + 1} and dialect.header:
        message += (
            " If the names of rows stand first, as R writes them, write with col.names = NA; if each line ends with "
        )
        message += f"{dialect.delimiter!r}, remove that."
    raise SourceError(
        path,
        f"{message} Set the header line, as in {_option(header=2)}, the comment mark, as in {_option(comment='#')}, or the delimiter, as "
        f"in {_option(delimiter=';')}.",
    )


def _option(**dialect: object) -> str:
    return columns_setting({"*": dialect})
