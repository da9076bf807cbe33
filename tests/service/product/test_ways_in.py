"""Files of other formats and folders with columns, by the product, the command line and REST."""

import datetime
import json
import os

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from service import product
from service.product.datasets.data_sources import check_data_roots
from service.requests.problems import OutsideRoots
from service.requests.requests import ForgetRequest
from service.settings import Settings
from tests.service.asking import finished, model_of, train_job, training
from tests.support.cli import fewpass

WRITERS = {
    "csv": lambda table, path: table.to_pandas().to_csv(path, index=False),
    "csv.gz": lambda table, path: table.to_pandas().to_csv(path, index=False),
    "jsonl": lambda table, path: table.to_pandas().to_json(path, orient="records", lines=True),
    "feather": lambda table, path: table.to_pandas().to_feather(path),
    "orc": lambda table, path: table.to_pandas().to_orc(path),
}


def rows_of(day, n_rows=400):
    rng = np.random.default_rng(day)
    y = rng.integers(0, 2, n_rows)
    return pa.table(
        {
            "user": rng.integers(0, 9, n_rows),
            "town": np.array(["bern", "kiel", "rome"])[(rng.integers(0, 2, n_rows) + y) % 3],
            "size": np.round(rng.normal(y, 1.0), 2),
            "class": np.array(["no", "yes"])[y],
        }
    )


def request_of(folder, model="daily", **more):
    asked = {"parameters": {"k": 1}, "columns": {"user": "drop"}, "update": True, "holdout": 0}
    return training(folder, model, "kdb", **(asked | more))


def lists_of(model):
    return {name: array.tolist() for name, array in model.to_arrays()[1].items()}


@pytest.mark.parametrize("ending", WRITERS)
def test_an_update_of_other_formats_is_as_exact_as_of_parquet(ending, workspace, tmp_path):
    """New files alone are counted; a file whose content changed, with its size and time kept, is counted again."""
    data = tmp_path / "data"
    data.mkdir()
    for day in (0, 1):
        WRITERS[ending](rows_of(day), data / f"{day}.{ending}")
    product.train_model_version(workspace, request_of(data))
    WRITERS[ending](rows_of(2), data / f"2.{ending}")
    _, passes = product.train_and_report_passes(workspace, request_of(data, cuts="kept"))
    assert {each["n_files_read"] for each in passes if each["stage"] == "counting pairs"} == {1}
    pq.write_table(pa.concat_tables(map(rows_of, range(3))), tmp_path / "all.parquet")
    updated = model_of(product.train_model_version(workspace, request_of(data, cuts="fresh")))
    for name, uri in {"fresh": data, "parquet": tmp_path / "all.parquet"}.items():
        fresh = model_of(product.train_model_version(workspace, request_of(uri, model=name, update=False)))
        assert lists_of(updated) == lists_of(fresh)
        assert updated.schema == fresh.schema or name == "parquet"  # which has other types for the same values
    if ending in ("csv", "jsonl"):
        path = data / f"0.{ending}"
        before = path.stat()
        path.write_text(path.read_text().replace("bern", "kiel", 7))
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_size == before.st_size
        _, passes = product.train_and_report_passes(workspace, request_of(data, cuts="kept"))
        assert all(each["n_files_read"] for each in passes)


def test_rows_of_a_partitioned_table_are_forgotten_by_their_folder(workspace, tmp_path):
    table = pa.concat_tables(
        [rows_of(day).append_column("day", pa.array([datetime.date(2026, 1, 1 + day)] * 400)) for day in range(3)]
    )
    by_day = pads.partitioning(pa.schema([("day", pa.date32())]), flavor="hive")
    pads.write_dataset(table, tmp_path / "data", format="parquet", partitioning=by_day)
    version = product.train_model_version(workspace, request_of(tmp_path / "data"))
    schema = model_of(version).schema
    assert "day" in [column.name for column in (*schema.attributes, *schema.left_out)]
    done = product.forget_rows(workspace, ForgetRequest(model="daily", where="day = DATE '2026-01-02'"))
    assert done["n_rows"] == 400 and [proof["is_equal"] for proof in done["proofs"]] == [True]
    newest = product.train_model_version(workspace, request_of(tmp_path / "data", window="1d", timestamp="day"))
    assert newest.n_rows == 400


