"""One number that grows: serving processes poll it, and look closer only when it has changed."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from storage.control import tables
from storage.control.control import Control


def generation(control: Control) -> int:
    """A number that has grown whenever a version, an alias or an API key has changed."""
    with control.reading() as connection:
        return int(connection.execute(sa.select(tables.generation.c.value)).scalar_one())


def bump_generation(connection: Connection) -> None:
    """Let serving processes know, once this transaction is through, that something has changed."""
    connection.execute(sa.update(tables.generation).values(value=tables.generation.c.value + 1))
