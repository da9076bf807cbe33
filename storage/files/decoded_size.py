"""What a model file from elsewhere takes in memory, found out by DuckDB before anything of it is read."""

from __future__ import annotations

from pathlib import Path

import duckdb

from storage.errors import CorruptFile
from storage.files import duckdb_files

ARRAYS = "arrays"
MOST_TABLES, MOST_COLUMNS, MOST_PART_BYTES = 1_000, 10_000, 16 << 20
_VALUE_BYTES = 16  # of a number, as Python and Arrow have it at most
_REMEDY = "Export it again; or import it where more is allowed (FEWPASS_MAX_MODEL_BYTES)."


def check_decoded_size(path: Path, max_bytes: int) -> int:
    """Refuse a DuckDB file of a model that would take more memory than is allowed; returns the bytes that it takes.

    A few kilobytes of a DuckDB file may stand for a billion equal rows, and a part of an array may be packed a thousandfold.
    Rows are counted, then lengths of texts and what parts say that they unpack to; nothing is fetched or unpacked.
    CorruptFile names the table.
    """
    with duckdb_files.reading(path) as connection:
        columns = connection.sql(
            "SELECT table_name, list(column_name ORDER BY column_index), list(data_type ORDER BY column_index), "
            f"count(*) FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main' GROUP BY table_name LIMIT {MOST_TABLES + 1}"
        ).fetchall()
        if len(columns) > MOST_TABLES or any(n > MOST_COLUMNS for *_, n in columns):
            raise CorruptFile(path, f"it has more than {MOST_TABLES} tables, or {MOST_COLUMNS} columns. {_REMEDY}")
        total = 0
        for table, names, kinds, _ in columns:
            total += _table_bytes(connection, path, table, dict(zip(names, kinds, strict=True)), max_bytes - total)
            if total > max_bytes:
                reason = f"up to its table {table!r} it takes {total:,} bytes unpacked, and at most {max_bytes:,} are allowed"
                raise CorruptFile(path, f"{reason}. {_REMEDY}")
    return total


def _table_bytes(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, kinds: dict[str, str], left: int
) -> int:
    """Of the rows of a table; where the rows alone are too many, nothing else is looked at."""
    name = duckdb_files.quoted(table)
    ((n_rows,),) = connection.sql(f"SELECT count(*) FROM {name}").fetchall()
    n_bytes = int(n_rows) * _VALUE_BYTES * len(kinds)
    if n_bytes > left:
        return n_bytes
    packed = "data" if table == ARRAYS else None
    for column, kind in kinds.items():
        if column == packed or not _has_any_length(kind):
            continue
        length = "octet_length(encode(CAST({} AS VARCHAR)))" if kind != "BLOB" else "octet_length({})"
        ((n,),) = connection.sql(
            f"SELECT coalesce(sum({length.format(duckdb_files.quoted(column))}), 0) FROM {name}"
        ).fetchall()
        n_bytes += int(n)
    if packed is not None and {"n_bytes", "data"} <= kinds.keys():
        n_bytes += _unpacked_bytes(connection, path)
    return n_bytes


def _has_any_length(kind: str) -> bool:
    return kind in ("VARCHAR", "BLOB", "BIT", "JSON") or any(mark in kind for mark in "[(") or kind == "UNION"


def _unpacked_bytes(connection: duckdb.DuckDBPyConnection, path: Path) -> int:
    ((least, most, total, stored),) = connection.sql(
        "SELECT coalesce(min(n_bytes), 0), coalesce(max(n_bytes), 0), coalesce(sum(n_bytes), 0), "
        f"coalesce(max(octet_length(data)), 0) FROM {ARRAYS}"
    ).fetchall()
    if least < 0 or max(most, stored) > MOST_PART_BYTES:
        raise CorruptFile(path, f"a part of an array does not have from 0 to {MOST_PART_BYTES:,} bytes. {_REMEDY}")
    return int(total)
