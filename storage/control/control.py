"""The control database of mutable state: data sets, versions, aliases, keys. SQLite, or PostgreSQL by URL."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.exc import DatabaseError, DBAPIError, InterfaceError, OperationalError, StatementError

from storage.control import migrations, tables
from storage.errors import (
    ControlUnavailable,
    CorruptFile,
    LeaseLost,
    OutcomeUnknown,
    StorageError,
    Unstorable,
    Unwritable,
)
from storage.files.workspace_layout import create_private_file

BUSY_TIMEOUT_S = 15.0
LOG_TIMEOUT_S = 2.0  # less: who empties the log holds up all writers while it waits for readers
POLL_S = 0.01
# So long a machine that has vanished, without a word to its connections, is waited for; in seconds and milliseconds.
WAITS = {"connect_timeout": 5, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2} | {
    "tcp_user_timeout": 15_000
}
DISK_ERROR = "disk I/O error"
FREE_THE_DISK = "Free or remount the disk, then try again."
_IS_WRITING = "fewpass_is_writing"
_WRITER_LOCK = 0x66657770617373  # "fewpass" in ASCII: a number that nobody else locks in the same PostgreSQL database


class Control:
    """An open control database, from `open_control`; threads may share it, and each process opens its own."""

    def __init__(self, engine: Engine, root: Path | None) -> None:
        self.engine = engine
        self.root = root
        self.lease: str | None = None  # of the worker that writes here, set by `storage.control.leases.take_lease`

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Provide a read-only transaction with a consistent view of the database."""
        with _our_errors(self.engine.url), self.engine.connect() as connection:
            is_postgresql = connection.dialect.name == "postgresql"
            options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True} if is_postgresql else {}
            reader = connection.execution_options(**options)
            with reader.begin():
                yield reader

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Provide an atomic transaction; an exception rolls it back.

        There is one writer at a time: it is waited for at the beginning, so that a transaction never fails half way.
        SQLite knows no other way; PostgreSQL is made to do the same, as our writes are few and short. Raises LeaseLost
        if this process is a worker whose lease others have ended: nothing is written; Unwritable if the disk refuses:
        nothing is written; OutcomeUnknown if the disk refuses to sync the commit, and then refuses the write that would
        take it back.
        """
        try:
            with self._transaction() as writer:
                yield writer
        except OutcomeUnknown as error:
            if not self._is_taken_back():
                raise
            raise Unwritable(error.path, f"{DISK_ERROR}. {FREE_THE_DISK}") from error

    def _is_taken_back(self) -> bool:
        """Overwrite a commit that SQLite has in its log and could not sync, since the next to open the file may find it
        there.
        """
        try:
            with self._transaction() as writer:
                bump_control_generation(writer)
        except (Unwritable, ControlUnavailable):
            return False
        return True

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with _our_errors(self.engine.url), self.engine.connect() as connection:
            writer = connection.execution_options(**{_IS_WRITING: True})
            with writer.begin():
                if writer.dialect.name == "postgresql":
                    writer.exec_driver_sql(f"SET LOCAL lock_timeout = '{BUSY_TIMEOUT_S:.0f}s'")
                    # A process that is stopped in here shall not hold up all others.
                    writer.exec_driver_sql(f"SET LOCAL idle_in_transaction_session_timeout = '{BUSY_TIMEOUT_S:.0f}s'")
                    writer.execute(sa.select(sa.func.pg_advisory_xact_lock(_WRITER_LOCK)))
                self._check_lease(writer)
                yield writer

    def _check_lease(self, connection: Connection) -> None:
        if self.lease is not None:
            query = sa.select(tables.workers.c.id).where(tables.workers.c.id == self.lease)
            if connection.execute(query).one_or_none() is None:
                raise LeaseLost(self.lease)

    def relative(self, path: Path | str) -> str:
        """Return a path in stored form: relative if inside the workspace, so that a moved workspace still works."""
        path = Path(path).absolute()
        if self.root is not None and path.is_relative_to(self.root):
            return path.relative_to(self.root).as_posix()
        return path.as_posix()

    def absolute(self, stored: str) -> Path:
        """Return the absolute path of a stored one.

        Raises CorruptFile if it leads out of the workspace: the database was tampered with, and the files that it
        names may be removed.
        """
        if self.root is None:
            return Path(stored)
        if Path(stored).is_absolute() or ".." in Path(stored).parts:
            reason = f"it names {stored!r}, outside of the workspace. Restore a backup that you trust."
            raise CorruptFile(self.engine.url.database or "the control database", reason)
        return self.root / stored

    def written_mark(self) -> tuple[int, ...] | None:
        """Return file status values that change when the database file is written; None for databases without a file."""
        place = self.engine.url.database
        if self.engine.dialect.name != "sqlite" or not place or place == ":memory:":
            return None
        mark: list[int] = []
        for path in (place, f"{place}-wal"):
            with suppress(OSError):
                status = Path(path).stat()
                mark += (status.st_mtime_ns, status.st_size)
        return tuple(mark)

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def __enter__(self) -> Control:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def control_generation(control: Control) -> int:
    """Return a number that grows with each change of a version, an alias or an API key; serving processes poll it."""
    with control.reading() as connection:
        return int(connection.execute(sa.select(tables.generation.c.value)).scalar_one())


def empty_write_ahead_log(control: Control) -> bool:
    """Move the write-ahead log of SQLite into the database and cut it to no bytes, so that no former page is left in it.

    False if readers or a writer keep it busy for longer than `LOG_TIMEOUT_S`: the log stays, and a later call may empty
    it. PostgreSQL keeps its own log.
    """
    if control.engine.dialect.name != "sqlite":
        return True
    with _our_errors(control.engine.url):
        connection = control.engine.raw_connection()  # SQLite allows it outside of transactions only
        cursor = connection.cursor()
        try:
            cursor.execute(f"PRAGMA busy_timeout = {LOG_TIMEOUT_S * 1000:.0f}")
            return not cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                return False
            raise DatabaseError("PRAGMA wal_checkpoint(TRUNCATE)", None, error) from error
        finally:
            cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000:.0f}")
            connection.close()


def bump_control_generation(connection: Connection) -> None:
    """Notify serving processes of a change, once this transaction is committed."""
    connection.execute(sa.update(tables.generation).values(value=tables.generation.c.value + 1))


def open_control(url: str, root: Path | str | None = None) -> Control:
    """Open the control database at a URL such as ``sqlite:////data/control.sqlite``, and migrate its tables.

    Stored paths are relative to `root`, by default the folder of a SQLite file. Raises ControlUnavailable if it cannot be
    reached or is locked for longer than `BUSY_TIMEOUT_S`; CorruptFile; NewerDatabase if a later release has written it.
    """
    parsed = _with_driver(url)
    if root is None and parsed.database and parsed.get_backend_name() == "sqlite":
        root = Path(parsed.database).parent
    if parsed.database and parsed.get_backend_name() == "sqlite":
        create_private_file(Path(parsed.database))  # its logs beside it get the same mode
    control = Control(_engine(parsed), None if root is None else Path(root).absolute())
    try:
        with _our_errors(parsed):
            migrations.apply_missing_migrations(control.engine, control.writing)
    except BaseException:
        control.close()
        raise
    return control


def _with_driver(url: str) -> URL:
    try:
        parsed = make_url(url)
    except sa.exc.ArgumentError as error:
        raise ControlUnavailable(
            "FEWPASS_CONTROL_URL is not the URL of a database. Use sqlite:///path or postgresql://…."
        ) from error
    backend = parsed.get_backend_name()
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite" and parsed.database not in (None, "", ":memory:"):
        return parsed
    raise ControlUnavailable(
        f"{parsed.render_as_string(hide_password=True)}: the control database is a SQLite file (sqlite:///path) or PostgreSQL (postgresql://…)."
    )


def _engine(url: URL) -> Engine:
    if url.get_backend_name() != "sqlite":
        # What the URL says wins.
        waits = {name: value for name, value in WAITS.items() if name not in url.query}
        return sa.create_engine(url, json_serializer=_json, pool_pre_ping=True, connect_args=waits)
    engine = sa.create_engine(url, json_serializer=_json, connect_args={"timeout": BUSY_TIMEOUT_S})
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    # The driver must not begin transactions on its own: it would begin them late, and commit before DDL.
    connection.isolation_level = None
    _write_ahead(connection)
    # FULL: what has been acknowledged survives a power cut. NORMAL would lose the last transactions.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA secure_delete = ON")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Enable write-ahead logging. SQLite refuses that at once while another process sets up the database, so it is
    retried.
    """
    ends_at = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > ends_at:
                raise
        time.sleep(POLL_S)


