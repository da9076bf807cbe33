"""Schedules and their runs, promotion decisions, and the number of versions of a model to keep."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables and the column."""
    op.add_column("models", sa.Column("keep_versions", sa.Integer))
    op.create_table(
        "promotions",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("challenger", sa.Integer, nullable=False),
        sa.Column("champion", sa.Integer),
        sa.Column("is_promoted", sa.Boolean, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("rule", sa.JSON, nullable=False),
        sa.Column("challenger_metrics", sa.JSON),
        sa.Column("champion_metrics", sa.JSON),
        sa.Column("measured_on", sa.JSON, nullable=False),
        sa.Column("job_id", sa.String(128), nullable=False),
        sa.Column("decided_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_promotions"),
        sa.UniqueConstraint("name", "job_id", name="uq_promotions_name_job_id"),
    )
    op.create_table(
        "schedules",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("cron", sa.String(255), nullable=False),
        sa.Column("timezone", sa.String(64), nullable=False),
        sa.Column("missed", sa.String(16), nullable=False),
        sa.Column("job", sa.JSON, nullable=False),
        sa.Column("is_paused", sa.Boolean, nullable=False),
        sa.Column("next_due_at", _MOMENT),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("changed_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_schedules"),
        sa.UniqueConstraint("id", name="uq_schedules_id"),
    )
    op.create_index("ix_schedules_next_due_at", "schedules", ["next_due_at"])
    op.create_table(
        "schedule_runs",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("schedule", sa.String(32), nullable=False),
        sa.Column("due_at", _MOMENT, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("job_id", sa.String(128)),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("decided_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_schedule_runs"),
        sa.UniqueConstraint("schedule", "due_at", name="uq_schedule_runs_schedule_due_at"),
    )
    op.create_index("ix_schedule_runs_schedule_id", "schedule_runs", ["schedule", "id"])
