"""A workspace, and its control database on SQLite and (where it is installed) on PostgreSQL."""

import contextlib
from pathlib import Path

import psycopg
import pytest
import sqlalchemy as sa

from storage.control.control import open_control
from storage.files.workspace_layout import Layout
from storage.models.model_versions import ModelVersion, add_version, reserve_version


@pytest.fixture
def layout(tmp_path):
    return Layout(tmp_path / "workspace").create()


@pytest.fixture(params=["sqlite", "postgresql"])
def control(request, layout):
    url = layout.control_url if request.param == "sqlite" else _empty_schema(request.getfixturevalue("postgres"))
    with open_control(url, root=layout.root) as opened:
        yield opened


def _empty_schema(url):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
    return url


@contextlib.contextmanager
def statements(control):
    """The SQL that is said meanwhile: how many statements is a matter of our code, how many seconds one of the machine."""
    said: list[str] = []

    def note(_connection, _cursor, statement, *_):
        said.append(statement)

    sa.event.listen(control.engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        sa.event.remove(control.engine, "before_cursor_execute", note)


def new_version(control, name="adult", **changes):
    """A registered version without files."""
    version = reserve_version(control, name)
    root = control.root or Path("/")
    values = {
        "learner": "kdb",
        "parameters": {"k": 2},
        "dataset": "census",
        "metrics": {"log_loss": 0.3},
        "job_id": None,
        "files": ({"path": "a.parquet", "size": 10},),
        "n_rows": 100,
        "sha256": "0" * 64,
        "duckdb_path": root / f"models/{name}/{version}-00000000.duckdb",
        "arrow_path": root / f"models/{name}/{version}-00000000.arrow",
    }
    return add_version(control, ModelVersion(name, version, **(values | changes)))
