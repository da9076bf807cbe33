"""Rows of files, or of a training, against what a version has learned."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service import product
from service.requests.problems import InvalidRequest
from service.settings import Settings
from service.workspace import Workspace
from tests.monitoring import problems
from tests.service.asking import learned
from tests.support.cli import fewpass


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    folder = tmp_path_factory.mktemp("drift")
    pq.write_table(problems.rows(8000, 1), folder / "train.parquet")
    pq.write_table(problems.rows(4000, 2), folder / "same.parquet")
    changed = problems.rows(4000, 3)
    pq.write_table(changed.set_column(0, "size", pa.array(changed["size"].to_numpy() * 100)), folder / "unit.parquet")
    with Workspace(Settings(workspace=folder / "workspace")) as opened:
        learned(opened, folder / "train.parquet", "towns", "kdb")
        learned(opened, folder / "train.parquet", "trees", "xgboost", parameters={"rounds": 2})
        yield opened, folder


def test_drift_names_the_column_whose_unit_changed(workspace):
    opened, folder = workspace
    found = product.file_drift_report(opened, "towns", [str(folder / "unit.parquet")])
    assert found["is_drifting"] and found["causes"][0]["columns"] == ("size",)
    assert (found["model"], found["version"]) == ("towns", 1)
    same = product.file_drift_report(opened, "towns", [str(folder / "same.parquet")])
    assert not same["is_drifting"] and same["rows"]["counted"] == 4000


def test_other_files_may_be_the_reference(workspace):
    opened, folder = workspace
    unit, same = str(folder / "unit.parquet"), str(folder / "same.parquet")
    assert not product.file_drift_report(opened, "towns", [unit], against=[unit])["is_drifting"]
    assert product.file_drift_report(opened, "trees", [unit], against=[same])["causes"][0]["columns"] == ("size",)
    # Without files, trees are compared with the rows that were kept back and scored in training.
    assert product.file_drift_report(opened, "trees", [unit])["causes"][0]["columns"] == ("size",)


def test_the_command_tells_causes_and_may_fail_by_them(workspace):
    opened, folder = workspace
    where = {"workspace": opened.settings.workspace}
    drift = ["drift", "towns", str(folder / "unit.parquet")]
    found = json.loads(fewpass(*drift, "--json", **where).stdout)
    assert found["causes"][0]["kind"] == "out_of_range" and np.isfinite(found["drift_nats"])
    printed = fewpass(*drift, **where).stdout
    assert "1. size has numbers outside the range of training" in " ".join(printed.split())
    assert "out of range +" in printed and "points" in printed and "_" not in printed.replace(str(folder), "")
    assert fewpass(*drift, "--check", **where, code=3).stdout == printed
    assert "no drift" in fewpass("drift", "towns", str(folder / "same.parquet"), "--check", **where).stdout


def test_the_classes_of_a_file_are_compared_and_say_so_everywhere(workspace):
    opened, folder = workspace
    rows, rng = problems.rows(4000, 7), np.random.default_rng(0)
    classes = rows["class"].to_numpy(zero_copy_only=False)
    place, first = rows.column_names.index("class"), sorted(set(classes))[0]

    def written(name, values):
        pq.write_table(rows.set_column(place, "class", pa.array(values)), folder / name)
        return str(folder / name)

    flipped = written("flipped.parquet", np.where(rng.random(4000) < 0.2, first, classes))
    found = product.file_drift_report(opened, "towns", [flipped])
    (cause,) = found["causes"]
    assert found["is_drifting"] and cause["kind"] == "class_mix" and found["class_mix"]["is_counted"]
    share, before = (found["class_mix"][of][0] for of in ("estimate", "reference"))
    assert share == pytest.approx(
        (written_share := np.mean(pq.read_table(flipped)["class"].to_numpy(False) == first)), abs=1e-3
    )
    assert (
        f"class shares have changed: {first} in {100 * written_share:.3g} % of the rows" in cause["words"]
        and share > before
    )
    where = {"workspace": opened.settings.workspace}
    printed = fewpass("drift", "towns", flipped, "--check", **where, code=3).stdout
    assert cause["words"] in " ".join(printed.split())
    bare = str(folder / "bare.parquet")
    pq.write_table(pq.read_table(flipped).drop_columns(["class"]), bare)
    assert not product.file_drift_report(opened, "towns", [bare])["is_drifting"], "the columns are as in training"
    assert not product.file_drift_report(opened, "towns", [flipped], against=[flipped])["is_drifting"]
    assert product.file_drift_report(opened, "trees", [flipped], against=[str(folder / "same.parquet")])["is_drifting"]
    news = written("news.parquet", np.where(rng.random(4000) < 0.05, "other", classes))
    causes = product.file_drift_report(opened, "towns", [news])["causes"]
    assert ("unseen", ("class",)) in [(one["kind"], one["columns"]) for one in causes]
    (whole,) = product.file_drift_report(
        opened, "towns", [written("upper.parquet", np.char.upper(classes.astype(str)))]
    )["causes"]
    assert (whole["kind"], whole["columns"], whole["effect"]) == ("unseen", ("class",), 100.0)
    nulls = written("nulls.parquet", pa.array(classes, mask=rng.random(4000) < 0.5))
    assert not product.file_drift_report(opened, "towns", [nulls])["is_drifting"], "rows without a class do not count"


@pytest.mark.parametrize("end", [np.inf, -np.inf])
def test_the_training_file_itself_raises_no_alarm(end, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 4000)
    x = np.where(rng.random(4000) < 0.3, end, rng.normal(y, 1))
    pq.write_table(pa.table({"x": x, "z": rng.normal(y, 1), "y": np.array(["a", "b"])[y]}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"x": -x, "z": rng.normal(y, 1)}), tmp_path / "other.parquet")
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        learned(workspace, tmp_path / "t.parquet", target="y", holdout=0)
        assert not product.file_drift_report(workspace, "m", [str(tmp_path / "t.parquet")])["is_drifting"]
        found = product.file_drift_report(workspace, "m", [str(tmp_path / "other.parquet")])
    assert any(alarm["kind"] == "out_of_range" for alarm in found["alarms"]), "the other infinity is new"


def test_weighted_rows_are_not_taken_for_rows(tmp_path):
    rng = np.random.default_rng(0)
    y = (rng.random(6000) < 0.05).astype(int)
    rows = pa.table({"a": rng.normal(size=6000) + y, "b": rng.normal(size=6000), "y": np.array(["no", "yes"])[y]})
    pq.write_table(rows.slice(0, 3000), tmp_path / "t.parquet")
    pq.write_table(rows.slice(3000), tmp_path / "same.parquet")
    same = [str(tmp_path / "same.parquet")]
    weights = {"y": {"weight": {"yes": 10}}}
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        learned(workspace, tmp_path / "t.parquet", target="y", columns=weights)
        found = product.file_drift_report(workspace, "m", same)
        assert not found["is_drifting"] and found["causes"] == [] and found["reference"]["name"] == "rows kept back"
        learned(workspace, tmp_path / "t.parquet", "all", target="y", columns=weights, holdout=0)
        with pytest.raises(InvalidRequest, match="weighted ones and no rows kept back"):
            product.file_drift_report(workspace, "all", same)


def test_copied_columns_are_no_drift(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    x = rng.normal(y, 1)
    copies = {"x1": x, "x2": x, "x3": np.where(x > 2, np.inf, x), "k": np.ones(2000)}
    unused = {"a": rng.normal(size=200).repeat(10)}
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        for name, columns in (("copies", copies), ("unused", unused)):
            path = tmp_path / f"{name}.parquet"
            pq.write_table(pa.table(columns | {"y": np.array(["a", "b"])[y]}), path)
            learned(workspace, path, name, target="y", holdout=0)
            if name == "unused":
                with pytest.raises(InvalidRequest, match="uses no column"):
                    product.file_drift_report(workspace, name, [str(path)])
            else:
                assert product.file_drift_report(workspace, name, [str(path)])["alarms"] == []


def test_a_shift_of_a_table_with_few_possible_rows_is_no_repetition(tmp_path):
    """All rows may agree once x has left its range: nothing then tells repeats from drift."""
    rng = np.random.default_rng(0)
    x, c = rng.uniform(0, 100, 4000), rng.choice(["p", "q", "r"], 4000)
    y = np.where(rng.random(4000) < np.where(x > 50, 0.8, 0.2), "a", "b")
    later = pa.table({"x": x[:1000] + 60, "c": c[:1000]})
    with Workspace(Settings(workspace=tmp_path / "workspace")) as workspace:
        for columns in (["x"], ["x", "c"]):
            table = pa.table({"x": x, "c": c, "y": y}).select([*columns, "y"])
            pq.write_table(table, tmp_path / "t.parquet")
            pq.write_table(later.select(columns), tmp_path / "later.parquet")
            pq.write_table(table.slice(0, 1000).drop_columns(["y"]), tmp_path / "same.parquet")
            model = "-".join(columns)
            learned(workspace, tmp_path / "t.parquet", model, target="y", learner="nb", holdout=0)
            found = product.file_drift_report(workspace, model, [str(tmp_path / "later.parquet")])
            assert [one["columns"] for one in found["causes"]][:1] == [("x",)], found["causes"]
            assert not product.file_drift_report(workspace, model, [str(tmp_path / "same.parquet")])["is_drifting"]
            back = product.file_drift_report(
                workspace, model, [str(tmp_path / "t.parquet")], against=[str(tmp_path / "later.parquet")]
            )
            assert not any("broken sensor" in one["words"] for one in back["causes"]), "fewer of them is no fault"
