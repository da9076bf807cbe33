"""Rules of forgotten rows."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "forgotten_rules",
        sa.Column("path", sa.String(255), nullable=False),
        sa.Column("where_sha256", sa.String(64), nullable=False),
        sa.Column("where_text", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("path", "where_sha256", name="pk_forgotten_rules"),
    )
