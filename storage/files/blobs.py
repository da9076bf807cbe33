"""Large byte strings in a DuckDB file: the table ``arrays(name, part, dtype, shape, sha256, n_bytes, data)``, in parts, each packed by zstd."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from storage.errors import CorruptFile
from storage.files import duckdb_files

# Values larger than a block of its file DuckDB holds in memory until the insert ends: an array above the memory limit
# would fail. Smaller ones it spills. It works on 2,048 values at once: at 16 KiB a 500 MB array takes 385 MB of memory
# beside itself to write, at 64 KiB 671 MB, in the same 8 s.
PART_BYTES = 16 << 10
_READ_PARTS = 64
_CODEC = "zstd"
_SCHEMA = pa.schema(
    {
        "name": pa.string(),
        "part": pa.int32(),
        "dtype": pa.string(),
        "shape": pa.list_(pa.int64()),
        "sha256": pa.string(),
        "n_bytes": pa.int64(),
        "data": pa.large_binary(),
    }
)


@dataclass(frozen=True)
class Blob:
    """A named byte string, (n_bytes,) uint8, that says what it holds; the name is unique in its file.

    `dtype` is of the elements, as `numpy.dtype.str`, or another word for what is not an array of `shape`.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: np.ndarray

    @property
    def sha256(self) -> str:
        """SHA-256 of the data, in hexadecimal digits."""
        return hashlib.sha256(self.data.data).hexdigest()


def write_blobs(connection: duckdb.DuckDBPyConnection, blobs: Iterable[Blob]) -> None:
    """Make the table `arrays` and fill it; the blobs are taken one at a time."""
    # Packed by us, because DuckDB needs more than our memory limit to read a BLOB that it has compressed.
    connection.execute(
        "CREATE TABLE arrays (name VARCHAR, part INTEGER, dtype VARCHAR, shape BIGINT[], sha256 VARCHAR, n_bytes BIGINT, "
        "data BLOB USING COMPRESSION uncompressed)"
    )
    duckdb_files.insert(connection, "arrays", (part for blob in blobs for part in _parts(blob)), _SCHEMA)


def _parts(blob: Blob) -> Iterator[pa.RecordBatch]:
    sha256 = blob.sha256
    # An empty blob has one part, or it would not be there.
    for part, start in enumerate(range(0, max(blob.data.size, 1), PART_BYTES)):
        raw = blob.data[start : start + PART_BYTES]
        piece = pa.py_buffer(pa.compress(raw, _CODEC, asbytes=True))
        offsets = pa.py_buffer(np.array([0, piece.size], np.int64))
        data = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, piece])
        row = [[blob.name], [part], [blob.dtype], [blob.shape], [sha256], [raw.size]]
        columns = [pa.array(value, field.type) for value, field in zip(row, _SCHEMA, strict=False)]
        yield pa.RecordBatch.from_arrays([*columns, data], schema=_SCHEMA)


def read_blobs(connection: duckdb.DuckDBPyConnection, path: Path) -> list[Blob]:
    """All blobs, in the order in which they were written; CorruptFile if the SHA-256 of one differs."""
    heads = connection.sql(
        "SELECT name, any_value(dtype), any_value(shape), any_value(sha256), sum(n_bytes) "
        "FROM arrays GROUP BY name ORDER BY min(rowid)"
    ).fetchall()
    blobs = {
        name: Blob(name, dtype, tuple(shape), np.empty(int(size), np.uint8)) for name, dtype, shape, _, size in heads
    }
    filled = dict.fromkeys(blobs, 0)
    # Rows come in the order of insertion, hence so do the parts of a blob.
    for batch in connection.sql("SELECT name, n_bytes, data FROM arrays").to_arrow_reader(_READ_PARTS):
        for name, n_bytes, value in zip(
            *(batch[column].to_pylist() for column in ("name", "n_bytes")), batch["data"], strict=True
        ):
            piece = _unpacked(path, name, value.as_buffer(), n_bytes)
            blobs[name].data[filled[name] : filled[name] + piece.size] = piece
            filled[name] += piece.size
    for name, _, _, sha256, _ in heads:
        if blobs[name].sha256 != sha256:
            raise CorruptFile(path, f"array {name!r} is not what was written. Restore the file from a backup.")
    return list(blobs.values())


def _unpacked(path: Path, name: str, data: pa.Buffer, n_bytes: int) -> np.ndarray:
    try:
        return np.frombuffer(pa.decompress(data, n_bytes, _CODEC), np.uint8)
    except (OSError, ValueError, OverflowError, TypeError) as error:
        raise CorruptFile(path, f"array {name!r} cannot be unpacked. Restore the file from a backup.") from error


def array_of_blob(path: Path, blob: Blob) -> np.ndarray:
    """The array that a blob holds, read-only, without a copy; CorruptFile if dtype, shape and size do not fit."""
    dtype = np.dtype(blob.dtype)
    if math.prod(blob.shape) * dtype.itemsize != blob.data.size:
        reason = f"array {blob.name!r} does not have its {blob.shape} elements. Restore the file from a backup."
        raise CorruptFile(path, reason)
    array = np.empty(blob.shape, dtype) if blob.data.size == 0 else blob.data.view(dtype).reshape(blob.shape)
    array.flags.writeable = False
    return array
