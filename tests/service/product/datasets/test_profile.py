"""What a data set looks like: counts are those of its rows, without those that are forgotten; the example is registered once."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.errors import UnknownColumn
from service import product
from service.product.datasets.uploads import dataset_upload_path
from service.requests.problems import InvalidRequest
from service.requests.requests import DatasetRequest, ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import InvalidName

ROWS = pa.table(
    {
        "road": ["a", "b", None, "a"] * 50,
        "size": [1.5, 2.5, 3.5, None] * 50,
        "n": [1, 2, 2, 3] * 50,
        "same": ["x"] * 200,
        "class": ["no", "yes", "no", "no"] * 50,
    }
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    pq.write_table(ROWS, folder / "rows.parquet")
    with Workspace(Settings(workspace=folder / "workspace", data_roots=[str(folder)])) as opened:
        for name, target in (("towns", "class"), ("open", None)):
            request = DatasetRequest(name=name, uris=[str(folder / "rows.parquet")], target=target)
            product.register_dataset(opened, request)
        yield opened


def column(told, name):
    return next(each for each in told["columns"] if each["name"] == name)


def test_the_counts_are_those_of_the_rows(workspace):
    told = product.dataset_profile(workspace, "towns")
    assert (told["n_rows"], told["classes"], len(told["rows"])) == (200, ["no", "yes"], 10)
    assert told["rows"][2] == [None, "3.5", "2", "x", "no"]
    road = column(told, "road")
    counts = dict(zip(road["labels"], zip(*road["counts"], strict=True), strict=True))
    assert road["missing"] == 0.25 and counts == {"(missing)": (50, 0), "a": (100, 0), "b": (0, 50)}
    size, n = column(told, "size"), column(told, "n")
    assert size["labels"][0] == "1.5 to 1.667" and size["labels"][-1] == "(missing)" and size["missing"] == 0.25
    assert (n["labels"], n["counts"]) == (["1", "2", "3"], [[50, 50, 50], [0, 50, 0]])
    assert all(sum(map(sum, each["counts"])) == 200 for each in told["columns"])
    assert [each["name"] for each in told["left_out"]] == ["same"]


def test_all_files_are_looked_at_and_rare_values_are_one_bar(tmp_path):
    for day in range(3):
        towns = [f"t{min(i, 40)}" for i in range(4_000)]
        rows = {"day": [f"d{day}"] * 4_000, "town": towns, "class": ["rare", "usual", "usual", "usual"] * 1_000}
        pq.write_table(pa.table(rows), tmp_path / f"{day}.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace", data_roots=[str(tmp_path)])) as opened:
        product.register_dataset(
            opened, DatasetRequest(name="days", uris=[str(tmp_path / "*.parquet")], target="class")
        )
        profile = product.dataset_profile(opened, "days")
    assert profile["classes"][0] == "usual", "the most frequent first"
    assert sorted(column(profile, "day")["labels"]) == ["d0", "d1", "d2"]
    town = column(profile, "town")
    assert town["labels"][0] == "t40" and town["labels"][-1] == "21 others" and len(town["labels"]) == 21
    assert sum(map(sum, town["counts"])) == profile["n_rows"]


def test_any_column_can_be_the_one_to_predict(workspace):
    assert product.dataset_profile(workspace, "open")["classes"] == ["all rows"]
    told = product.dataset_profile(workspace, "open", "class", "ROA")
    assert told["classes"] == ["no", "yes"] and [each["name"] for each in told["columns"]] == ["road"]
    with pytest.raises(UnknownColumn, match="klass"):
        product.dataset_profile(workspace, "open", "klass")


def test_forgotten_rows_are_not_shown(workspace):
    product.forget_rows(workspace, ForgetRequest(dataset="towns", where="road = 'b'"))
    for name in ("towns", "open"):
        assert product.dataset_profile(workspace, name)["n_rows"] == 150, "the same file under another name, too"


def test_the_example_is_written_and_registered_once(workspace, tmp_path):
    first = product.register_example_dataset(workspace)
    assert product.register_example_dataset(workspace).uris == first.uris and first.target == "customer"
    told = product.dataset_profile(workspace, first.name)
    assert told["n_rows"] == pq.read_table(first.uris[0]).num_rows == 4_000
    request = TrainRequest(dataset=first.name, learner="nb", model="example")
    assert product.train_model_version(workspace, request).version == 1


def test_files_go_into_the_first_folder_that_may_be_read(workspace, tmp_path):
    assert dataset_upload_path(workspace, "a", "b.csv").is_relative_to(workspace.settings.data_roots[0])
    for name in ("../b.csv", "a/b.csv", ".b", "", "b\n"):
        with pytest.raises(InvalidRequest, match="is not a valid file name: use letters, digits"):
            dataset_upload_path(workspace, "a", name)
    with pytest.raises(InvalidName, match="1 to 64"):
        dataset_upload_path(workspace, "..", "b.csv")
    elsewhere = Settings(workspace=tmp_path / "w", data_roots=["s3://bucket/tables"])
    with (
        Workspace(elsewhere) as remote,
        pytest.raises(
            InvalidRequest,
            match=r"Uploaded files have no folder: FEWPASS_DATA_ROOTS names none on this machine. Add one, such as",
        ),
    ):
        dataset_upload_path(remote, "a", "b.csv")
    with Workspace(Settings(workspace=tmp_path / "w")) as own:
        assert dataset_upload_path(own, "a", "b.csv") == (tmp_path / "w" / "uploads" / "a" / "b.csv")
