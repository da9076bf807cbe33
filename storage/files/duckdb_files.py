"""Writing and reading the immutable DuckDB files of a workspace, and large byte strings in them.

These are in the table ``arrays(name, part, dtype, shape, sha256, n_bytes, data)``, in parts, each packed by zstd.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from storage.errors import CorruptFile, StorageError, Unstorable, Unwritable, is_disk_write_refusal

# Resident memory is this limit plus about 85 MB, and what passes through in between: 2,048 values of each column.
MEMORY_LIMIT_BYTES = 256 << 20
MAX_SPILL_BYTES = 64 << 30
# Any DuckDB from 1.4, the last release with long-term support, reads what we write.
STORAGE_VERSION = "v1.4.0"

_Config = dict[str, str | bool | int | float | list[str]]
_COMMON: _Config = {
    "memory_limit": f"{MEMORY_LIMIT_BYTES >> 20}MiB",
    "threads": 1,
    # Offsets of 64 bits, or a result of more than 2 GiB of binary would fail.
    "arrow_large_buffer_size": True,
    # Extensions are code from elsewhere; ours need none.
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "max_temp_directory_size": f"{MAX_SPILL_BYTES >> 30}GiB",
}
# What was made elsewhere may hold views and macros, and they would read whatever file they name.
_CONFINED = "SET enable_external_access = false"
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


class Instance:
    """A reusable DuckDB instance to which files are attached in turn: starting one takes longer than a small file's
    read or write.

    Whoever comes while it is in use, or after it has failed, starts another. Beyond a folder it reaches no file.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._idle: list[duckdb.DuckDBPyConnection] = []  # one at most
        self._numbers = count()

    @contextmanager
    def attached(self, path: Path, options: str, spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """Provide a connection to one attached file."""
        running = _taken(self._idle) or self._started()
        name = f"file_{next(self._numbers)}"
        try:
            with running.cursor() as connection:
                if spill is not None:
                    connection.execute(f"SET temp_directory = {_text(spill)}")
                connection.execute(f"ATTACH {_text(path)} AS {name} ({options})")
                connection.execute(f"USE {name}")
                yield connection
                connection.execute("USE memory")
                connection.execute(f"DETACH {name}")
        except BaseException:
            running.close()
            raise
        if spill is None or not spill.exists():  # DuckDB does not change the folder that it has spilled to
            self._idle[:] = [running]

    def _started(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:", config=_COMMON)
        if self.folder is not None:
            connection.execute(f"SET allowed_directories = [{_text(self.folder)}]")
            connection.execute(_CONFINED)
        return connection


def _taken(idle: list[duckdb.DuckDBPyConnection]) -> duckdb.DuckDBPyConnection | None:
    """Take an idle instance, so that no other thread gets it; None if all are busy."""
    try:
        return idle.pop()
    except IndexError:
        return None


# For all files that this process writes.
_WRITER = Instance()


@contextmanager
def open_duckdb_for_writing(draft: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Provide a connection to a new DuckDB file; on success its write-ahead log is checkpointed and it is closed.

    The draft is in a private folder (`storage.files.atomic_files.draft_file_path`); DuckDB spills beside it. Raises Unwritable
    if the disk refuses.
    """
    options = f"STORAGE_VERSION '{STORAGE_VERSION}'"
    try:
        with _WRITER.attached(draft, options, draft.parent / "spill") as connection:
            connection.begin()  # one transaction: each would wait for the disk
            yield connection
            connection.commit()
            connection.execute("CHECKPOINT")
    except duckdb.Error as error:
        # DuckDB calls it fatal where it happens within a checkpoint.
        if isinstance(error, duckdb.IOException) or is_disk_write_refusal(error):
            raise Unwritable(draft, f"{_first_line(error)} Free or remount the disk, then try again.") from error
        raise StorageError(f"{draft.name} could not be written: {_first_line(error)}") from error
    log = draft.with_name(draft.name + ".wal")
    # A file and its log would be two halves; only the file is published.
    if log.exists():
        raise StorageError(f"{draft.name} could not be written: DuckDB left its write-ahead log behind.")


@contextmanager
def open_duckdb_for_reading(path: Path, instance: Instance | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """Provide a connection that reads a published file; CorruptFile if DuckDB cannot read it.

    `instance` is shared by callers that read many files of a folder; by default a new one.
    """
    # DuckDB would replay a log, and damage in one opens silently with fewer rows.
    if path.with_name(path.name + ".wal").exists():
        raise CorruptFile(path, "a write-ahead log exists beside it, but published files have none. Remove the log.")
    try:
        with (instance or Instance()).attached(path, "READ_ONLY") as connection:
            if instance is None:
                connection.execute(_CONFINED)
            yield connection
    # All that goes wrong in here is the file's fault: also what DuckDB calls a bug of its own, or a missing row.
    except (duckdb.Error, pa.ArrowException, ValueError, TypeError, KeyError) as error:
        if isinstance(error, StorageError):
            raise
        raise CorruptFile(path, f"{_first_line(error)} Restore it from a backup.") from error


def insert_record_batches(
    connection: duckdb.DuckDBPyConnection, table: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> None:
    """Append record batches to a table by position, one at a time."""
    connection.register("batches", pa.RecordBatchReader.from_batches(schema, iter(batches)))
    try:
        connection.execute(f"INSERT INTO {quote_sql_identifier(table)} SELECT * FROM batches")
    finally:
        connection.unregister("batches")


def create_duckdb_table(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Create a table from an Arrow table in row order; Unstorable without columns, or with a type that DuckDB lacks."""
    if table.num_columns == 0:
        raise Unstorable(f"Table {name!r}", "it has no columns.")
    try:
        connection.register("rows", table)
        connection.execute(f"CREATE TABLE {quote_sql_identifier(name)} AS SELECT * FROM rows")
    except (duckdb.NotImplementedException, duckdb.CatalogException, duckdb.InvalidInputException) as error:
        raise Unstorable(f"Table {name!r}", _first_line(error)) from error
    finally:
        connection.unregister("rows")


def quote_sql_identifier(identifier: str) -> str:
    """Quote an SQL identifier with any characters."""
    return '"' + identifier.replace('"', '""') + '"'


def _text(path: Path) -> str:
    return "'" + str(path.absolute()).replace("'", "''") + "'"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".") + "."


_ISOLATED: list[duckdb.DuckDBPyConnection] = []


@contextmanager
def isolated_duckdb() -> Iterator[duckdb.DuckDBPyConnection]:
    """Provide a connection without access to files and network, for conditions written by users.

    It serves one thread at a time, and a later one once nothing has failed: what a condition computes leaves nothing in it.
    """
    isolated = {"enable_external_access": False, "lock_configuration": True}
    connection = _taken(_ISOLATED) or duckdb.connect(":memory:", config=_COMMON | isolated)
    try:
        yield connection
    except BaseException:
        connection.close()
        raise
    _ISOLATED.append(connection)


_OF_PARENT: list[duckdb.DuckDBPyConnection] = []


def _leave_instances_to_the_parent() -> None:
    """In a forked process they lack their threads: neither use nor close them."""
    for idle in (_WRITER._idle, _ISOLATED):
        _OF_PARENT.extend(idle)
        idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_instances_to_the_parent)


@dataclass(frozen=True)
class Blob:
    """A named byte string, (n_bytes,) uint8, with the dtype and shape of its array; the name is unique in its file.

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
    """Create the table `arrays` and insert the blobs, one at a time."""
    # Packed by us, because DuckDB needs more than our memory limit to read a BLOB that it has compressed.
    connection.execute(
        "CREATE TABLE arrays (name VARCHAR, part INTEGER, dtype VARCHAR, shape BIGINT[], sha256 VARCHAR, n_bytes BIGINT, "
        "data BLOB USING COMPRESSION uncompressed)"
    )
    insert_record_batches(connection, "arrays", (part for blob in blobs for part in _parts(blob)), _SCHEMA)


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
    """Read all blobs in the order of writing; CorruptFile if the SHA-256 of one differs."""
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
            raise CorruptFile(path, f"array {name!r} has changed since it was written. Restore the file from a backup.")
    return list(blobs.values())


def _unpacked(path: Path, name: str, data: pa.Buffer, n_bytes: int) -> np.ndarray:
    try:
        return np.frombuffer(pa.decompress(data, n_bytes, _CODEC), np.uint8)
    except (OSError, ValueError, OverflowError, TypeError) as error:
        raise CorruptFile(path, f"array {name!r} cannot be unpacked. Restore the file from a backup.") from error


def array_from_blob(path: Path, blob: Blob) -> np.ndarray:
    """Return a blob's array, read-only and without a copy; CorruptFile if dtype, shape and size do not match."""
    dtype = np.dtype(blob.dtype)
    if math.prod(blob.shape) * dtype.itemsize != blob.data.size:
        reason = f"array {blob.name!r} does not have its {blob.shape} elements. Restore the file from a backup."
        raise CorruptFile(path, reason)
    array = np.empty(blob.shape, dtype) if blob.data.size == 0 else blob.data.view(dtype).reshape(blob.shape)
    array.flags.writeable = False
    return array
