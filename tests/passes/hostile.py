"""Small Parquet files that unpack to much, or whose bytes are damaged."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from learners.passes.sources.source import Source

MB = 1 << 20
REPEATING = {"use_dictionary": False, "column_encoding": {"bomb": "DELTA_BYTE_ARRAY", "class": "PLAIN"}}


def classes(n):
    return pa.array(["a", "b"] * (n // 2))


def written(path, column, **how):
    pq.write_table(pa.table({"bomb": column, "class": classes(len(column))}), path, compression="zstd", **how)
    assert path.stat().st_size < MB
    return Source.open(path)


def long_texts(n, n_bytes):
    """Texts of one letter, without Python's objects."""
    content = pa.py_buffer(np.full(n * n_bytes, ord("x"), np.uint8))
    offsets = pa.py_buffer(np.arange(n + 1, dtype=np.int32) * n_bytes)
    return pa.Array.from_buffers(pa.string(), n, [None, offsets, content])


def damaged_footers(path, n):
    """The bytes of a small file with one byte of its footer changed, n times."""
    times = pa.array(range(1000), pa.timestamp("us"))
    table = pa.table({"word": ["a", "b"] * 500, "time": times, "class": classes(1000)})
    pq.write_table(table, path, row_group_size=100)
    whole, random, found = path.read_bytes(), np.random.default_rng(0), []
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for _ in range(n):
        changed = bytearray(whole)
        changed[random.integers(begin, len(whole) - 8)] ^= int(random.integers(1, 256))
        found.append(bytes(changed))
    return found
