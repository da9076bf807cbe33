"""What a refresh with fresh cut points, and forgetting, must equal: the model that training from scratch gives, schema included, bit for bit."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

from learners.passes.sources.file_formats import FORMATS, file_format_by_extension
from learners.registry import recipes
from service import product
from service.jobs.steps import Run, ignore_report
from service.requests.requests import DatasetRequest, ForgetRequest, TrainRequest
from service.settings import Settings
from service.workspace import Workspace
from storage.models.model_file import read_model_key_values
from tests.service.asking import model_of
from tests.support.passes import same

LEARNERS = {
    "nb": {},
    "tan": {"m": 1.0},
    "kdb": {"k": 2},
    "skdb": {"k": 2},
    "auto": {"members": 2},
    "auto low": {"members": 2, "effort": "low"},
    "eskdb": {"members": 2},
    "xgboost": {"rounds": 5},
    "orders": {},
    "spn": {"structure": "hclt", "states": 2, "passes": 2},
}
WRITE = {
    "parquet": pq.write_table,
    "csv": pcsv.write_csv,
    "jsonl": lambda table, path: path.write_text("".join(f"{json.dumps(row)}\n" for row in table.to_pylist())),
    "arrow": lambda table, path: feather.write_feather(table, path, compression="lz4"),
    "orc": orc.write_table,
}
# Formats reach learners as the same batches: each learner with one of them, each format with one learner, CSV with the default, too.
CASES = [
    *((learner, "parquet") for learner in LEARNERS),
    *(("kdb", form) for form in WRITE if form != "parquet"),
    ("auto", "csv"),
]
STRANGE, CUSTOMER = 987654.25, 7777


def rows_of(day, n=400, moved=0.0):
    """Rows of one day; on the second, 40 are of a customer whose values nobody else has."""
    rng = np.random.default_rng(day)
    late = rng.integers(0, 2, n)
    table = pa.table(
        {
            "origin": rng.choice(["A", "B", "C"], n),
            "distance_km": np.round(rng.gamma(2.0, 400.0, n) + 300.0 * late + moved, 2),
            "hour": rng.integers(0, 24, n),
            "customer": rng.integers(1, 50, n),
            "late": np.array(["no", "yes"])[late],
        }
    )
    if day != 1:
        return table
    theirs = {
        "origin": ["Zanzibar"] * 40,
        "distance_km": [STRANGE] * 40,
        "hour": [99] * 40,
        "customer": [CUSTOMER] * 40,
    }
    return pa.concat_tables([table, pa.table(theirs | {"late": ["yes"] * 40})])


def asked(folder, learner, **more):
    request = {
        "uris": [str(folder)],
        "target": None if learner == "orders" else "late",
        "learner": learner.split()[0],
        "parameters": LEARNERS[learner],
        "model": "m",
    }
    return TrainRequest(**request | {"columns": {"customer": "drop"}, "holdout": 0} | more)


def workspace_at(path):
    return Workspace(Settings(workspace=path, threads=1))


def written(folder, tables, form):
    folder.mkdir(exist_ok=True)
    for day, table in enumerate(tables):
        WRITE[form](table, folder / f"{day}.{form}")
    return folder


def alike(model, other):
    """Whether two models are the same, apart from a note of how rows were chosen, by which circuits go on learning."""
    for each in (model, other):
        each.facts.pop("chosen", None)
    return same(model, other)


def from_scratch(path, folder, learner, **more):
    with workspace_at(path) as here:
        return model_of(product.train_model_version(here, asked(folder, learner, **more)))


def test_the_laws_speak_of_all_learners_and_formats():
    goes_on = {"gibbs"}  # its chains go on from where they stand, so a refresh equals no training from scratch
    assert {learner.split()[0] for learner in LEARNERS} == set(recipes.LEARNERS) - goes_on
    assert {file_format_by_extension(f"a.{form}") for form in WRITE} == set(FORMATS)


@pytest.mark.parametrize(("learner", "form"), CASES)
def test_fresh_cut_points_and_forgetting_give_the_model_of_scratch(learner, form, tmp_path):
    tables = [rows_of(day) for day in range(2)]
    folder = written(tmp_path / "data", tables, form)
    with workspace_at(tmp_path / "here") as here:
        first = product.train_model_version(here, asked(folder, learner, update=True))
        tables.append(rows_of(2, moved=900.0))
        written(folder, tables, form)
        refreshed = product.train_model_version(here, asked(folder, learner, update=True, cuts="fresh"))
        assert alike(model_of(refreshed), from_scratch(tmp_path / "whole", folder, learner))
        assert model_of(refreshed).schema != model_of(first).schema
        done = product.forget_rows(here, ForgetRequest(model="m", where=f"customer = {CUSTOMER}"))
        assert [proof["is_equal"] for proof in done["proofs"]] == [True]
        model = model_of(product.find_version(here, "m@latest"))
    left = [table.filter(pc.not_equal(table["customer"], CUSTOMER)) for table in tables]
    elsewhere = written(tmp_path / "left", left, form)
    assert alike(model, from_scratch(tmp_path / "rest", elsewhere, learner))
    assert "Zanzibar" not in model.schema.to_json() and str(STRANGE) not in model.schema.to_json()


def traces(root):
    """The files below a folder that hold the strange distance, as text or as a number, or the cut point that it makes."""
    needles = [b"987654.25", b"494186.775", np.float64(STRANGE).tobytes(), b"Zanzibar"]
    files = [path for path in root.rglob("*") if path.is_file() and "-wal" not in path.name]
    return [str(path.relative_to(root)) for path in files if any(needle in path.read_bytes() for needle in needles)]


def test_nothing_is_left_of_values_that_only_forgotten_rows_had(tmp_path):
    """Neither in models nor in statistics, schemas or answers, whatever learner had kept them; nothing is learned from them again."""
    folder = written(tmp_path / "data", [rows_of(day) for day in range(3)], "parquet")
    columns = {"customer": "drop"}
    with workspace_at(tmp_path / "here") as here:
        product.register_dataset(here, DatasetRequest(name="rows", uris=[str(folder)], target="late", columns=columns))
        of_data = {"uris": None, "dataset": "rows", "target": None, "columns": {}, "update": True}
        product.train_model_version(here, asked(folder, "kdb", **of_data))
        product.train_model_version(
            here, asked(folder, "nb", **of_data | {"model": "other", "columns": {"hour": "drop"}})
        )
        steps = product.job_steps_by_kind(here)
        (infer,) = steps["schema"].values()
        infer(Run("local-s", {"dataset": "rows"}, {}, ignore_report))
        assert str(STRANGE) in json.dumps(product.dataset_schema(here, "rows"))
        price = product.forget_rows(here, ForgetRequest(dataset="rows", where=f"customer = {CUSTOMER}", dry_run=True))
        assert {each["model"]: each["cut_points_move"] for each in price["prices"]} == {
            "m@1": ["distance_km", "hour"],
            "other@1": ["distance_km"],
        }
        assert {each["n_rows_again"] for each in price["prices"]} == {1240}
        done = product.forget_rows(here, ForgetRequest(dataset="rows", where=f"customer = {CUSTOMER}"))
        assert [proof["is_equal"] for proof in done["proofs"]] == [True, True]
        for version in done["still_holding"]:
            name, _, number = version.partition("@")
            product.delete_version(here, name, int(number))
        assert product.get_dataset(here, "rows").schema_json is None
        infer(Run("local-t", {"dataset": "rows"}, {}, ignore_report))
        assert str(STRANGE) not in json.dumps(product.dataset_schema(here, "rows"))
        for name in ("m", "other"):
            assert str(STRANGE) not in json.dumps(product.version_lineage(here, f"{name}@2"), default=str)
            assert read_model_key_values(product.find_version(here, f"{name}@2").duckdb_path, "provenance")
        kept = product.train_model_version(here, asked(folder, "kdb", **of_data, cuts="kept"))
        assert alike(model_of(kept), model_of(product.find_version(here, "m@2")))
    assert traces(tmp_path / "here") == []
