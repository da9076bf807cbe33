"""Files of a model version: one immutable DuckDB file, its compiled Arrow form, and a manifest of both.

The DuckDB file is the model: it is read back from the tables ``header(json, sha256)`` and
``arrays(name, part, dtype, shape, sha256, data)``; it also has the tables that the model offers for SQL queries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from storage.errors import Conflict, CorruptFile, NotFound
from storage.files import duckdb_files
from storage.files.atomic_files import (
    create_folder,
    draft_file_path,
    publish_draft_file,
    read_manifest,
    sha256_of_file,
    verify_file_sha256,
    write_manifest,
)
from storage.files.duckdb_files import Blob, array_from_blob, read_blobs, write_blobs
from storage.files.workspace_layout import checked_resource_name, delete_model_files
from storage.models.compiled import Arrays, Header, array_bytes, header_json, write_compiled

Completed = Callable[[Mapping[str, object], Arrays], Mapping[str, np.ndarray]]

# Larger models are mapped as they are, so that processes share them; smaller ones are compressed.
MOST_PACKED = 128 << 20
_RESERVED_TABLES = frozenset({"arrays", "header"})


@dataclass(frozen=True)
class ModelFiles:
    """The files of one model version: the DuckDB file with its SHA-256, and its compiled form."""

    duckdb_path: Path
    arrow_path: Path
    sha256: str


def write_model(
    directory: Path | str,
    name: str,
    version: int,
    header: Mapping[str, object],
    arrays: Mapping[str, np.ndarray],
    tables: Mapping[str, pa.Table],
) -> ModelFiles:
    """Publish the files of a model version in the folder `name`: the DuckDB file, then its compiled form, then the manifest.

    `map_compiled` gives back `header` and `arrays`; arrays that the header names as `derived` follow from the others, and only
    the compiled form holds them. `tables` are for people. Raises InvalidName; Conflict if a table has the name of one of
    ours, or two have the same name to SQL, which ignores case; Unstorable; Unwritable if the disk refuses: then no file stays.
    """
    folder = Path(directory) / checked_resource_name("model", name)
    with draft_file_path(folder, "model.duckdb") as draft:
        derived = header.get("derived", ())
        assert isinstance(derived, Sequence)
        stored = {array: arrays[array] for array in arrays if array not in derived}
        _write_duckdb(draft, header, stored, tables)
        sha256 = sha256_of_file(draft)
        duckdb_path = folder / f"{int(version)}-{sha256[:8]}.duckdb"
        return _settle_all(draft, duckdb_path, sha256, header, arrays)


def _settle_all(
    draft: Path, duckdb_path: Path, sha256: str, header: Mapping[str, object], arrays: Mapping[str, np.ndarray]
) -> ModelFiles:
    """Publish all files of a version under their final names, or none."""
    try:
        publish_draft_file(draft, duckdb_path)
        return _compile(duckdb_path, sha256, header, arrays)
    except BaseException:
        with suppress(OSError):  # of a disk that refuses everything; doctor finds what stays
            delete_model_files(duckdb_path)
        raise


def _compile(
    duckdb_path: Path, sha256: str, header: Mapping[str, object], arrays: Mapping[str, np.ndarray]
) -> ModelFiles:
    arrow_path = duckdb_path.with_suffix(".arrow")
    write_compiled(arrow_path, header, arrays, replace=True, most_packed=MOST_PACKED)
    manifest = {duckdb_path.name: sha256, arrow_path.name: sha256_of_file(arrow_path)}
    write_manifest(duckdb_path.with_suffix(".sha256"), manifest)
    return ModelFiles(duckdb_path, arrow_path, sha256)


def _write_duckdb(
    draft: Path, header: Mapping[str, object], arrays: Mapping[str, np.ndarray], tables: Mapping[str, pa.Table]
) -> None:
    _check_table_names(tables)
    text = header_json(dict(header))
    # Made before DuckDB takes them one by one, which would hide our error in its own.
    blobs = [
        Blob(name, np.asarray(array).dtype.str, np.shape(array), array_bytes(name, array))
        for name, array in arrays.items()
    ]
    with duckdb_files.open_duckdb_for_writing(draft) as connection:
        duckdb_files.create_duckdb_table(connection, "header", pa.table({"json": [text], "sha256": [_sha256(text)]}))
        write_blobs(connection, blobs)
        for name, table in tables.items():
            duckdb_files.create_duckdb_table(connection, name, table)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _check_table_names(tables: Mapping[str, pa.Table]) -> None:
    names = set(_RESERVED_TABLES)
    for name in tables:
        if name.lower() in names:
            raise Conflict("table", name, "is already the name of a table of the model file. Rename it.")
        names.add(name.lower())


def read_model_file(duckdb_path: Path | str) -> tuple[Header, Arrays]:
    """Read header and arrays (except derived ones) from a model's DuckDB file; every array is checked against its
    SHA-256.

    The arrays are read-only, in memory. Raises NotFound if there is no such file, or CorruptFile.
    """
    path = Path(duckdb_path)
    with _opened(path) as connection:
        ((text, sha256),) = connection.sql("SELECT json, sha256 FROM header").fetchall()
        if not isinstance(text, str) or _sha256(text) != sha256:
            raise CorruptFile(path, "its header has changed since it was written. Restore it from a backup.")
        arrays = {blob.name: array_from_blob(path, blob) for blob in read_blobs(connection, path)}
    try:
        return json.loads(text), arrays
    except (ValueError, RecursionError) as error:
        raise CorruptFile(path, f"its header is not JSON ({error}). Restore it from a backup.") from error


def refuse_model_file_views(path: Path) -> None:
    """Refuse a file that contains views, which are SQL of unknown origin (NotFound, CorruptFile)."""
    with _opened(path):
        pass


@contextmanager
def _opened(path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a model file and check that it contains only tables, no views that would run foreign SQL."""
    if not path.exists():
        raise NotFound("model file", str(path))
    query = "SELECT table_name FROM information_schema.tables WHERE table_type <> 'BASE TABLE' ORDER BY table_name"
    with duckdb_files.open_duckdb_for_reading(path) as connection:
        if views := [name for (name,) in connection.sql(query).fetchall()]:
            raise CorruptFile(
                path, f"{', '.join(views)} is a view, which model files never contain. Do not use this file."
            )
        yield connection


