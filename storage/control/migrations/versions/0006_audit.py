"""The audit log and its head."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables; the log starts empty."""
    op.create_table(
        "audit_log",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("actor", sa.String(200), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("origin", sa.String(200), nullable=False),
        sa.Column("request_id", sa.String(200), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
        sa.Column("previous_sha256", sa.String(64), nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit_log"),
    )
    op.create_index("ix_audit_log_at", "audit_log", ["at"])
    head = op.create_table(
        "audit_head",
        sa.Column("first_id", sa.Integer, nullable=False),
        sa.Column("first_previous_sha256", sa.String(64), nullable=False),
        sa.Column("last_id", sa.Integer, nullable=False),
        sa.Column("last_sha256", sa.String(64), nullable=False),
    )
    start = "0" * 64
    op.bulk_insert(head, [{"first_id": 1, "first_previous_sha256": start, "last_id": 0, "last_sha256": start}])
