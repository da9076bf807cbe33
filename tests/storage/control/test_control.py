"""The control database: opening, migrating, several processes at once, and its words when disk or file are bad."""

import contextlib
import random
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.engine import Engine

from storage.control import control, migrations, tables
from storage.control.control import (
    bump_control_generation,
    control_generation,
    empty_write_ahead_log,
    open_control,
)
from storage.datasets.dataset_definitions import Dataset, get_dataset, list_datasets, register_dataset
from storage.errors import ControlUnavailable, CorruptFile, NewerDatabase, OutcomeUnknown, Unwritable
from storage.models.model_versions import list_model_versions
from tests.storage.conftest import new_version

ROOT = Path(__file__).parents[3]


def migrated(connection):
    """Creates the tables as a database of the first release gets them."""
    migrations.migrate_tables(connection, migrations.HEAD)


def test_migrations_make_the_tables_that_the_code_expects(layout, monkeypatch):
    monkeypatch.setattr(migrations, "create_tables", migrated)
    with open_control(layout.control_url) as control, control.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": migrations.VERSION_TABLE})
        assert compare_metadata(context, tables.metadata) == []


def test_a_new_database_is_as_all_migrations_leave_one(tmp_path, monkeypatch):
    kept = []
    for create in (migrations.create_tables, migrated):
        monkeypatch.setattr(migrations, "create_tables", create)
        path = tmp_path / f"{create.__name__}.sqlite"
        open_control(f"sqlite:///{path}").close()
        with contextlib.closing(sqlite3.connect(path)) as database:
            named = dict(database.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
            rows = {name: database.execute(f'SELECT * FROM "{name}"').fetchall() for name in named if name[:3] != "ix_"}
        kept.append(({name: parts_of(sql) for name, sql in named.items()}, rows))
    assert kept[0] == kept[1]


def parts_of(sql):
    """The columns and constraints of a statement that creates a table, in any order."""
    return sorted(" ".join(sql.removesuffix("\n)").split()).split(", "))


def test_head_is_the_newest_migration():
    assert ScriptDirectory(str(Path(migrations.__file__).parent)).get_heads() == [migrations.HEAD]


def test_a_database_that_is_new_or_up_to_date_opens_without_alembic(layout):
    code = "import sys; from storage.control.control import open_control as o; o(sys.argv[1]); print(*sys.modules)"
    command = [sys.executable, "-c", code, layout.control_url]
    for _ in range(2):
        loaded = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
        assert "storage.control.migrations" in loaded and "alembic" not in loaded


def test_sqlite_acknowledges_only_what_survives_a_power_cut(layout):
    with open_control(layout.control_url) as opened, opened.reading() as connection:
        for name, value in {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}.items():
            assert connection.exec_driver_sql(f"PRAGMA {name}").scalar() == value


@pytest.fixture
def careless():
    """SQLite as many build it: what is deleted stays in the file until it is overwritten."""

    def off(connection, _record):
        connection.execute("PRAGMA secure_delete = OFF")

    event.listen(Engine, "connect", off, insert=True)
    yield
    event.remove(Engine, "connect", off)


def test_sqlite_overwrites_what_is_deleted(layout, careless):
    with open_control(layout.control_url) as opened, opened.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA secure_delete").scalar() == 1


def test_the_log_is_emptied_once_no_reader_holds_it(layout, monkeypatch):
    monkeypatch.setattr("storage.control.control.LOG_TIMEOUT_S", 0.05)
    log = Path(f"{layout.control_path}-wal")
    with open_control(layout.control_url) as opened, open_control(layout.control_url) as other:
        with other.reading() as connection:
            connection.execute(sa.select(tables.generation)).all()
            with opened.writing() as writer:
                bump_control_generation(writer)
            assert not empty_write_ahead_log(opened) and log.stat().st_size
            with opened.reading() as again:
                assert again.exec_driver_sql("PRAGMA busy_timeout").scalar() == 15_000
        assert empty_write_ahead_log(opened) and not log.stat().st_size
        assert control_generation(other) == control_generation(opened)


def test_a_transaction_that_raises_changes_nothing(control):
    before = control_generation(control)
    with pytest.raises(ZeroDivisionError), control.writing() as connection:
        connection.execute(sa.update(tables.generation).values(value=99))
        1 / 0  # noqa: B018
    assert control_generation(control) == before


def test_a_database_of_a_later_release_is_refused_and_left_alone(control):
    with control.writing() as connection:
        connection.execute(sa.text("UPDATE schema_version SET version_num = '9999'"))
    with pytest.raises(NewerDatabase, match="at revision '9999'"):
        open_control(control.engine.url.render_as_string(hide_password=False))


def test_a_file_that_is_no_database_is_named(layout):
    layout.control_path.write_bytes(b"not a database" * 1000)
    with pytest.raises(CorruptFile, match=r"control\.sqlite is damaged: file is not a database"):
        open_control(layout.control_url)


def test_a_damaged_database_is_named(layout):
    with open_control(layout.control_url) as opened:
        for i in range(200):
            register_dataset(opened, Dataset(f"d{i}", ("x" * 500,)))
    with layout.control_path.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(0).randbytes(layout.control_path.stat().st_size - 4096))
    with pytest.raises(CorruptFile, match="restore the file from a backup"), open_control(layout.control_url) as opened:
        list_datasets(opened)


