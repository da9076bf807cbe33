"""The first tables, written out since `control_tables` will have changed when this runs."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "datasets",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("uris", sa.JSON, nullable=False),
        sa.Column("target", sa.Text),
        sa.Column("columns", sa.JSON, nullable=False),
        sa.Column("schema_json", sa.Text),
        sa.Column("files", sa.JSON, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_datasets"),
    )
    op.create_table(
        "models",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("last_version", sa.Integer, nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_models"),
    )
    op.create_table(
        "model_versions",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
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
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("name", "version", name="pk_model_versions"),
        sa.ForeignKeyConstraint(["name"], ["models.name"], name="fk_model_versions_name"),
        sa.UniqueConstraint("name", "job_id", name="uq_model_versions_name_job_id"),
    )
    op.create_table(
        "alias_moves",
        sa.Column("id", sa.Integer, nullable=False, autoincrement=True),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("parent", sa.Integer),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("moved_at", _MOMENT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_alias_moves"),
    )
    op.create_index("ix_alias_moves_name_alias", "alias_moves", ["name", "alias"])
    op.create_table(
        "model_aliases",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("alias", sa.String(64), nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("move", sa.Integer, nullable=False),
        sa.PrimaryKeyConstraint("name", "alias", name="pk_model_aliases"),
        sa.ForeignKeyConstraint(
            ["name", "version"], ["model_versions.name", "model_versions.version"], name="fk_model_aliases_name_version"
        ),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(16), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("token_sha256", sa.String(64), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("expires_at", _MOMENT),
        sa.Column("revoked_at", _MOMENT),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("name", name="uq_api_keys_name"),
        sa.UniqueConstraint("token_sha256", name="uq_api_keys_token_sha256"),
    )
    generation = op.create_table("generation", sa.Column("value", sa.BigInteger, nullable=False))
    op.bulk_insert(generation, [{"value": 1}])