def test_the_command_line_reads_csv_and_tells_what_it_leaves_out(tmp_path):
    frame = rows_of(0).to_pandas().assign(zip=lambda rows: "0" + (rows["user"] % 3).astype(str))
    frame.assign(customer=[f"c{i}" for i in range(400)]).to_csv(tmp_path / "a.csv", index=False)
    workspace = tmp_path / "workspace"
    data = [tmp_path / "a.csv", "-t", "class", "--columns", json.dumps({"zip": {"order": ["00", "01", "02"]}})]
    done = fewpass("train", *data, "-n", "m", "-l", "kdb", workspace=workspace)
    assert "Column 'customer' is left out: nearly unique (" in " ".join(done.stderr.split())
    schema = json.loads(fewpass("schema", *data, "--json", workspace=workspace).stdout)
    assert {each["name"]: each["values"] for each in schema["attributes"]}["zip"] == ["00", "01", "02"]
    frame.drop(columns="class").to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    frame.drop(columns="class").to_csv(tmp_path / "new.csv", index=False)
    scored = []
    for name in ("new.jsonl", "new.csv"):
        fewpass("predict", "m", tmp_path / name, "-o", tmp_path / f"{name}.parquet", workspace=workspace)
        scored.append(pq.read_table(tmp_path / f"{name}.parquet"))
    assert scored[0].num_rows == 400 and scored[0].equals(scored[1])
    metrics = json.loads(fewpass("evaluate", "m", tmp_path / "a.csv", "--json", workspace=workspace).stdout)
    assert metrics["n_test_rows"] == 400
    failed = fewpass("train", tmp_path / "a.xlsx", "-t", "class", "-n", "m", workspace=workspace, code=1)
    assert "no such file" in failed.stderr


def test_rest_reads_csv_and_its_jobs_tell_what_they_leave_out(site, tmp_path):
    table = pq.read_table(site.train).to_pandas()
    table.assign(note=[f"n{i}" for i in range(len(table))]).to_csv(tmp_path / "a.csv.gz", index=False)
    result = finished(site.client, train_job(tmp_path / "a.csv.gz", "from-csv"))
    (warning,) = [told for told in result["warnings"] if "'note'" in told]
    assert warning.startswith("Column 'note' is left out: nearly unique (")
    answer = site.client.post("/v1/models/from-csv/predict", json={"records": [{"outlook": "sunny"}]})
    assert answer.status_code == 200


def test_rest_registers_a_partitioned_table(site, tmp_path):
    for day in ("2026-01-01", "2026-01-02"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pq.read_table(site.train), tmp_path / f"day={day}" / "part.parquet")
    body = {"name": "by-day", "uris": [str(tmp_path)], "target": "class"}
    assert site.client.post("/v1/datasets", json=body).status_code == 201
    schema = site.client.get("/v1/datasets/by-day/schema").json()
    assert "day" in [entry["name"] for entry in [*schema["attributes"], *schema["left_out"]]]


OUTSIDE = ["https://other.example/a.parquet", "http://tables.example/a.parquet", "memory://a.parquet"]
OUTSIDE += ["https://tables.example.evil/a.parquet", "https://tables.example/../a.parquet"]
OUTSIDE += ["https://user@tables.example/set/a.parquet"]


@pytest.mark.parametrize("uri", OUTSIDE)
def test_addresses_outside_the_data_roots_are_refused(uri):
    settings = Settings(data_roots=("https://tables.example/set", "/data"))
    check_data_roots(["https://tables.example/set/a.parquet"], settings)
    with pytest.raises(OutsideRoots, match="server may"):
        check_data_roots([uri], settings)


def test_a_kept_column_of_a_folder_may_have_a_null_partition(tmp_path):
    """Its dictionary has a null among its values, which Parquet cannot store."""
    for place in ("north", "__HIVE_DEFAULT_PARTITION__", "007"):
        folder = tmp_path / "rows" / f"region={place}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"a": ["u", "v"] * 20, "y": ["p", "q"] * 20}), folder / "a.parquet")
    rows, answers, workspace = tmp_path / "rows", tmp_path / "answers.parquet", tmp_path / "workspace"
    fewpass("train", rows, "-t", "y", "-l", "nb", "-n", "regions", "--holdout", "0", workspace=workspace)
    fewpass("predict", "regions", rows, "--keep", "region", "-o", answers, workspace=workspace)
    assert pq.read_table(answers)["region"].to_pylist() == ["007"] * 40 + [None] * 40 + ["north"] * 40
