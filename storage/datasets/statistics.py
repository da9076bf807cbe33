"""Statistics of data sets: immutable DuckDB files found by a hash of what they count, and used only if no byte has
changed.

What a pass has counted so far is in one file that is replaced whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import types

from storage.errors import CorruptFile, InvalidName
from storage.files import duckdb_files
from storage.files.atomic_files import (
    disk_errors_as_unwritable,
    draft_file_path,
    json_with_checksum,
    parse_checked_json,
    publish_draft_file,
    sha256_of_file,
    verify_file_sha256,
    write_file_atomically,
)
from storage.files.duckdb_files import Blob, read_blobs, write_blobs

_IPC = "arrow.stream"
_SHA256 = re.compile(r"[0-9a-f]{64}")
Note = dict[str, list[int]]
_NOTE = b"fewpass"
_DIGEST_BYTES = 32


@dataclass(frozen=True)
class Entry:
    """Record of a stored statistic: its specification, its schema as JSON, and the identities of the files whose rows
    it holds.

    The schema of a statistic of raw columns is None.
    """

    key: str
    spec: Mapping[str, object]
    schema: str | None
    files: frozenset[str]


class StatisticStore:
    """Statistics in one folder, one DuckDB file ``<key>-<sha256 of the file>.duckdb`` each; the first creates the
    folder.

    As the name of a file says what its bytes are, one rename publishes a statistic together with the proof of it, and
    two processes that store the same key at once leave two files of which either is right.

    Beside a statistic whose files are known lies ``<same name>.json``, which says so without opening the database.
    """

    def __init__(self, directory: Path | str) -> None:
        self.directory = Path(directory)
        self._entries: dict[str, Entry] = {}
        self._reader = duckdb_files.Instance(self.directory)

    def get(self, key: str) -> pa.Table | None:
        """Return the table stored under a key (SHA-256 of specification, schema and files in hexadecimal digits), or
        None.

        Raises InvalidName if the key is not a SHA-256; CorruptFile if the file is damaged: `discard` the key and count again.
        """
        for path in self._paths(_checked_key(key)):
            with suppress(FileNotFoundError):  # pruned by another process since the folder was listed
                path.stat()
                verify_file_sha256(path, path.stem.rpartition("-")[2])
                return _read(path, key, self._reader)
        return None

    def entries(self) -> tuple[Entry, ...]:
        """Return the records of statistics with known files; a file name never gets other content, so each is read
        once.
        """
        entries = []
        for path in sorted(self.directory.glob("*.json")):
            if not path.with_suffix(".duckdb").exists():
                continue
            if path.name not in self._entries:
                try:
                    self._entries[path.name] = _entry(path)
                except FileNotFoundError:  # pruned by another process
                    continue
                except (OSError, ValueError, KeyError, TypeError):  # damaged: the statistic is counted again
                    _unlink(path.with_suffix(".duckdb"))
            if path.name in self._entries:
                entries.append(self._entries[path.name])
        return tuple(entries)

    def put(
        self,
        key: str,
        table: pa.Table,
        spec: Mapping[str, object] | None = None,
        *,
        schema: str | None = None,
        files: Iterable[str] = (),
    ) -> None:
        """Store a table; an existing key keeps its table.

        Columns of numbers, booleans and text become columns of the SQL table ``statistic``; all others (lists, binary,
        …) are kept as Arrow streams in the SQL table ``arrays``. Raises InvalidName or Unwritable.

        Parameters
        ----------
        key : SHA-256 of specification, schema and files, in hexadecimal digits
        table : of any type; comes back equal, with its schema and metadata
        spec : kept beside it
        schema : by which it was counted, as JSON
        files : identities of the files whose rows it holds; without any, `entries` does not list it
        """
        if self._paths(_checked_key(key)):
            return
        with draft_file_path(self.directory, "statistic.duckdb") as draft:
            _write(draft, key, table, spec or {})
            path = self.directory / f"{key}-{sha256_of_file(draft)}.duckdb"
            publish_draft_file(draft, path)
        if identities := sorted(files):
            with draft_file_path(self.directory, "statistic.json") as draft:
                draft.write_text(json_with_checksum({"spec": spec or {}, "schema": schema, "files": identities}))
                publish_draft_file(draft, path.with_suffix(".json"))

    def discard(self, key: str) -> None:
        """Remove the table stored under a key, even if damaged; Unwritable if the disk refuses."""
        for path in self._paths(_checked_key(key)):
            _unlink(path)

    def prune(self, max_bytes: int) -> None:
        """Remove the oldest statistics until the rest fit into `max_bytes`; they can all be counted again."""
        files = []
        for path in self.directory.glob("*-*.duckdb"):
            with suppress(FileNotFoundError):  # pruned by another process
                status = path.stat()
                files.append((status.st_mtime, path.name, status.st_size))
        total = 0
        for _, name, n_bytes in sorted(files, reverse=True):
            total += n_bytes
            if total > max_bytes:
                _unlink(self.directory / name)

    def _paths(self, key: str) -> list[Path]:
        return sorted(self.directory.glob(f"{key}-*.duckdb"))


def _checked_key(key: str) -> str:
    """Return the key if it is a SHA-256 in lower-case hexadecimal digits, else raise InvalidName."""
    if not isinstance(key, str) or not _SHA256.fullmatch(key):
        raise InvalidName("statistic", key, "the 64 lower-case hexadecimal digits of a SHA-256")
    return key


def _entry(path: Path) -> Entry:
    about = parse_checked_json(path, path.read_bytes())
    schema, spec = about["schema"], about["spec"]
    if not isinstance(spec, dict) or not isinstance(about["files"], list):
        raise TypeError("It does not state what the statistic describes")
    if schema is not None:
        json.loads(str(schema))
    return Entry(path.stem.partition("-")[0], spec, None if schema is None else str(schema), frozenset(about["files"]))


def _unlink(path: Path) -> None:
    with disk_errors_as_unwritable(path):
        path.with_suffix(".json").unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def _is_flat(kind: pa.DataType) -> bool:
    """Return whether DuckDB supports the type and returns every value unchanged."""
    return bool(
        types.is_integer(kind)
        or types.is_float32(kind)
        or types.is_float64(kind)
        or types.is_boolean(kind)
        or types.is_string(kind)
        or types.is_large_string(kind)
    )


def _write(draft: Path, key: str, table: pa.Table, spec: Mapping[str, object]) -> None:
    about = pa.table(
        {
            "key": [key],
            "spec": [json.dumps(spec, default=str)],
            "n_rows": pa.array([table.num_rows], pa.int64()),
            "arrow_schema": pa.array([table.schema.serialize().to_pybytes()], pa.binary()),
        }
    )
    flat = [i for i, field in enumerate(table.schema) if _is_flat(field.type)]
    with duckdb_files.open_duckdb_for_writing(draft) as connection:
        duckdb_files.create_duckdb_table(connection, "about", about)
        if flat:
            names = _sql_names(table.schema.names)
            columns = table.select(flat).rename_columns([names[i] for i in flat])
            duckdb_files.create_duckdb_table(connection, "statistic", columns)
        write_blobs(connection, _wide_columns(table, flat))


def _sql_names(names: list[str]) -> list[str]:
    """Return the names if SQL, which ignores case, can distinguish them; else numbered names."""
    distinct = {name.casefold() for name in names} - {""}
    return names if len(distinct) == len(names) else [f"column_{i}" for i in range(len(names))]


def _wide_columns(table: pa.Table, flat: list[int]) -> Iterator[Blob]:
    for i in range(table.num_columns):
        if i not in flat:
            sink = pa.BufferOutputStream()
            column = pa.table([table.column(i)], schema=pa.schema([table.schema.field(i)]))
            with pa.ipc.new_stream(sink, column.schema) as writer:
                writer.write_table(column)
            data = np.frombuffer(sink.getvalue(), np.uint8)
            yield Blob(str(i), _IPC, (data.size,), data)


def _read(path: Path, key: str, reader: duckdb_files.Instance) -> pa.Table:
    with duckdb_files.open_duckdb_for_reading(path, reader) as connection:
        ((stored_key, n_rows, serialized),) = connection.sql("SELECT key, n_rows, arrow_schema FROM about").fetchall()
        schema = pa.ipc.read_schema(pa.py_buffer(serialized))
        columns: dict[int, pa.ChunkedArray] = {}
        flat = [i for i, field in enumerate(schema) if _is_flat(field.type)]
        if flat:
            rows = connection.sql("SELECT * FROM statistic").to_arrow_table()
            columns |= {i: column.cast(schema.field(i).type) for i, column in zip(flat, rows.columns, strict=True)}
        for blob in read_blobs(connection, path):
            columns[int(blob.name)] = pa.ipc.open_stream(pa.py_buffer(blob.data)).read_all().column(0)
    if stored_key != key:
        raise CorruptFile(
            path, f"it holds the statistic {stored_key[:16]}…, which does not match its name. Discard it."
        )
    if columns.keys() != set(range(len(schema))) or any(len(column) != n_rows for column in columns.values()):
        lost = f"it does not have the {len(schema)} columns and {n_rows} rows that were written"
        raise CorruptFile(path, f"{lost}. Discard it; the next training counts again.")
    return pa.table([columns[i] for i in range(len(schema))], schema=schema)


class CheckpointFile:
    """A table and a note, stored as an Arrow stream after its SHA-256; the first save creates the file and its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> tuple[pa.Table, Note] | None:
        """Return the last saved content; None if nothing was saved, or it is damaged."""
        try:
            content = memoryview(self.path.read_bytes())
        except FileNotFoundError:
            return None
        digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != bytes(digest):
            return None
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        return table, json.loads(table.schema.metadata[_NOTE])

    def save(self, table: pa.Table, note: Note) -> None:
        """Replace the saved content atomically. Unwritable if the disk refuses."""
        noted = table.replace_schema_metadata({**(table.schema.metadata or {}), _NOTE: json.dumps(note)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, noted.schema) as writer:
            writer.write_table(noted)
        body = sink.getvalue()
        with write_file_atomically(self.path, replace=True) as draft, draft.open("wb") as file:
            file.write(hashlib.sha256(body).digest())
            file.write(body)
