"""Browser sessions."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "browser_sessions",
        sa.Column("id_sha256", sa.String(64), nullable=False),
        sa.Column("key_sha256", sa.String(64), nullable=False),
        sa.Column("origin", sa.String(255), nullable=False),
        sa.Column("expires_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id_sha256", name="pk_browser_sessions"),
    )
    op.create_index("ix_browser_sessions_expires_at", "browser_sessions", ["expires_at"])
