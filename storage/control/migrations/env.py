"""Alembic's hook: run the migrations in the transaction begun by `storage.control.migrations.apply_missing_migrations`."""

from alembic import context

from storage.control.migrations import VERSION_TABLE
from storage.control.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # SQLite can; Alembic assumes it cannot, because its driver used to commit before DDL
    render_as_batch=True,
)
context.run_migrations()
