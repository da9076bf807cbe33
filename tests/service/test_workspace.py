"""Verbs of the workspace that need no server: data roots, and leaving nothing behind."""

import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.errors import Cancelled, SchemaError
from service import product
from service.requests.problems import OutsideRoots
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import NotFound
from tests.service.asking import learn


def files_below(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


def test_who_works_on_this_machine_may_read_outside_the_data_roots(tmp_path, weather_files):
    with Workspace(Settings(workspace=tmp_path / "workspace", data_roots=(str(tmp_path / "inside"),))) as workspace:
        outsider = TrainRequest(uris=[str(weather_files[0])], target="class", learner="nb", model="m")
        with pytest.raises(OutsideRoots, match="server may"):
            product.submit_job(workspace, outsider, is_remote=True)
        assert product.train_model_version(workspace, outsider).version == 1


def test_a_data_set_lists_the_files_that_registering_and_training_found(tmp_path, weather_files):
    """Also one that is too large for its schema to be inferred at once."""
    for number, content in enumerate(weather_files):
        (tmp_path / f"{number}.parquet").write_bytes(content.read_bytes())
        with Workspace(Settings(workspace=tmp_path / "workspace", inline_schema_cells=0)) as workspace:
            request = DatasetRequest(name="d", uris=[f"{tmp_path}/*.parquet"], target="class")
            registered = product.register_dataset(workspace, request, is_remote=True)
            assert registered.schema_json is None
            assert [file["n_rows"] for file in registered.files] == [3000]
            product.train_model_version(workspace, TrainRequest(dataset="d", learner="nb", model="m"))
            assert [file["n_rows"] for file in product.get_dataset(workspace, "d").files] == [3000, 500][: number + 1]


def test_a_cancelled_or_failed_training_leaves_nothing(tmp_path, weather_files):
    def cancel(progress):
        if progress.get("rows_done"):
            raise Cancelled("enough")

    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        assert product.list_models(workspace).items == ()
        before = files_below(workspace.layout.root)
        request = TrainRequest(uris=[str(weather_files[0])], target="class", learner="nb", model="m")
        with pytest.raises(Cancelled):
            product.train_model_version(workspace, request, cancel)
        bad = tmp_path / "empty.parquet"
        pq.write_table(pa.table({"a": pa.array([], pa.string()), "class": pa.array([], pa.string())}), bad)
        with pytest.raises(Exception, match="rows"):
            learn(workspace, bad, "m")
        assert product.list_models(workspace).items == () and files_below(workspace.layout.root) == before
    assert list(workspace.layout.scratch.iterdir()) == []


def test_a_models_file_says_where_it_comes_from_and_how_good_it_is(tmp_path, weather_files):
    train, test = map(str, weather_files)
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        version = learn(workspace, train, "m", learner="tan", parameters={}, test_uris=[test])
    with duckdb.connect(version.duckdb_path, read_only=True) as file:
        metrics, provenance = (
            dict(file.execute(f"SELECT name, value FROM {table}").fetchall()) for table in ("metrics", "provenance")
        )
        sources = file.execute("SELECT path, n_rows FROM source_files").fetchall()
        libraries = dict(file.execute("SELECT name, version FROM libraries").fetchall())
    assert float(metrics["rmse"]) == version.metrics["rmse"]
    assert json.loads(provenance["learner"]) == "tan" and json.loads(provenance["n_rows"]) == 3000
    assert sources == [(train, 3000)]
    assert libraries["pyarrow"] == pa.__version__


def test_a_registration_that_fails_again_stays(tmp_path):
    """Its files have changed so that nothing can be learned from them: the data set that there was is kept."""
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"x": ["a", "b"] * 20, "class": ["yes", "no"] * 20}), path)
    request = DatasetRequest(name="d", uris=[str(path)], target="class")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        product.register_dataset(workspace, request)
        pq.write_table(pa.table({"x": ["a", "b"] * 20, "class": ["yes"] * 40}), path)
        with pytest.raises(SchemaError, match="only one class"):
            product.register_dataset(workspace, request)
        assert product.get_dataset(workspace, "d").target == "class"
        with pytest.raises(SchemaError, match="only one class"):
            product.register_dataset(workspace, DatasetRequest(name="new", uris=[str(path)], target="class"))
        with pytest.raises(NotFound, match="There is no"):
            product.get_dataset(workspace, "new")
