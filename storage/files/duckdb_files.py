"""Writing and reading the immutable DuckDB files of a workspace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import duckdb
import pyarrow as pa

from storage.errors import CorruptFile, StorageError, Unstorable, Unwritable, is_refused_by_the_disk

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


class Instance:
    """A running DuckDB, to which files are attached in turn: to start one takes longer than to read or write a small file.

    Whoever comes while it is in use, or after it has failed, starts another. Beyond a folder it reaches no file.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self._idle: duckdb.DuckDBPyConnection | None = None
        self._numbers = count()

    @contextmanager
    def attached(self, path: Path, options: str, spill: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection to one file."""
        running, self._idle = self._idle or self._started(), None
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
            self._idle = running

    def _started(self) -> duckdb.DuckDBPyConnection:
        connection = duckdb.connect(":memory:", config=_COMMON)
        if self.folder is not None:
            connection.execute(f"SET allowed_directories = [{_text(self.folder)}]")
            connection.execute(_CONFINED)
        return connection


@contextmanager
def writing(draft: Path, instance: Instance | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to a new DuckDB file; on success its write-ahead log is checkpointed into it and it is closed.

    The draft is in a private folder (`storage.files.workspace_layout.drafting`); DuckDB spills beside it. `instance` is of
    somebody who writes many files; by default one of its own. Raises Unwritable if the disk refuses.
    """
    options = f"STORAGE_VERSION '{STORAGE_VERSION}'"
    try:
        with (instance or Instance()).attached(draft, options, draft.parent / "spill") as connection:
            connection.begin()  # one transaction: each would wait for the disk
            yield connection
            connection.commit()
            connection.execute("CHECKPOINT")
    except duckdb.Error as error:
        # DuckDB calls it fatal where it happens within a checkpoint.
        if isinstance(error, duckdb.IOException) or is_refused_by_the_disk(error):
            raise Unwritable(draft, f"{_first_line(error)} Free or remount the disk, then try again.") from error
        raise StorageError(f"{draft.name} could not be written: {_first_line(error)}") from error
    log = draft.with_name(draft.name + ".wal")
    # A file and its log would be two halves; only the file is published.
    if log.exists():
        raise StorageError(f"{draft.name} could not be written: DuckDB left its write-ahead log behind.")


@contextmanager
def reading(path: Path, instance: Instance | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that reads a published file; CorruptFile if DuckDB cannot make sense of it.

    `instance` is of the file's folder, of somebody who reads many files; by default one of its own.
    """
    # DuckDB would replay a log, and damage in one opens silently with fewer rows.
    if path.with_name(path.name + ".wal").exists():
        raise CorruptFile(path, "a write-ahead log stands beside it, and published files have none. Remove the log.")
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


def insert(
    connection: duckdb.DuckDBPyConnection, table: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema
) -> None:
    """Append record batches to a table by position, one at a time."""
    connection.register("batches", pa.RecordBatchReader.from_batches(schema, iter(batches)))
    try:
        connection.execute(f"INSERT INTO {quoted(table)} SELECT * FROM batches")
    finally:
        connection.unregister("batches")


def create(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Make a table of an Arrow table, in the order of its rows; Unstorable without columns, or of a type that DuckDB lacks."""
    if table.num_columns == 0:
        raise Unstorable(f"Table {name!r}", "it has no columns.")
    try:
        connection.register("rows", table)
        connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM rows")
    except (duckdb.NotImplementedException, duckdb.CatalogException, duckdb.InvalidInputException) as error:
        raise Unstorable(f"Table {name!r}", _first_line(error)) from error
    finally:
        connection.unregister("rows")


def quoted(identifier: str) -> str:
    """An SQL identifier, whatever characters it holds."""
    return '"' + identifier.replace('"', '""') + '"'


def _text(path: Path) -> str:
    return "'" + str(path.absolute()).replace("'", "''") + "'"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].rstrip(".") + "."


def in_memory() -> duckdb.DuckDBPyConnection:
    """A connection that can reach no file and no network, for conditions that people write."""
    return duckdb.connect(":memory:", config=_COMMON | {"enable_external_access": False, "lock_configuration": True})
