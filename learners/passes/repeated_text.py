"""How long text becomes whose values repeat the beginning of the one before (DELTA_BYTE_ARRAY), before it is decoded."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from learners.passes.delta_kernels import sum_of_lengths
from learners.passes.page_headers import DATA_PAGE_V2, Page
from learners.passes.thrift import number

# By Parquet's numbers. An older form of LZ4 has the number 5, and Arrow alone knows how to read it.
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_UNPACKED, _OLD_LZ4 = 0, 5
_RUN_LENGTHS = 3  # the encoding of levels


def text_bytes(page: Page, codec: int, levels: tuple[int, int], read_at: Callable[[int, int], bytes]) -> int | None:
    """The bytes of a page's values once decoded; None if only decoding them would tell.

    Parameters
    ----------
    page : Page
        Of values in DELTA_BYTE_ARRAY.
    codec : int
        Parquet's number of what packs the page.
    levels : tuple of int
        The greatest repetition level and the greatest definition level of the column.
    read_at : callable
        `read_at(n_bytes, offset)` gives bytes of the file.

    Raises
    ------
    ValueError
        If the page is damaged.

    References
    ----------
    https://github.com/apache/parquet-format, Encodings.md: Delta Strings, Delta Encoding.
    """
    if codec == _OLD_LZ4:
        return None
    content = read_at(page.stored_bytes, page.begin)
    if page.kind == DATA_PAGE_V2:
        begin = number(page.header, 5) + number(page.header, 6)
        if not 0 <= begin <= min(page.decoded_bytes, len(content)):
            raise ValueError("The levels of a page lie outside of it.")
        is_packed = page.header.get(7, True) is not False
        values = _unpacked(content[begin:], codec if is_packed else _UNPACKED, page.decoded_bytes - begin)
    else:
        whole = _unpacked(content, codec, page.decoded_bytes)
        begin = 0
        for level, field in zip(levels, (4, 3), strict=True):
            if level and number(page.header, field) != _RUN_LENGTHS:
                return None
            if level:
                begin += 4 + int.from_bytes(whole[begin : begin + 4], "little")
        values = whole[begin:]
    repeated = sum_of_lengths(np.frombuffer(values, np.uint8), page.n_values)
    if repeated < 0:
        raise ValueError("The lengths of a page's values are damaged.")
    return int(repeated) + len(values)


def _unpacked(content: bytes, codec: int, n_bytes: int) -> bytes:
    if codec == _UNPACKED:
        return content
    name = _CODECS.get(codec)
    if name is None:
        raise ValueError(f"A page is packed by codec {codec}, which Parquet does not know.")
    return pa.Codec(name).decompress(content, n_bytes).to_pybytes() if content and n_bytes else b""
