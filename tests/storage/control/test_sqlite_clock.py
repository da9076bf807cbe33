"""A SQLite without a clock in milliseconds gets one."""

import sqlite3
import time

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import Engine

from storage.control import sqlite_clock


@pytest.mark.parametrize("version", [(3, 40, 1), (3, 46, 0)])
def test_an_old_sqlite_tells_milliseconds_and_a_new_one_is_left_alone(tmp_path, monkeypatch, version):
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    was_there = event.contains(Engine, "connect", sqlite_clock._with_clock)
    sqlite_clock.bring_clock()
    sqlite_clock.bring_clock()
    assert event.contains(Engine, "connect", sqlite_clock._with_clock) == (was_there or version < (3, 42))
    if version < (3, 42):
        with sa.create_engine(f"sqlite:///{tmp_path / 'x.sqlite'}").begin() as connection:
            connection.exec_driver_sql("CREATE TABLE t (a, at INTEGER NOT NULL DEFAULT (unixepoch('subsec') * 1000))")
            connection.exec_driver_sql("INSERT INTO t (a) VALUES (1)")
            at = connection.exec_driver_sql("SELECT at FROM t").scalar_one()
        assert abs(at / 1000 - time.time()) < 5
        if not was_there:
            event.remove(Engine, "connect", sqlite_clock._with_clock)
