"""Rows of external databases as Arrow streams, read-only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from storage.errors import StorageError

_BATCH_ROWS = 65_536


class UnreadableDatabase(StorageError, ValueError):
    """Raised if a database cannot be opened or refuses a query."""


@contextmanager
def duckdb_rows(path: Path, query: str, spill: Path) -> Iterator[pa.RecordBatchReader]:
    """Run a query on a DuckDB file, read-only (UnreadableDatabase); data larger than memory spills to `spill`."""
    try:
        # A reader that is left open keeps the database open, and the next one of this process would wait for it.
        config: dict[str, str | bool | int | float | list[str]] = {"temp_directory": str(spill)}
        with duckdb.connect(str(path), read_only=True, config=config) as opened, _reader(opened, query) as reader:
            yield reader
    except duckdb.Error as error:
        raise UnreadableDatabase(str(error)) from error


def _reader(connection: duckdb.DuckDBPyConnection, query: str) -> pa.RecordBatchReader:
    relation = connection.sql(query)
    if relation is None:
        raise UnreadableDatabase("the query gives no rows")
    return relation.to_arrow_reader(_BATCH_ROWS)


@contextmanager
def postgres_rows(uri: str, query: str) -> Iterator[pa.RecordBatchReader]:
    """Run a query on a PostgreSQL server (a libpq URI) and roll back; UnreadableDatabase, also without the driver."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise UnreadableDatabase(f"{error}; pip install 'fewpass[adbc]'") from error
    try:
        with dbapi.connect(uri) as connection, connection.cursor() as cursor:
            cursor.execute(query)
            with cursor.fetch_record_batch() as reader:
                yield reader
    except dbapi.Error as error:
        raise UnreadableDatabase(str(error)) from error
