"""A dry run of forgetting tells what would be forgotten, and changes nothing."""

import pyarrow.parquet as pq

from service import product
from service.requests.requests import DatasetRequest, ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.service.conftest import weather


def kept(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_dry_run_counts_and_changes_nothing(tmp_path):
    table = weather(400, 1)
    pq.write_table(table, tmp_path / "a.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        product.register_dataset(
            workspace, DatasetRequest(name="sky", uris=[str(tmp_path / "a.parquet")], target="class")
        )
        train = TrainRequest(dataset="sky", learner="nb", parameters={"m": 1.0}, model="rain", holdout=0)
        product.train(workspace, train)
        place = workspace.layout.dataset_directory("sky")
        before = kept(place)
        where = "outlook = 'rain'"
        told = product.forget(workspace, ForgetRequest(dataset="sky", where=where, dry_run=True))
        n_rain = table["outlook"].to_pylist().count("rain")
        assert told == {
            "is_dry_run": True,
            "n_rows": n_rain,
            "files": {str(tmp_path / "a.parquet"): n_rain},
            "would_retrain": ["rain"],
            "holding": ["rain@1"],
        }
        assert kept(place) == before and product.find_version(workspace, "rain").version == 1
        done = product.forget(workspace, ForgetRequest(dataset="sky", where=where))
        assert done["n_rows"] == n_rain and product.find_version(workspace, "rain").version == 2
        nothing = ForgetRequest(dataset="sky", where="outlook = 'hail'", dry_run=True)
        told = product.forget(workspace, nothing)
        assert (told["n_rows"], told["would_retrain"], told["holding"]) == (0, [], [])
        done = product.forget(workspace, nothing.model_copy(update={"dry_run": False}))
        assert (done["n_rows"], done["versions"]) == (0, []) and product.find_version(workspace, "rain").version == 2


def test_a_stored_request_without_it_is_as_it_was():
    assert "dry_run" not in ForgetRequest(dataset="sky", where="x = 1").model_dump()
    assert ForgetRequest(dataset="sky", where="x = 1", dry_run=True).model_dump()["dry_run"] is True


def test_a_dry_run_names_the_versions_that_the_real_run_then_names(tmp_path):
    """Also those that learned the same files under another name, of which no data set is known."""
    pq.write_table(weather(400, 1), tmp_path / "a.parquet")
    files = [str(tmp_path / "a.parquet")]
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        product.register_dataset(workspace, DatasetRequest(name="sky", uris=files, target="class"))
        for _ in range(2):
            asked = TrainRequest(
                uris=files, target="class", learner="nb", parameters={"m": 1.0}, model="other", holdout=0
            )
            product.train(workspace, asked)
        request = {"dataset": "sky", "where": "outlook = 'rain'"}
        told = product.forget(workspace, ForgetRequest(**request, dry_run=True))
        assert told["would_retrain"] == [] and told["holding"] == ["other@1", "other@2"]
        assert product.forget(workspace, ForgetRequest(**request))["still_holding"] == told["holding"]
        none = product.forget(workspace, ForgetRequest(dataset="sky", where="outlook = 'no such'", dry_run=True))
        assert none["holding"] == []