def _begin_sqlite(connection: Connection) -> None:
    is_writing = connection.get_execution_options().get(_IS_WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN DEFERRED")


def _json(value: object) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Unstorable(
            repr(value), f"{error}. Use what JSON has: finite numbers, text, booleans, lists, dicts."
        ) from error


@contextmanager
def _our_errors(url: URL) -> Iterator[None]:
    """Translate database errors to storage errors with a remedy."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise CorruptFile(
            url.database or "the control database", f"{error}. Stop fewpass and restore a backup."
        ) from error
    except (OperationalError, InterfaceError) as error:
        raise _translated_of(url, error) from error
    except StatementError as error:
        if isinstance(error.orig, StorageError):  # raised by `_json` while a statement was made
            raise error.orig from error
        if type(error) is DatabaseError and url.get_backend_name() == "sqlite":
            raise _translated_of(url, error) from error
        raise


def translate_database_error(error: DBAPIError) -> StorageError:
    """Translate a database error from outside `Control`, such as the job queue's own connections."""
    return _translated("the control database", "the control database", error)


def _translated_of(url: URL, error: DBAPIError) -> StorageError:
    shown = url.set(drivername=url.get_backend_name()).render_as_string(hide_password=True)
    return _translated(shown, url.database or shown, error)


def _translated(shown: str, path: str, error: DBAPIError) -> StorageError:
    text = " ".join(str(error.orig).split("\n")[0].split())
    if "malformed" in text or "not a database" in text:
        return CorruptFile(path, f"{text}. Stop fewpass and restore the file from a backup.")
    if getattr(error.orig, "sqlite_errorcode", None) == sqlite3.SQLITE_IOERR_FSYNC:
        return OutcomeUnknown(path)
    if "disk is full" in text or "readonly" in text or DISK_ERROR in text:
        return Unwritable(path, f"{text}. {FREE_THE_DISK}")
    if "unable to open" in text:
        return Unwritable(path, f"{text}. Create its folder and give this user write permission.")
    if "locked" in text or "lock timeout" in text:
        waited = f"{shown} was busy for more than {BUSY_TIMEOUT_S:.0f} s"
        return ControlUnavailable(f"{waited}. Try again; if it stays busy, find the process that holds it.")
    remedy = "Try again later; models that are already loaded still predict."
    return ControlUnavailable(f"{shown} does not answer: {text.rstrip('.')}. {remedy}")
