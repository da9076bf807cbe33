"""A clock in milliseconds for a SQLite that has none: under Python 3.12 and later the queue asks for `unixepoch('subsec')`, of SQLite 3.42.

Python brings no SQLite of its own: on Debian 12 and Ubuntu 22.04 every Python has an older one.
"""

import sqlite3
import time

from sqlalchemy import event
from sqlalchemy.engine import Engine

FIRST = (3, 42)  # that knows 'subsec'


def bring_clock() -> None:
    """Give the connections of SQLAlchemy to SQLite that function, where it is missing."""
    if sqlite3.sqlite_version_info < FIRST and not event.contains(Engine, "connect", _with_clock):
        event.listen(Engine, "connect", _with_clock)


def _with_clock(connection: object, _record: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.create_function("unixepoch", 1, lambda _precision: time.time())
