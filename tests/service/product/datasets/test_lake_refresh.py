"""Trainings on lake tables: a refresh follows the log, and versions, proofs and lineage know the snapshot."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from service import product
from service.product.datasets.data_sources import open_data_source
from service.requests.problems import OutsideRoots
from service.requests.requests import ForgetRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.lake_tables import DeltaHistory, IcebergHistory, WrittenTable, anew, people
from tests.service.asking import model_of
from tests.support.passes import same
from tests.support.product import n_read, snapshot_of, train


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    with Workspace(Settings(workspace=tmp_path_factory.mktemp("lake") / "workspace", threads=1)) as here:
        yield here


@pytest.fixture
def history(tmp_path):
    found = DeltaHistory(tmp_path / "table", np.random.default_rng(5))
    for _ in range(3):
        found.append()
    return found


def test_a_person_who_is_deleted_leaves_no_trace(history, workspace, tmp_path):
    """Whose value nobody else has: the refresh is the model of a table that never had the person."""
    row = people(history.rng, 1).set_column(0, "person", pa.array([777])).set_column(2, "a", pa.array(["only"]))
    write_deltalake(history.path, row, mode="append")
    before, _ = train(workspace, history.path, model="person")
    assert "only" in str(model_of(before).schema.to_json())
    history.table.delete("person = 777")
    after, passes = train(workspace, history.path, model="person")
    assert n_read(passes) < history.rows().num_rows  # by subtraction
    assert same(model_of(after), anew(history.rows(), tmp_path))
    assert "only" not in str(model_of(after).to_arrays()[0])


def test_weighted_rows_that_are_deleted_are_subtracted(tmp_path, workspace):
    """As often as they counted."""
    rng, path = np.random.default_rng(6), str(tmp_path / "table")
    for n in (200, 50):
        rows = people(rng, n).append_column("n", pa.array(rng.integers(0, 5, n)))
        write_deltalake(path, rows, mode="append")
    columns = {"person": "nominal", "n": {"weight": True}}
    train(workspace, path, model="weighted", columns=columns)
    DeltaTable(path).delete("person = 3 AND n > 1")
    version, _ = train(workspace, path, model="weighted", columns=columns)
    expected, _ = train(workspace, path, model="unrefreshed", columns=columns, update=False)
    assert same(model_of(version), model_of(expected))


def test_a_compaction_reads_nothing(history, workspace, tmp_path):
    train(workspace, history.path, model="compacted")
    n_rows = history.rows().num_rows
    history.append()
    train(workspace, history.path, model="compacted")
    history.compact()
    version, passes = train(workspace, history.path, model="compacted")
    assert n_read(passes) == 0
    assert same(model_of(version), anew(history.rows(), tmp_path))
    # Also if the files that it replaced are gone, and another file came in between.
    history.append()
    history.compact()
    history.vacuum()
    version, passes = train(workspace, history.path, model="compacted")
    assert version.n_rows == n_rows + 80
    assert same(model_of(version), anew(history.rows(), tmp_path))


def test_removed_files_that_are_gone_are_told(history, workspace, tmp_path):
    train(workspace, history.path, model="vacuumed")
    history.delete()
    history.vacuum()
    warnings: list[str] = []
    version, _ = train(workspace, history.path, model="vacuumed", warn=warnings.append)
    assert any("left the table and can no longer be read" in warning for warning in warnings), warnings
    assert same(model_of(version), anew(history.rows(), tmp_path))


def test_deletion_vectors_are_subtracted(tmp_path, workspace):
    rows = people(np.random.default_rng(1), 300).drop_columns(["region"])
    table = WrittenTable(tmp_path / "table", rows.schema)
    table.append("a.parquet", rows)
    table.append("b.parquet", rows.slice(0, 100))
    train(workspace, table.root, model="vectors", columns={"person": "nominal"})
    for deleted in ([1, 64, 99], list(range(60, 130)), [0]):
        table.delete("b.parquet", [row for row in deleted if row < 100])
        version, passes = train(workspace, table.root, model="vectors")
        left = QueryBuilder().register("t", DeltaTable(table.root)).execute("SELECT * FROM t")
        assert same(model_of(version), anew(pa.table(left), tmp_path))
        assert n_read(passes) <= 200


def test_a_version_is_pinned_and_told(history, workspace):
    old = pa.table(QueryBuilder().register("t", DeltaTable(history.path, version=1)).execute("SELECT * FROM t"))
    version, _ = train(workspace, history.path, at="1", model="pinned", holdout=0.2)
    told = snapshot_of(workspace, version)
    expected = {"format": "Delta Lake", "table": history.path, "version": "1", "n_rows": old.num_rows}
    assert expected.items() <= told.items()
    assert 0.7 * old.num_rows < version.n_rows < 0.9 * old.num_rows


def test_forgetting_and_windows_work(history, workspace, tmp_path):
    train(workspace, history.path, model="forgetful")
    history.delete()
    done = product.forget_rows(workspace, ForgetRequest(model="forgetful", where="a = 'a' AND b = 'b'"))
    assert done["proofs"][0]["is_equal"]
    with pytest.raises(ValueError, match="files of a lake table have no order by name"):
        train(workspace, history.path, model="window", window="3f")
    version, _ = train(workspace, history.path, model="window", window="30d")
    assert same(model_of(version), anew(history.rows(), tmp_path))


def test_a_server_reads_tables_in_its_roots_only(tmp_path, history):
    """Whatever scheme stands before the path, and a link in a table leads nowhere else."""
    inside = DeltaHistory(tmp_path / "roots" / "table", np.random.default_rng(3))
    inside.append()
    with Workspace(Settings(workspace=tmp_path / "workspace", data_roots=[str(tmp_path / "roots")])) as workspace:
        for uri in (f"delta://{inside.path}@0", f"delta://file://{inside.path}@0"):
            assert open_data_source(workspace, [uri]).n_rows == 60
        assert open_data_source(workspace, [inside.path], at="1").n_rows == 100
        for uri in (f"delta://{history.path}@0", f"delta://{inside.path}/../../table", f"iceberg://{history.path}"):
            with pytest.raises(OutsideRoots, match="outside the folders that this server may read"):
                open_data_source(workspace, [uri])
        name = DeltaTable(inside.path).file_uris()[0]
        Path(name).rename(tmp_path / "elsewhere.parquet")
        Path(name).symlink_to(tmp_path / "elsewhere.parquet")
        with pytest.raises(OutsideRoots, match="outside the folders that this server may read"):
            open_data_source(workspace, [inside.path])


def test_a_refresh_takes_renamed_columns_by_their_new_names(workspace, tmp_path):
    history = IcebergHistory(tmp_path / "table", np.random.default_rng(3))
    train(workspace, history.path, model="renamed")
    with history.table.update_schema() as schema:
        schema.rename_column("a", "other")
    told: list[str] = []
    version, _ = train(workspace, history.path, model="renamed", columns={}, warn=told.append)  # those of last time
    assert any("renamed or dropped since the last training: 'a'" in warning for warning in told)
    assert same(model_of(version), anew(history.rows(), tmp_path))
    version, passes = train(workspace, history.path, model="renamed")
    assert n_read(passes) == 0 and version.n_rows == history.rows().num_rows
