"""Bundle of a model version: a tar of only ``manifest.json`` and ``model.duckdb``.

The manifest holds the SHA-256 of the DuckDB file. What is read from a bundle is checked before anything else sees it, and
DuckDB finds out what the model takes in memory before anything of it is read.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO

import duckdb

from storage.errors import CorruptFile
from storage.files import duckdb_files
from storage.files.atomic_files import sha256_of_file
from storage.models.model_versions import ModelVersion

FORMAT = "fewpass-model"
FORMAT_VERSION = 1
MANIFEST, MODEL = "manifest.json", "model.duckdb"
_MAX_MANIFEST_BYTES = 16 << 20
_CHUNK = 1 << 20
_REMEDY = "Export it again, and compare the checksums of both files."
ARRAYS = "arrays"
MOST_TABLES, MOST_COLUMNS, MOST_PART_BYTES = 1_000, 10_000, 16 << 20
_VALUE_BYTES = 16  # of a number, as Python and Arrow have it at most
_TOO_LARGE = "Export it again; or raise FEWPASS_MAX_MODEL_BYTES where it is imported."


def bundle_manifest(version: ModelVersion) -> dict[str, object]:
    """Return the registry record of a version, without the paths of this workspace."""
    facts = {name: value for name, value in vars(version).items() if name not in ("duckdb_path", "arrow_path")}
    facts |= {"files": [dict(file) for file in version.files], "created_at": str(version.created_at)}
    facts |= {name: dict(facts[name]) for name in ("parameters", "metrics", "tags")}
    return {"format": FORMAT, "format_version": FORMAT_VERSION, **facts}


def bundle_size(version: ModelVersion) -> int:
    """Number of bytes that `bundle_chunks` yields."""
    sizes = (len(_manifest_bytes(version)), version.duckdb_path.stat().st_size)
    return sum(tarfile.BLOCKSIZE + size + _n_padding(size) for size in sizes) + 2 * tarfile.BLOCKSIZE


def bundle_chunks(version: ModelVersion) -> Iterator[bytes]:
    """Yield the bundle of a version piece by piece; the bytes are the same each time."""
    manifest = _manifest_bytes(version)
    yield _tar_header(MANIFEST, len(manifest), version.created_at) + manifest + bytes(_n_padding(len(manifest)))
    size = version.duckdb_path.stat().st_size
    yield _tar_header(MODEL, size, version.created_at)
    with version.duckdb_path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            yield chunk
    yield bytes(_n_padding(size) + 2 * tarfile.BLOCKSIZE)


def _manifest_bytes(version: ModelVersion) -> bytes:
    return json.dumps(bundle_manifest(version), indent=2, sort_keys=True).encode()


def _tar_header(name: str, size: int, moment: datetime | None) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o444
    info.mtime = 0 if moment is None else int(moment.timestamp())
    return info.tobuf(tarfile.GNU_FORMAT)  # one block also for files of more than 8 GiB


def _n_padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE


def unpack_bundle(path: Path, model: Path) -> Mapping[str, object]:
    """Unpack a bundle: write its DuckDB file to `model` and return the manifest, whose SHA-256 matches that file.

    Raises CorruptFile if it is not a bundle, is cut short, or the model is not the one that the manifest names.
    """
    try:
        with tarfile.open(path, "r:") as tar:
            manifest = _read_manifest(path, _member(path, tar, MANIFEST))
            with model.open("wb") as file:
                shutil.copyfileobj(_member(path, tar, MODEL), file, _CHUNK)
            if tar.next() is not None:
                raise CorruptFile(path, f"it contains files other than {MANIFEST} and {MODEL}. {_REMEDY}")
    except (tarfile.TarError, EOFError, UnicodeDecodeError) as error:
        raise CorruptFile(path, f"it is not a tar file written by `export` ({error}). {_REMEDY}") from error
    if sha256_of_file(model) != manifest["sha256"]:
        raise CorruptFile(path, f"its model does not have the SHA-256 in its manifest. {_REMEDY}")
    return manifest


def _member(path: Path, tar: tarfile.TarFile, name: str) -> IO[bytes]:
    info = tar.next()
    if info is None or info.name != name or not info.isreg() or info.issparse():
        raise CorruptFile(path, f"{name!r} is missing or misplaced. {_REMEDY}")
    if name == MANIFEST and info.size > _MAX_MANIFEST_BYTES:
        raise CorruptFile(path, f"its manifest has {info.size} bytes. {_REMEDY}")
    file = tar.extractfile(info)
    assert file is not None  # a regular file
    return file


def _read_manifest(path: Path, file: IO[bytes]) -> dict[str, object]:
    try:
        manifest = json.loads(file.read())
        json.dumps(
            manifest, ensure_ascii=False
        ).encode()  # halves of characters are no text, and no answer could hold them
        known = manifest["format"], manifest["format_version"]
        is_known = known == (FORMAT, FORMAT_VERSION) and isinstance(manifest["sha256"], str)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(path, f"its manifest cannot be read ({error}). {_REMEDY}") from error
    if not is_known:
        raise CorruptFile(path, f"its manifest is of format {known}, not {(FORMAT, FORMAT_VERSION)}. {_REMEDY}")
    return dict(manifest)


def check_decoded_model_size(path: Path, max_bytes: int) -> int:
    """Refuse a model's DuckDB file that takes more than `max_bytes` of memory; return the bytes that it takes.

    A few kilobytes of a DuckDB file may stand for a billion equal rows, and a part of an array may be packed a thousandfold.
    Rows are counted, then lengths of texts and what parts say that they unpack to; nothing is fetched or unpacked.
    CorruptFile names the table.
    """
    with duckdb_files.open_duckdb_for_reading(path) as connection:
        columns = connection.sql(
            "SELECT table_name, list(column_name ORDER BY column_index), list(data_type ORDER BY column_index), "
            f"count(*) FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main' GROUP BY table_name LIMIT {MOST_TABLES + 1}"
        ).fetchall()
        if len(columns) > MOST_TABLES or any(n > MOST_COLUMNS for *_, n in columns):
            raise CorruptFile(path, f"it has more than {MOST_TABLES} tables, or {MOST_COLUMNS} columns. {_TOO_LARGE}")
        total = 0
        for table, names, kinds, _ in columns:
            total += _table_bytes(connection, path, table, dict(zip(names, kinds, strict=True)), max_bytes - total)
            if total > max_bytes:
                reason = (
                    f"its tables up to {table!r} take {total:,} bytes unpacked, more than the {max_bytes:,} allowed"
                )
                raise CorruptFile(path, f"{reason}. {_TOO_LARGE}")
    return total


def _table_bytes(
    connection: duckdb.DuckDBPyConnection, path: Path, table: str, kinds: dict[str, str], left: int
) -> int:
    """Return the bytes of a table's values; if the row count alone exceeds the limit, nothing else is read."""
    name = duckdb_files.quote_sql_identifier(table)
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
            f"SELECT coalesce(sum({length.format(duckdb_files.quote_sql_identifier(column))}), 0) FROM {name}"
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
        raise CorruptFile(path, f"a part of an array does not have from 0 to {MOST_PART_BYTES:,} bytes. {_TOO_LARGE}")
    return int(total)
