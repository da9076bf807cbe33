"""The tables of the control database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

# What only a query knows: the types of its columns.
Row = sa.Row[Any]
Select = sa.Select[Any]


class UtcDateTime(sa.types.TypeDecorator[datetime]):
    """A column type for times: timezone-aware UTC on every database, including SQLite, which drops the zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert to UTC; for SQLite without the zone, so that its text sorts by time."""
        if value is None:
            return None
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Convert to a timezone-aware datetime in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def utc_now() -> datetime:
    """Return the current time, timezone-aware, in UTC."""
    return datetime.now(UTC)


metadata = sa.MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    }
)

datasets = sa.Table(
    "datasets",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("uris", sa.JSON, nullable=False),
    sa.Column("target", sa.Text),
    sa.Column("columns", sa.JSON, nullable=False),
    sa.Column("schema_json", sa.Text),
    sa.Column("files", sa.JSON, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
)

# Version numbers are counted here and not with max(version): a number, and so a file name, is never used twice.
models = sa.Table(
    "models",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("last_version", sa.Integer, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("keep_versions", sa.Integer),
)

versions = sa.Table(
    "model_versions",
    metadata,
    sa.Column("name", sa.String(64), sa.ForeignKey("models.name"), primary_key=True),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("learner", sa.String(64), nullable=False),
    sa.Column("parameters", sa.JSON, nullable=False),
    sa.Column("dataset", sa.String(64)),
    sa.Column("metrics", sa.JSON, nullable=False),
    sa.Column("job_id", sa.String(128)),
    sa.Column("files", sa.JSON, nullable=False),
    sa.Column("n_rows", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Column("duckdb_path", sa.Text, nullable=False),
    sa.Column("arrow_path", sa.Text, nullable=False),
    sa.Column("tags", sa.JSON, nullable=False),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("name", "job_id"),
)

# The places where an alias has been, as a tree: a rollback goes to the parent of the place where the alias is, so that
# two rollbacks go back twice. `version` has no foreign key: history outlives the versions.
moves = sa.Table(
    "alias_moves",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("alias", sa.String(64), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("parent", sa.Integer),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("moved_at", UtcDateTime, nullable=False),
    sa.Index(None, "name", "alias"),
)

aliases = sa.Table(
    "model_aliases",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("alias", sa.String(64), primary_key=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("move", sa.Integer, nullable=False),
    sa.ForeignKeyConstraint(["name", "version"], ["model_versions.name", "model_versions.version"]),
)

# A decision outlives the versions that it was about, so there are no foreign keys here either.
promotions = sa.Table(
    "promotions",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("name", sa.String(64), nullable=False),
    sa.Column("alias", sa.String(64), nullable=False),
    sa.Column("challenger", sa.Integer, nullable=False),
    sa.Column("champion", sa.Integer),
    sa.Column("is_promoted", sa.Boolean, nullable=False),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("rule", sa.JSON, nullable=False),
    sa.Column("challenger_metrics", sa.JSON(none_as_null=True)),
    sa.Column("champion_metrics", sa.JSON(none_as_null=True)),
    sa.Column("measured_on", sa.JSON, nullable=False),
    sa.Column("job_id", sa.String(128), nullable=False),
    sa.Column("decided_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("name", "job_id"),
)

# `id` and not `name` is in the idempotency keys of the jobs: a schedule that is deleted and made again is another one.
schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("id", sa.String(32), nullable=False, unique=True),
    sa.Column("cron", sa.String(255), nullable=False),
    sa.Column("timezone", sa.String(64), nullable=False),
    sa.Column("missed", sa.String(16), nullable=False),
    sa.Column("job", sa.JSON, nullable=False),
    sa.Column("is_paused", sa.Boolean, nullable=False),
    sa.Column("next_due_at", UtcDateTime),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("changed_at", UtcDateTime, nullable=False),
    sa.Index(None, "next_due_at"),
)

runs = sa.Table(
    "schedule_runs",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("schedule", sa.String(32), nullable=False),
    sa.Column("due_at", UtcDateTime, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("job_id", sa.String(128)),
    sa.Column("reason", sa.Text, nullable=False),
    sa.Column("decided_at", UtcDateTime, nullable=False),
    sa.UniqueConstraint("schedule", "due_at"),
    sa.Index(None, "schedule", "id"),
)

keys = sa.Table(
    "api_keys",
    metadata,
    sa.Column("id", sa.String(16), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("token_sha256", sa.String(64), nullable=False, unique=True),
    sa.Column("created_at", UtcDateTime, nullable=False),
    sa.Column("expires_at", UtcDateTime),
    sa.Column("revoked_at", UtcDateTime),
)

# What a browser got for its key. The key has no foreign key: that of the environment is in no table.
browser_sessions = sa.Table(
    "browser_sessions",
    metadata,
    sa.Column("id_sha256", sa.String(64), primary_key=True),
    sa.Column("key_sha256", sa.String(64), nullable=False),
    sa.Column("origin", sa.String(255), nullable=False),
    sa.Column("expires_at", UtcDateTime, nullable=False),
    sa.Index(None, "expires_at"),
)

# Which rules of forgotten rows each file must have, as a file that is gone cannot say what it had. What stands is in the files.
forgotten_rules = sa.Table(
    "forgotten_rules",
    metadata,
    sa.Column("path", sa.String(255), primary_key=True),
    sa.Column("where_sha256", sa.String(64), primary_key=True),
    sa.Column("where_text", sa.Text, nullable=False),
)

# Every act that changed something, chained by hashes; and where the chain begins and ends, in one row.
audit_log = sa.Table(
    "audit_log",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("at", UtcDateTime, nullable=False),
    sa.Column("actor", sa.String(200), nullable=False),
    sa.Column("role", sa.String(16), nullable=False),
    sa.Column("origin", sa.String(200), nullable=False),
    sa.Column("request_id", sa.String(200), nullable=False),
    sa.Column("action", sa.String(64), nullable=False),
    sa.Column("subject", sa.Text, nullable=False),
    sa.Column("detail", sa.JSON, nullable=False),
    sa.Column("previous_sha256", sa.String(64), nullable=False),
    sa.Column("sha256", sa.String(64), nullable=False),
    sa.Index(None, "at"),
)
audit_head = sa.Table(
    "audit_head",
    metadata,
    sa.Column("first_id", sa.Integer, nullable=False),
    sa.Column("first_previous_sha256", sa.String(64), nullable=False),
    sa.Column("last_id", sa.Integer, nullable=False),
    sa.Column("last_sha256", sa.String(64), nullable=False),
)

# One row with one number: serving processes poll it, and look closer only when it has grown.
generation = sa.Table("generation", metadata, sa.Column("value", sa.BigInteger, nullable=False))

# A worker lives as long as its row is here: whoever removes the row has taken all its jobs away from it.
workers = sa.Table(
    "workers",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("beats", sa.Integer, nullable=False),
    sa.Column("lease_s", sa.Float, nullable=False),
    sa.Column("renewed_at", UtcDateTime, nullable=False),
)

_NO_LINE = "0" * 64  # stands for the line before the first of the audit log
# The first row of each table that a new database does not leave empty.
FIRST_ROWS: dict[str, dict[str, int | str]] = {
    generation.name: {"value": 1},
    audit_head.name: {"first_id": 1, "first_previous_sha256": _NO_LINE, "last_id": 0, "last_sha256": _NO_LINE},
}
