"""The headers of Parquet's pages, which say what decoding allocates, whatever the footer says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from learners.passes.thrift import Fields, number, structure

DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = range(4)
DELTA_BYTE_ARRAY = 7  # values say how much of the value before they repeat
HEADER_BYTES, MOST_HEADER_BYTES = 128, 16 << 20  # what is read at first, and what Arrow reads at most


class Page(NamedTuple):
    """One page.

    Attributes
    ----------
    kind : int
    begin : int
        Offset in the file of what follows the header.
    stored_bytes, decoded_bytes : int
        In the file, and once unpacked.
    n_values : int
        As the header says.
    encoding : int
        Of the values; -1 where the header does not say.
    header : Fields
        What the header says of a page of this kind.
    """

    kind: int
    begin: int
    stored_bytes: int
    decoded_bytes: int
    n_values: int
    encoding: int
    header: Fields


def pages_between(read_at: Callable[[int, int], bytes], begin: int, end: int) -> Iterator[Page]:
    """The pages of one column of one row group, in file order.

    Parameters
    ----------
    read_at : callable
        `read_at(n_bytes, offset)` gives at most so many bytes of the file.
    begin, end : int
        Offsets of the column's bytes.

    Raises
    ------
    ValueError
        If there is no header where one must be.

    References
    ----------
    https://github.com/apache/parquet-format, parquet.thrift: PageHeader; the compact protocol of Apache Thrift.
    """
    at = begin
    while at < end:
        header, size = _header(read_at, at, end)
        kind, decoded, stored = (number(header, i) for i in (1, 2, 3))
        told = header.get({DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind, 0), {})
        if min(decoded, stored) < 0 or at + size + stored > end or not isinstance(told, dict):
            raise ValueError("A page lies outside of its column.")
        n_values = max(0, number(told, 1)) if told else 0
        encoding = number(told, 4 if kind == DATA_PAGE_V2 else 2) if told else -1
        yield Page(kind, at + size, stored, decoded, n_values, encoding, told)
        at += size + stored


def _header(read_at: Callable[[int, int], bytes], at: int, end: int) -> tuple[Fields, int]:
    """A header and its length; it may hold bounds of values, so more is read where it does not end."""
    n_bytes = HEADER_BYTES
    while True:
        content = read_at(min(n_bytes, end - at), at)
        try:
            return structure(content, 0)
        except IndexError as error:
            if n_bytes >= MOST_HEADER_BYTES or len(content) < n_bytes:
                raise ValueError("A page header does not end.") from error
            n_bytes *= 16
