"""SQLite only: copies and checks of the control database during writes, and a clock function that old versions lack."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import event
from sqlalchemy.engine import Engine

from storage.control.migrations import VERSION_TABLE
from storage.errors import CorruptFile, Unwritable
from storage.files.workspace_layout import create_private_file

PRIMARY_CODE = 0xFF  # of an extended error code of SQLite, such as SQLITE_IOERR_WRITE
OF_THE_DISK = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
FIRST = (3, 42)  # that knows 'subsec'


def copy_control_database(source: Path | str, target: Path | str) -> None:
    """Copy a consistent snapshot of the database while others write; CorruptFile if either file is damaged, Unwritable."""
    create_private_file(Path(target))
    with _ours(source, target), _opened(Path(source)) as live, closing(sqlite3.connect(target)) as copy:
        live.backup(copy)
        # One file without a write-ahead log beside it, which a copy of the backup could forget.
        copy.execute("PRAGMA journal_mode = DELETE")
    with Path(target).open("rb") as file:
        os.fsync(file.fileno())
    damages = control_integrity_errors(target)
    if damages:
        raise CorruptFile(target, f"{damages[0]}. Check the disk, then make the backup again.")


def control_integrity_errors(path: Path | str) -> list[str]:
    """Return the errors SQLite finds in the file: pages, indexes, references; nothing is changed."""
    try:
        with _opened(Path(path)) as connection:
            errors = [row[0] for row in connection.execute("PRAGMA integrity_check(10)") if row[0] != "ok"]
            for table, *_ in connection.execute("PRAGMA foreign_key_check").fetchmany(10):
                errors.append(f"a row of table {table} refers to a row that does not exist")
            return errors
    except sqlite3.DatabaseError as error:
        return [str(error)]


def control_database_revision(path: Path | str) -> str | None:
    """Return the revision of the tables, or None if the file is not a control database."""
    try:
        with _opened(Path(path)) as connection:
            row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    except sqlite3.DatabaseError:
        return None
    return None if row is None else str(row[0])


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=15)) as connection:
        yield connection


@contextmanager
def _ours(source: Path | str, target: Path | str) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE in OF_THE_DISK:
            raise Unwritable(target, f"{error}. Free or remount the disk, then try again.") from error
        raise CorruptFile(source, f"{error}. Stop fewpass and restore the file from a backup.") from error


def install_secure_delete() -> None:
    """Let SQLAlchemy's SQLite connections, those of the job queue included, overwrite what they delete."""
    if not event.contains(Engine, "connect", _with_secure_delete):
        event.listen(Engine, "connect", _with_secure_delete)


def _with_secure_delete(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA secure_delete = ON")


def install_sqlite_clock() -> None:
    """Install the clock function in SQLAlchemy's SQLite connections, where it is missing."""
    if sqlite3.sqlite_version_info < FIRST and not event.contains(Engine, "connect", _with_clock):
        event.listen(Engine, "connect", _with_clock)


def _with_clock(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.create_function("unixepoch", 1, lambda _precision: time.time())
