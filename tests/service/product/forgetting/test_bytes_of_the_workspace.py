"""After rows are forgotten no byte of a served workspace has a value that only they had."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from typer.testing import CliRunner

from service import product
from service.cli import app
from service.settings import Settings
from storage.control import tables
from storage.control.control import empty_write_ahead_log, open_control
from tests.service.asking import client_of, finished
from tests.service.forks import local_server
from tests.support.product import WHERE, forget, of_nb

SECRET = "quetzalcoatl-4711"


@pytest.fixture
def rows(folder):
    """The files of the folder, with a column whose value SECRET the rows of user 3 alone have."""
    for path in folder.iterdir():
        table = pq.read_table(path)
        town = pc.if_else(pc.equal(table["user"], 3), SECRET, table["x0"])
        pq.write_table(table.append_column("town", town), path, compression="none")
    return folder


def places(workspace):
    """The files of the workspace in which the value stands."""
    files = (path for path in workspace.rglob("*") if path.is_file())
    return sorted(path.relative_to(workspace).as_posix() for path in files if SECRET.encode() in path.read_bytes())


@pytest.mark.parametrize("by", ["REST", "command"])
def test_no_byte_of_a_served_workspace_has_a_value_of_forgotten_rows(tmp_path, rows, by):
    settings = Settings(workspace=tmp_path / "served", generation_poll_s=0.2, job_poll_s=0.2)
    with local_server(settings) as server, client_of(server) as client:
        columns = {"user": "drop", "time": "drop"}
        made = {"name": "daily", "uris": [str(rows)], "target": "class", "columns": columns}
        assert client.post("/v1/datasets", json=made).status_code == 201
        finished(client, {"kind": "schema", "dataset": "daily"})
        finished(client, {"kind": "train", "dataset": "daily", "learner": "nb", "model": "m", "update": True})
        assert any(place.startswith("control.sqlite") for place in places(settings.workspace))
        if by == "REST":
            done = finished(client, {"kind": "forget", "dataset": "daily", "where": WHERE})
            assert done["proofs"][0]["is_equal"] and done["still_holding"] == ["m@1"]
        else:
            words = ["forget", "daily", "--where", WHERE, "-w", str(settings.workspace)]
            assert CliRunner().invoke(app, words).exit_code == 0
        assert client.delete("/v1/models/m/versions/1").status_code == 204
        assert places(settings.workspace) == []


def test_who_reads_the_control_database_meanwhile_fails_no_forgetting(workspace, rows, monkeypatch):
    monkeypatch.setattr("storage.control.control.LOG_TIMEOUT_S", 0.05)
    product.train_model_version(workspace, of_nb(rows))
    with open_control(workspace.control_url) as other, other.reading() as connection:
        connection.execute(sa.select(tables.datasets)).all()
        assert forget(workspace)["proofs"][0]["is_equal"]
        assert not empty_write_ahead_log(workspace.control)
    assert empty_write_ahead_log(workspace.control)