@pytest.mark.parametrize(
    ("url", "error", "says"),
    [
        *((url, ControlUnavailable, "Use sqlite|SQLite file") for url in ("", "control.sqlite", "sqlite://")),
        *(
            (url, ControlUnavailable, "Use sqlite|SQLite file")
            for url in ("sqlite:///:memory:", "mysql://host/fewpass")
        ),
        ("postgresql://fewpass:sesame@127.0.0.1:1/fewpass", ControlUnavailable, "does not answer"),
        ("sqlite:////absent/control.sqlite", Unwritable, "unable to open database file"),
    ],
)
def test_what_cannot_be_opened_is_named_without_its_password(url, error, says):
    with pytest.raises(error, match=says) as raised:
        open_control(url)
    assert "sesame" not in str(raised.value)


def test_a_locked_database_is_waited_for_and_then_named(layout, monkeypatch):
    monkeypatch.setattr(control, "BUSY_TIMEOUT_S", 0.1)
    with open_control(layout.control_url) as opened:
        with contextlib.closing(sqlite3.connect(layout.control_path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(ControlUnavailable, match="if it stays busy, find the process that holds it"):
                register_dataset(opened, Dataset("d", ("a",)))
        assert register_dataset(opened, Dataset("d", ("a",))).name == "d"


def test_a_disk_without_room_is_named_and_nothing_acknowledged_is_lost(layout):
    with open_control(layout.control_url) as opened:
        register_dataset(opened, Dataset("first", ("a",)))

        @sa.event.listens_for(opened.engine, "begin")
        def no_more_pages(connection):
            n_pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
            connection.exec_driver_sql(f"PRAGMA max_page_count = {n_pages}")

        with pytest.raises(Unwritable, match="disk is full"):
            register_dataset(opened, Dataset("second", ("x" * 100_000,)))
        assert [dataset.name for dataset in list_datasets(opened).items] == ["first"]


@pytest.mark.parametrize(("n_refused", "expected"), [(1, Unwritable), (2, OutcomeUnknown)])
def test_a_commit_that_cannot_be_synced_is_taken_back_or_its_outcome_is_unknown(layout, n_refused, expected):
    with open_control(layout.control_url) as opened:
        register_dataset(opened, Dataset("first", ("a",)))
        before, left = control_generation(opened), [n_refused]

        @sa.event.listens_for(opened.engine, "commit")
        def refuse(connection):
            if left[0]:
                left[0] -= 1
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
                raise sa.exc.OperationalError("COMMIT", {}, error)

        with pytest.raises(
            expected,
            match="disk I/O error"
            if n_refused == 1
            else "the disk failed during the commit, so the change may or may not be stored. Free or remount the disk, check, and repeat the change if necessary",
        ) as raised:
            register_dataset(opened, Dataset("second", ("b",)))
        assert type(raised.value) is expected
        # Another transaction is written over the refused one.
        assert control_generation(opened) == before + (n_refused == 1)


WRITER = """
import sys
from storage.control.control import open_control
from tests.storage.conftest import new_version
with open_control(sys.argv[1], root=sys.argv[2]) as control:
    for _ in range(15):
        new_version(control)
"""


def test_opening_waits_for_another_process_that_sets_up_the_database(tmp_path):
    """SQLite answers at once that it is locked when a log is to be begun, whatever the timeout."""
    path = tmp_path / "control.sqlite"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE other (a)")
        with pytest.raises(sqlite3.OperationalError, match="locked"), contextlib.closing(sqlite3.connect(path)) as own:
            own.execute("PRAGMA journal_mode = WAL")
        timer = threading.Timer(0.2, other.execute, ["COMMIT"])
        timer.start()
        open_control(f"sqlite:///{path}").close()
        timer.join()


def test_two_processes_open_migrate_and_write_at_once(layout, control):
    url = control.engine.url.render_as_string(hide_password=False)
    with control.writing() as connection:  # so that both find an empty database
        tables.metadata.drop_all(connection)
        connection.execute(sa.text("DROP TABLE schema_version"))
    command = [sys.executable, "-c", WRITER, url, str(layout.root)]
    writers = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [writer.communicate(timeout=240)[1] for writer in writers] == ["", ""]
    versions = list_model_versions(control, "adult").items
    assert [version.version for version in versions] == list(range(30, 0, -1))
    assert control_generation(control) == 31


def test_threads_share_a_control(control):
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: new_version(control).version, range(40)))
    assert sorted(numbers) == list(range(1, 41))


KILLED = """
import os, sys
from storage.control import tables
from storage.control.control import open_control
from storage.datasets.dataset_definitions import Dataset, register_dataset
control = open_control(sys.argv[1])
register_dataset(control, Dataset("acknowledged", ("a",)))
with control.writing() as connection:
    connection.execute(tables.datasets.delete())
    os.kill(os.getpid(), 9)
"""


def test_a_process_killed_within_a_transaction_has_done_nothing(layout):
    killed = subprocess.run([sys.executable, "-c", KILLED, layout.control_url], cwd=ROOT)
    assert killed.returncode == -9
    with open_control(layout.control_url) as opened:
        assert get_dataset(opened, "acknowledged").uris == ("a",)
