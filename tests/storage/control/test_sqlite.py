"""Copies of the control database, and the clock of an old SQLite."""

import sqlite3
import time

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine

from storage.control import sqlite
from storage.control.control import open_control
from storage.control.sqlite import control_integrity_errors, copy_control_database
from storage.errors import CorruptFile, Unwritable


@pytest.fixture
def control(tmp_path):
    path = tmp_path / "control.sqlite"
    with open_control(f"sqlite:///{path}"):
        pass
    return path


def test_a_copy_is_sound_or_refused_by_name(control, tmp_path):
    copy_control_database(control, tmp_path / "copy.sqlite")
    assert control_integrity_errors(tmp_path / "copy.sqlite") == []
    with pytest.raises(Unwritable, match=r"copy\.sqlite cannot be written: unable to open"):
        copy_control_database(control, tmp_path / "none" / "copy.sqlite")
    control.write_bytes(b"no database" * 1000)
    with pytest.raises(CorruptFile, match=r"control\.sqlite is damaged"):
        copy_control_database(control, tmp_path / "copy.sqlite")


def test_engines_of_others_overwrite_what_is_deleted(tmp_path):
    def off(connection, _record):
        connection.execute("PRAGMA secure_delete = OFF")

    was_there = event.contains(Engine, "connect", sqlite._with_secure_delete)
    event.listen(Engine, "connect", off, insert=True)
    try:
        sqlite.install_secure_delete()
        sqlite.install_secure_delete()
        with sa.create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}").connect() as connection:
            assert connection.exec_driver_sql("PRAGMA secure_delete").scalar() == 1
    finally:
        event.remove(Engine, "connect", off)
        if not was_there:
            event.remove(Engine, "connect", sqlite._with_secure_delete)


@pytest.mark.parametrize("version", [(3, 40, 1), (3, 46, 0)])
def test_an_old_sqlite_tells_milliseconds_and_a_new_one_is_left_alone(tmp_path, monkeypatch, version):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    was_there = event.contains(Engine, "connect", sqlite._with_clock)
    sqlite.install_sqlite_clock()
    sqlite.install_sqlite_clock()
    assert event.contains(Engine, "connect", sqlite._with_clock) == (was_there or version < (3, 42))
    if version < (3, 42):
        with sa.create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}").begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (a, at INTEGER NOT NULL DEFAULT (unixepoch('subsec') * 1000))")
            connection.exec_driver_sql("INSERT INTO t (a) VALUES (1)")
            at = connection.exec_driver_sql("SELECT at FROM t").scalar_one()
        assert abs(at / 1000 - time.time()) < 5
        if not was_there:
            event.remove(Engine, "connect", sqlite._with_clock)
