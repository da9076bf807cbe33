"""A thousand models and ten thousand jobs: what is asked of the database and of files for one answer does not grow with them.

Nothing here is timed. Each answer is taken twice, from a workspace that fills a page and from one that fills many, and
must cost the same number of statements and of opened files; `doctor` reads each version, and each as often.
"""

import os
import sqlite3
import sys
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from starlette.testclient import TestClient

from service import product
from service.http.app import create_app
from service.jobs.worker_leases import worker_crew_status
from service.operations import doctor
from service.settings import Settings
from service.workspace import Workspace
from tests.service.asking import learn
from tests.service.conftest import weather

PATHS = ["/v1/models", "/v1/models/m-00007", "/v1/models/m-00007/versions", "/v1/jobs", "/v1/jobs?state=queued"]
PATHS += ["/v1/schedules", "/v1/datasets", "/healthz", "/readyz", "/metrics"]
PATHS += ["/console", "/console/jobs", "/console/models/m-00007"]
LONG_PATHS = ["/v1/models?limit=500", "/v1/jobs?limit=500", "/console/monitoring"]  # pages of up to 500
SLACK = 3  # statements and files: a connection that is made anew asks for its version


@dataclass
class Cost:
    """Statements of all databases, and files that Python opened; SQLite's own are not among them."""

    statements: int = 0
    files: int = 0
    is_counting: bool = False


COST = Cost()


def _opened(event, arguments):
    if event == "open" and COST.is_counting and isinstance(arguments[0], str | bytes):
        COST.files += 1


@contextmanager
def cost():
    COST.statements, COST.files, COST.is_counting = 0, 0, True
    try:
        yield COST
    finally:
        COST.is_counting = False


@pytest.fixture(scope="module", autouse=True)
def counting():
    def executed(*_):
        COST.statements += COST.is_counting

    sys.addaudithook(_opened)
    sa.event.listen(sa.engine.Engine, "before_cursor_execute", executed)
    yield
    sa.event.remove(sa.engine.Engine, "before_cursor_execute", executed)


@pytest.fixture
def settings(tmp_path):
    """A workspace with one model and one job that waits."""
    pq.write_table(weather(200, 1), tmp_path / "a.parquet")
    made = Settings(workspace=tmp_path / "workspace", threads=1, warm_up=False, monitoring="off", generation_poll_s=60)
    with Workspace(made) as workspace:
        learn(workspace, tmp_path / "a.parquet", "m-00000", holdout=0, aliases=["champion"])
        product.job_queue(workspace).submit("train", {"model": "m-00000", "dataset": "d"})
    return made


def crowd(settings, n_models, n_jobs):
    """So many models and jobs like the first: made by themselves they would take an hour."""
    root = settings.workspace
    with sqlite3.connect(root / "control.sqlite") as database:
        (n_there,) = database.execute("SELECT count(*) FROM models").fetchone()
        names = [f"m-{number:05d}" for number in range(n_there, n_models)]
        for table in ("models", "model_versions", "alias_moves", "model_aliases"):
            _repeat(database, table, "name = 'm-00000'", [{"name": name} for name in names])
        (n_there,) = database.execute("SELECT count(*) FROM workflow_status").fetchone()
        jobs = [{"workflow_uuid": f"job-{number:08d}"} for number in range(n_there, n_jobs)]
        (first,) = database.execute(
            "SELECT min(workflow_uuid) FROM workflow_status WHERE workflow_uuid > 'job-01'"
        ).fetchone()
        for table in ("workflow_status", "workflow_input"):
            _repeat(database, table, f"workflow_uuid = '{first}'", jobs)
    for name in names:
        (root / "models" / name).mkdir()
        for path in (root / "models" / "m-00000").iterdir():
            if path.is_file():
                os.link(path, root / "models" / name / path.name)


def _repeat(database, table, where, changes):
    """One row again, with other names in it."""
    cursor = database.execute(f"SELECT * FROM {table} WHERE {where}")
    columns = [each[0] for each in cursor.description]
    row = dict(zip(columns, cursor.fetchone(), strict=True))
    rows = []
    for change in changes:
        own = row | change | ({"id": None} if "id" in row else {})
        for column in ("duckdb_path", "arrow_path"):
            if column in own:
                own[column] = own[column].replace("m-00000", own["name"])
        rows.append(tuple(own.values()))
    database.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(columns))})", rows)


def costs(settings, paths):
    """Statements, opened files and bytes of each answer, when it is given for the second time."""
    found = {}
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        for path in paths:
            for _ in range(2):
                with cost() as spent:
                    response = client.get(path)
            assert response.status_code == 200, (path, response.text)
            found[path] = spent.statements, spent.files, len(response.content)
    with Workspace(settings) as workspace:
        for _ in range(2):
            with cost() as spent:
                crew = worker_crew_status(workspace)
        assert crew.n_waiting
        found["what /readyz asks of workers"] = spent.statements, spent.files, 0
    return found


def doctors_costs(settings):
    with cost() as spent:
        found = doctor.run_doctor_checks(settings)
    assert not [item for item in found if item.state == "failed"], found
    return spent.statements, spent.files


def look_at(settings, page, n_models, n_jobs):
    """Compare so many models and jobs as fill the longest page with many more."""
    crowd(settings, page, page)
    paths = PATHS + LONG_PATHS * (page >= 500)
    few, of_doctor = costs(settings, paths), doctors_costs(settings)
    crowd(settings, n_models, n_jobs)
    many, of_doctor_then = costs(settings, paths), doctors_costs(settings)
    for path, (statements, files, n_bytes) in few.items():
        told = (path, few[path], many[path])
        assert many[path][0] <= statements + SLACK and many[path][1] <= files + SLACK, told
        if path != "/metrics":  # which has a series for each model
            assert many[path][2] <= 1.3 * n_bytes, told
    for before, after in zip(of_doctor, of_doctor_then, strict=True):
        assert after / n_models <= before / page, "doctor looks at each version as often, however many there are"


def test_several_pages_of_models_and_jobs_cost_what_one_does(settings):
    look_at(settings, 100, 140, 600)


@pytest.mark.faults
def test_a_thousand_models_and_ten_thousand_jobs_cost_what_a_page_does(settings):
    look_at(settings, 500, 1_000, 10_000)
