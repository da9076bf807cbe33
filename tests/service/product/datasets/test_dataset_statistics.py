"""Which file is which: a rewritten one is another one, whatever it has kept; and no new file reorders the columns."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.passes.sources.parquet import BLOCK_BYTES, SAMPLED_BLOCKS
from learners.passes.sources.source import Source, file_identity
from service import product
from service.requests.requests import DatasetRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.models.compiled import map_compiled
from tests.faults.forker import digest_of
from tests.service.asking import ended_job, model_of, train_job, training
from tests.support.cli import fewpass

PLAIN = {"compression": "none", "use_dictionary": False, "write_statistics": False}


def table(seed, n=400, **first):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    columns = {f"x{j}": pa.array(np.array(["a", "b", "c"])[(y + rng.integers(0, 2, n)) % 3]) for j in range(4)}
    return pa.table({**first, **columns, "class": np.array(["no", "yes"])[y]})


def rewrite(path, changed):
    """Another file under the same name, of the same size, time and footer."""
    before, status = path.read_bytes(), path.stat()
    pq.write_table(changed, path, **PLAIN)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    length = int.from_bytes(before[-8:-4], "little") + 8
    after = path.read_bytes()
    assert after != before and after[-length:] == before[-length:] and len(after) == len(before)
    assert path.stat().st_mtime_ns == status.st_mtime_ns


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for day in range(2):
        pq.write_table(table(day), folder / f"{day}.parquet", **PLAIN)
    return folder


def workspace_in(folder):
    return Workspace(Settings(workspace=folder, threads=1))


@pytest.fixture
def workspace(tmp_path):
    with workspace_in(tmp_path / "w") as workspace:
        yield workspace


def asked(data, model="m", learner="kdb", **more):
    """Of nominal columns: of these an update equals any training from scratch, cut points of numbers are kept."""
    columns = {"a_filler": "nominal"} if "large" in data.name else {}
    plain = {"parameters": {"m": 1.0}, "update": True, "holdout": 0, "columns": columns}
    return training(data, model, learner, **(plain | more))


def bits_anew(data):
    """Of a model that another workspace learns, which has nothing to reuse."""
    with workspace_in(data.parent / "fresh") as fresh:
        return bits(product.train_model_version(fresh, asked(data)))


def bits(version):
    return digest_of(*map_compiled(version.arrow_path))


def flipped(before, row):
    """The table with another class in one row; the file stays as long, as both classes occur on."""
    classes = before["class"].to_pylist()
    other = next(i for i in range(row + 1, len(classes)) if classes[i] != classes[row])
    classes[row], classes[other] = classes[other], classes[row]
    return before.set_column(before.schema.get_field_index("class"), "class", pa.array(classes))


def test_a_small_file_that_keeps_size_time_and_footer_is_another_file(workspace, data):
    first = product.train_model_version(workspace, asked(data))
    rewrite(data / "0.parquet", flipped(table(0), 3))
    updated = product.train_model_version(workspace, asked(data))
    assert bits(first) != bits(updated) == bits_anew(data)


@pytest.fixture
def large(tmp_path):
    """A folder with a file of more bytes than are sampled and bytes between two blocks, and the rows of that file."""
    filler = pa.array(np.arange(40_000) % 7)
    folder = tmp_path / "large"
    folder.mkdir()
    rows = table(5, 40_000, a_filler=filler)
    pq.write_table(rows, folder / "0.parquet", **PLAIN)
    pq.write_table(table(6, 100, a_filler=filler[:100]), folder / "1.parquet", **PLAIN)
    assert (folder / "0.parquet").stat().st_size > 2 * SAMPLED_BLOCKS * BLOCK_BYTES
    return folder, rows


def with_two_swapped(rows):
    """The first column with two values changed, behind the first sampled block and before the second."""
    numbers, classes = rows["a_filler"].to_numpy().copy(), rows["class"].to_numpy(zero_copy_only=False)
    n_before_second = rows.nbytes // SAMPLED_BLOCKS // 2 // 8
    place = next(i for i in range(BLOCK_BYTES // 4, n_before_second) if classes[i] != classes[i + 1])
    numbers[place : place + 2] = numbers[place + 1], numbers[place]
    return rows.set_column(0, "a_filler", pa.array(numbers))


@pytest.mark.parametrize("is_verified_before", [True, False])
def test_a_large_file_is_known_by_a_sample_and_verified_by_all_its_bytes(workspace, large, is_verified_before):
    """A first verification trusts no statistic that was counted before."""
    folder, rows = large
    first = product.train_model_version(workspace, asked(folder, verify=is_verified_before))
    before = Source.open(folder).files[0]
    rewrite(folder / "0.parquet", with_two_swapped(rows))
    assert file_identity(Source.open(folder).files[0]) == file_identity(before), "no sampled block has changed"
    updated, passes = product.train_and_report_passes(workspace, asked(folder, verify=True))
    assert bits(first) != bits(updated) == bits_anew(folder)
    assert is_verified_before or {each["n_files_reused"] for each in passes} == {0}
    # From then on the next training knows it, also without verifying: nothing is read again.
    again, passes = product.train_and_report_passes(workspace, asked(folder))
    assert {each["n_files_read"] for each in passes} == {0} and bits(again) == bits(updated)


def test_damaged_notes_of_contents_mean_counting_again(workspace, data):
    first = product.train_model_version(workspace, asked(data, verify=True))
    (note,) = workspace.layout.models.glob("*/data/contents.json")
    note.write_text(note.read_text().replace("xxh3", "xxh4", 1)[:-9])
    again, passes = product.train_and_report_passes(workspace, asked(data))
    assert {each["n_files_reused"] for each in passes} == {0} and bits(again) == bits(first)


def register(workspace, data):
    product.register_dataset(workspace, DatasetRequest(name="rows", uris=[str(data)], target="class"))


OF_ROWS = {"uris": None, "dataset": "rows", "target": None, "update": False}


def test_a_new_file_that_sorts_first_does_not_reorder_the_columns(tmp_path, data):
    """Of a registered data set and of an update: the model is that of the same rows in a file ordered as the others."""
    names, models = ["+1.parquet", "+2.parquet", "+3.parquet"], []  # more than those before
    for order in (table(7).column_names, ["x3", "class", "x0", "x2", "x1"]):
        with workspace_in(tmp_path / order[0]) as workspace:
            register(workspace, data)
            requests = [asked(data).model_copy(update=OF_ROWS | {"model": "plain"}), asked(data)]
            for request in requests:
                product.train_model_version(workspace, request)
            for name in names:
                pq.write_table(table(7).select(order), data / name, **PLAIN)
                os.utime(data / name, ns=(10**18, 10**18))
            models.append([bits(product.train_model_version(workspace, request)) for request in requests])
            model = model_of(product.find_version(workspace, "plain"))
            assert [attribute.name for attribute in model.schema.attributes][:4] == ["x0", "x1", "x2", "x3"]
        for name in names:
            (data / name).unlink()
    assert models[0] == models[1]


def test_files_alone_have_the_columns_in_the_order_of_most(data):
    pq.write_table(table(7).select(["class", "x3", "x2", "x1", "x0"]), data / "+.parquet")
    assert Source.open(data).arrow_schema.names == table(0).column_names


def test_a_damaged_order_of_columns_is_an_error_by_name(workspace, data):
    register(workspace, data)
    path = workspace.layout.dataset_directory("rows") / "columns.json"
    path.write_text(path.read_text().replace('"x1"', '"x9"'))
    with pytest.raises(CorruptFile, match=r"columns\.json"):
        product.train_model_version(workspace, asked(data).model_copy(update=OF_ROWS))


def test_the_command_line_and_jobs_verify(tmp_path, data, site):
    train = ["train", data, "-t", "class", "-n", "m", "-l", "nb", "--verify"]
    fewpass(*train, workspace=tmp_path / "w")
    assert (tmp_path / "w/models/m/data/contents.json").exists()
    train = {name: value for name, value in train_job(data, "checked", verify=True).items() if name != "kind"}
    job = ended_job(site.client, {"kind": "refresh", "train": train})
    assert job["state"] == "succeeded" and job["request"]["train"]["verify"], job
    assert (site.workspace / "models/checked/data/contents.json").exists()