def read_model_table(duckdb_path: Path | str, table: str) -> pa.Table | None:
    """Read one of the human-readable tables; None if the file lacks it (NotFound, CorruptFile)."""
    with _opened(Path(duckdb_path)) as connection:
        return connection.table(table).to_arrow_table() if _has(connection, table) else None


def _has(connection: duckdb.DuckDBPyConnection, table: str) -> bool:
    return (table,) in connection.sql("SELECT table_name FROM duckdb_tables()").fetchall()


def read_model_key_values(duckdb_path: Path | str, table: str) -> dict[str, str]:
    """Read a table of names and texts: `provenance` (JSON values) or `libraries`; empty if missing. NotFound,
    CorruptFile.
    """
    path = Path(duckdb_path)
    with _opened(path) as connection:
        pairs = dict(connection.sql(f"SELECT * FROM {table}").fetchall()) if _has(connection, table) else {}
    if not all(isinstance(text, str) for pair in pairs.items() for text in pair):
        raise CorruptFile(path, f"its table {table!r} does not contain names and texts. Restore it from a backup.")
    return pairs


def adopt_model_file(
    directory: Path | str,
    name: str,
    version: int,
    draft: Path,
    header: Mapping[str, object],
    arrays: Mapping[str, np.ndarray],
) -> ModelFiles:
    """Publish an unchanged DuckDB file made elsewhere, with a compiled form made here.

    The draft, on the same file system, is moved; header and arrays are what `read_model_file` gave for it, with its derived
    arrays. Raises InvalidName or Unwritable.
    """
    sha256 = sha256_of_file(draft)
    duckdb_path = Path(directory) / checked_resource_name("model", name) / f"{int(version)}-{sha256[:8]}.duckdb"
    create_folder(duckdb_path.parent)
    return _settle_all(draft, duckdb_path, sha256, header, arrays)


def verify_model_files(duckdb_path: Path | str) -> None:
    """Check both files of a model version byte by byte; CorruptFile names the missing or damaged one."""
    path = Path(duckdb_path)
    manifest = read_manifest(path.with_suffix(".sha256"))
    for file in (path, path.with_suffix(".arrow")):
        if file.name not in manifest:
            raise CorruptFile(file, "its manifest does not list it. Restore both from a backup.")
        verify_file_sha256(file, manifest[file.name])


def rebuild_compiled(duckdb_path: Path | str, completed: Completed) -> Path:
    """Rebuild the compiled form from the DuckDB file and return its path; processes that have mapped the old one keep
    it.

    `completed` adds the derived arrays, given header and arrays. Raises CorruptFile if the DuckDB file itself is damaged.
    """
    path = Path(duckdb_path)
    manifest = path.with_suffix(".sha256")
    sha256 = read_manifest(manifest).get(path.name, "") if manifest.exists() else sha256_of_file(path)
    verify_file_sha256(path, sha256)
    header, arrays = read_model_file(path)
    return _compile(path, sha256, header, completed(header, arrays)).arrow_path
