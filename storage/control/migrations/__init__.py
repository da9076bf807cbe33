"""Tables of a new control database, and migrations of an older one, applied when it is opened."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from storage.control import tables
from storage.errors import NewerDatabase

# The newest file in versions/. It stands here so that a database that is new or up to date opens without importing Alembic.
HEAD = "0006"
VERSION_TABLE = "schema_version"


def apply_missing_migrations(engine: Engine, writing: Callable[[], AbstractContextManager[Connection]]) -> None:
    """Create the tables, or apply missing migrations, in one transaction; of several processes that open at once, one
    does it.

    Raises NewerDatabase if the database is at a revision that this release does not know.
    """
    with engine.connect() as connection, connection.begin():
        if _revision(connection) == HEAD:
            return
    with writing() as connection:
        # Asked again, as another process may have been faster.
        revision = _revision(connection)
        if revision == HEAD:
            return
        if revision is None:
            create_tables(connection)
            return
        if not any((Path(__file__).parent / "versions").glob(f"{revision}_*.py")):
            raise NewerDatabase(engine.url.render_as_string(hide_password=True), revision, HEAD)
        migrate_tables(connection, HEAD)


def _revision(connection: Connection) -> str | None:
    if not sa.inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()


def create_tables(connection: Connection) -> None:
    """Create the tables of a new database as all migrations together would, without importing Alembic (.1 s)."""
    tables.metadata.create_all(connection, checkfirst=False)
    for table, row in tables.FIRST_ROWS.items():
        connection.execute(sa.insert(tables.metadata.tables[table]).values(**row))
    revision = sa.Column("version_num", sa.String(32), nullable=False)
    key = sa.PrimaryKeyConstraint("version_num", name=f"{VERSION_TABLE}_pkc")
    version = sa.Table(VERSION_TABLE, sa.MetaData(), revision, key)
    version.create(connection)
    connection.execute(sa.insert(version).values(version_num=HEAD))


def migrate_tables(connection: Connection, revision: str) -> None:
    """Apply the migrations up to a revision."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
