"""Rows of other people's databases as streams of Arrow; nothing is written there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from storage.errors import StorageError

_BATCH_ROWS = 65_536


class UnreadableDatabase(StorageError, ValueError):
    """A database cannot be opened, or refuses a query."""


@contextmanager
def duckdb_rows(path: Path, query: str, spill: Path) -> Iterator[pa.RecordBatchReader]:
    """What a query gives on a DuckDB file, only read (UnreadableDatabase); what memory does not hold goes to `spill`."""
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
    """What a query gives on a PostgreSQL server (a URI as of libpq), rolled back; UnreadableDatabase, also without the driver."""
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
