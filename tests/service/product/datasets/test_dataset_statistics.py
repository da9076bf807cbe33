"""Which file is which: a rewritten one is another one, whatever it has kept; and no new file reorders the columns."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners.passes.sources.parquet import BLOCK_BYTES, SAMPLED_BLOCKS
from learners.passes.sources.source import Source, file_identity
from service import product
from service.jobs.steps import Run, ignore_report
from service.product.datasets.dataset_statistics import source_with_verified_hashes, statistics_ledger
from service.requests.requests import DatasetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.errors import CorruptFile
from storage.models.compiled import map_compiled
from tests.faults.forker import digest_of
from tests.service.asking import job_at_end, model_of
from tests.service.cli.test_cli import fewpass

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


def asked(data, **more):
    """Of nominal columns: of these an update equals any training from scratch, cut points of numbers are kept."""
    plain = {"uris": [str(data)], "target": "class", "learner": "kdb", "model": "m", "parameters": {"m": 1.0}}
    columns = {"a_filler": "nominal"} if "large" in data.name else {}
    return TrainRequest(**(plain | {"update": True, "holdout": 0, "columns": columns} | more))


def bits(version):
    return digest_of(*map_compiled(version.arrow_path))


def flipped(before, row):
    """The table with another class in one row; the file stays as long, as both classes occur on."""
    classes = before["class"].to_pylist()
    other = next(i for i in range(row + 1, len(classes)) if classes[i] != classes[row])
    classes[row], classes[other] = classes[other], classes[row]
    return before.set_column(before.schema.get_field_index("class"), "class", pa.array(classes))


def test_a_small_file_that_keeps_size_time_and_footer_is_another_file(tmp_path, data):
    with workspace_in(tmp_path / "w") as workspace:
        product.train_model_version(workspace, asked(data))
        rewrite(data / "0.parquet", flipped(table(0), 3))
        updated = product.train_model_version(workspace, asked(data))
        assert bits(updated) != bits(product.find_version(workspace, "m@1"))
        with workspace_in(tmp_path / "fresh") as fresh:
            assert bits(updated) == bits(product.train_model_version(fresh, asked(data)))


def large(tmp_path):
    """A file with more bytes than are sampled, and bytes between two blocks."""
    n = 40_000
    filler = pa.array(np.arange(n) % 7)
    folder = tmp_path / "large"
    folder.mkdir()
    rows = table(5, n, a_filler=filler)
    pq.write_table(rows, folder / "0.parquet", **PLAIN)
    pq.write_table(table(6, 100, a_filler=filler[:100]), folder / "1.parquet", **PLAIN)
    assert (folder / "0.parquet").stat().st_size > 2 * SAMPLED_BLOCKS * BLOCK_BYTES
    return folder, rows


def n_before(rows):
    """Numbers of eight bytes before the second sampled block."""
    return rows.nbytes // SAMPLED_BLOCKS // 2 // 8


def with_two_swapped(rows):
    """The first column with two values changed, behind the first sampled block and before the second."""
    numbers, classes = rows["a_filler"].to_numpy().copy(), rows["class"].to_numpy(zero_copy_only=False)
    place = next(i for i in range(BLOCK_BYTES // 4, n_before(rows)) if classes[i] != classes[i + 1])
    numbers[place : place + 2] = numbers[place + 1], numbers[place]
    return rows.set_column(0, "a_filler", pa.array(numbers))


def test_a_large_file_is_known_by_a_sample_and_verified_by_all_its_bytes(tmp_path):
    folder, rows = large(tmp_path)
    with workspace_in(tmp_path / "w") as workspace:
        product.train_model_version(workspace, asked(folder, verify=True))
        before = Source.open(folder).files[0]
        rewrite(folder / "0.parquet", with_two_swapped(rows))
        assert file_identity(Source.open(folder).files[0]) == file_identity(before), "no sampled block has changed"
        updated, passes = product.train_and_report_passes(workspace, asked(folder, verify=True))
        assert bits(updated) != bits(product.find_version(workspace, "m@1"))
        with workspace_in(tmp_path / "fresh") as fresh:
            assert bits(updated) == bits(product.train_model_version(fresh, asked(folder)))
        # From then on the next training knows it, also without verifying: nothing is read again.
        again, passes = product.train_and_report_passes(workspace, asked(folder))
        assert {each["n_files_read"] for each in passes} == {0} and bits(again) == bits(updated)


def test_a_first_verification_trusts_no_statistic_that_was_counted_before(tmp_path):
    folder, rows = large(tmp_path)
    with workspace_in(tmp_path / "w") as workspace:
        product.train_model_version(workspace, asked(folder))
        rewrite(folder / "0.parquet", with_two_swapped(rows))
        updated, passes = product.train_and_report_passes(workspace, asked(folder, verify=True))
        assert {each["n_files_reused"] for each in passes} == {0}
        with workspace_in(tmp_path / "fresh") as fresh:
            assert bits(updated) == bits(product.train_model_version(fresh, asked(folder)))


def test_damaged_notes_of_contents_mean_counting_again(tmp_path, data):
    with workspace_in(tmp_path / "w") as workspace:
        first = product.train_model_version(workspace, asked(data, verify=True))
        (note,) = workspace.layout.models.glob("*/data/contents.json")
        note.write_text(note.read_text().replace("xxh3", "xxh4", 1)[:-9])
        again, passes = product.train_and_report_passes(workspace, asked(data))
        assert {each["n_files_reused"] for each in passes} == {0} and bits(again) == bits(first)


def test_what_was_verified_is_another_identity(tmp_path, data):
    with workspace_in(tmp_path / "w") as workspace:
        ledger = statistics_ledger(workspace, asked(data), Run("local-x", {}, {}, ignore_report))
        source = Source.open(data)
        assert source_with_verified_hashes(source, ledger).files == source.files
        product.train_model_version(workspace, asked(data, verify=True))
        known = source_with_verified_hashes(source, ledger).files
        assert {file_identity(file) for file in known}.isdisjoint(file_identity(file) for file in source.files)


@pytest.mark.parametrize("learner", ["kdb"])
def test_a_new_file_that_sorts_first_does_not_reorder_the_columns(tmp_path, data, learner):
    """Of a registered data set and of an update: the model is that of the same rows in a file ordered as the others."""
    models = {}
    for order in (None, ["x3", "class", "x0", "x2", "x1"]):
        with workspace_in(tmp_path / f"w{order is None}") as workspace:
            product.register_dataset(workspace, DatasetRequest(name="rows", uris=[str(data)], target="class"))
            of_rows = asked(data, uris=None, dataset="rows", learner=learner, model="plain", update=False)
            product.train_model_version(workspace, of_rows)
            product.train_model_version(workspace, asked(data, learner=learner))
            new = table(7).select(order or table(7).column_names)
            pq.write_table(new, data / ".new.parquet", **PLAIN)
            for name in ("+1.parquet", "+2.parquet", "+3.parquet"):  # more than those before
                (data / name).write_bytes((data / ".new.parquet").read_bytes())
                os.utime(data / name, ns=(10**18, 10**18))
            models[order is None] = [
                bits(product.train_model_version(workspace, of_rows)),
                bits(product.train_model_version(workspace, asked(data, learner=learner))),
            ]
            model = model_of(product.find_version(workspace, "plain"))
            assert [attribute.name for attribute in model.schema.attributes][:4] == ["x0", "x1", "x2", "x3"]
        for name in ("+1.parquet", "+2.parquet", "+3.parquet"):
            (data / name).unlink()
    assert models[True] == models[False]


def test_files_alone_have_the_columns_in_the_order_of_most(data):
    pq.write_table(table(7).select(["class", "x3", "x2", "x1", "x0"]), data / "+.parquet")
    assert Source.open(data).arrow_schema.names == table(0).column_names


def test_a_damaged_order_of_columns_is_an_error_by_name(tmp_path, data):
    with workspace_in(tmp_path / "w") as workspace:
        product.register_dataset(workspace, DatasetRequest(name="rows", uris=[str(data)], target="class"))
        path = workspace.layout.dataset_directory("rows") / "columns.json"
        path.write_text(path.read_text().replace('"x1"', '"x9"'))
        with pytest.raises(CorruptFile, match=r"columns\.json"):
            product.train_model_version(workspace, asked(data, uris=None, dataset="rows"))


def test_the_command_line_and_jobs_verify(tmp_path, data, site):
    workspace = tmp_path / "w"
    done = fewpass(
        "train", data, "--target", "class", "--name", "m", "--learner", "nb", "--verify", workspace=workspace
    )
    assert done.returncode == 0, done.stderr
    assert list(workspace.glob("models/m/data/contents.json"))
    train = {"kind": "train", "uris": [str(data)], "target": "class", "learner": "nb", "model": "checked"}
    accepted = site.client.post("/v1/jobs", json={"kind": "refresh", "train": train | {"verify": True}})
    assert accepted.status_code == 202, accepted.text
    job = job_at_end(site.client, accepted.json()["id"])
    assert job["state"] == "succeeded" and job["request"]["train"]["verify"], job
    assert (site.workspace / "models/checked/data/contents.json").exists()
