"""Passes on a Dask cluster of this machine's processes."""

import os
import signal

import numpy as np
import pyarrow.parquet as pq
import pytest

from learners import Source, collect, drive, encode
from learners.circuits.streaming import shards
from learners.ensembles import large
from learners.errors import Cancelled, ClusterError, SourceError
from learners.passes import dask_cluster as clusters
from learners.passes.column_summaries import ColumnSummaries
from learners.passes.sources.row_filter import select_newest_rows
from learners.registry import recipes
from learners.schema import Kept
from tests.processes import ended, runs, wait_for
from tests.support.ensembles import fresh
from tests.support.ensembles import schema_of as wide_schema
from tests.support.passes import OVERRIDES, days, same, write

pytest.importorskip("distributed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return days(tmp_path_factory.mktemp("data"), 5)


@pytest.fixture(scope="module")
def cluster():
    with clusters.connect_dask_cluster("local:2") as made:
        yield made


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(clusters, "GROUP_ROWS", 400)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [("nb", {}), ("kdb", {"k": 2}), ("kdb", {"k": 2, "estimator": "hdp-map"}), ("skdb", {"k": 2})],
)
def test_a_cluster_learns_the_same_model(folder, cluster, name, parameters):
    def learner():
        return recipes.learner(name, parameters, "class", None, OVERRIDES)

    reports = []
    model = drive(learner(), Source.open(folder), cluster=cluster, on_progress=reports.append)
    assert same(model, drive(learner(), Source.open(folder)))
    assert reports[-1].rows_done <= reports[-1].rows_total
    assert max(report.rows_done for report in reports) == 3000


def test_a_cluster_learns_the_same_ensembles_of_more_cut_points_than_a_byte_tells_apart(folder, cluster):
    kept, source = Kept(wide_schema(folder)), Source.open(folder)
    for name in ("eskdb", "auto"):
        model = drive(fresh(name, kept), source, cluster=cluster)
        assert same(model, drive(fresh(name, kept), source, threads=3))


def test_a_cluster_learns_the_same_default_of_many_rows(folder, cluster, monkeypatch):
    """The driver alone decides what is drawn; 400 rows are many here, and memory has room for 600 of 3,000."""
    monkeypatch.setattr(large, "LARGE_ROWS", 400)

    def learner():
        memory = large.MEMORY_SHARE * 600 * 32
        return recipes.learner("auto", {"members": 2, "memory": memory}, "class", None, OVERRIDES)

    model = drive(learner(), Source.open(folder), cluster=cluster)
    assert "networks" in model.facts and 400 <= model.facts["drawn_rows"] < 3000
    assert same(model, drive(learner(), Source.open(folder), threads=3))


def test_xgboost_boosts_on_the_workers(folder, cluster):
    """The sums of gradients come in another order there, so probabilities agree to a few digits only."""
    one, many = (
        drive(
            recipes.learner("xgboost", {"rounds": 5, "depth": 3}, "class", None, OVERRIDES),
            Source.open(folder),
            cluster=own,
        )
        for own in (None, cluster)
    )
    assert many.facts["n_rows"] == 3000 and many.facts["class_counts"] == one.facts["class_counts"]
    rows = encode(pq.read_table(folder), one.schema)
    assert np.abs(many.predict_proba(rows) - one.predict_proba(rows)).max() < 0.05


@pytest.mark.parametrize("learning", ["adf", "bmm"])
def test_streams_are_learned_in_a_shard_for_each_worker(folder, cluster, monkeypatch, learning):
    """The same posterior as that of two shards on threads, bit for bit."""
    monkeypatch.setattr(shards, "START_ROWS", 500)

    def learner(**more):
        return recipes.learner("spn", {"states": 3, "learning": learning} | more, "class", None, OVERRIDES)

    many = drive(learner(), Source.open(folder), cluster=cluster)
    assert many.facts["shards"] == 2 and many.posterior.n_rows == 3000
    assert many.posterior == drive(learner(shards=2), Source.open(folder)).posterior
    one = drive(learner(shards=1), Source.open(folder), cluster=cluster)
    assert one.facts["shards"] == 1 and one.posterior == drive(learner(), Source.open(folder)).posterior


def test_conditions_travel_with_the_rows(folder, cluster):
    source = select_newest_rows(Source.open(folder), "36h", "time").source
    assert cluster.collect(ColumnSummaries("class"), source) == collect(ColumnSummaries("class"), source)


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_groups_are_all_rows_once_and_every_worker_has_work_where_rows_are_few(folder, monkeypatch, n_workers):
    source = Source.open(folder)
    for n_rows, most in ((400, 99), (2_000_000, 2 * n_workers)):
        monkeypatch.setattr(clusters, "GROUP_ROWS", n_rows)
        groups = list(clusters.fragment_groups(source, n_workers))
        assert n_workers < len(groups) <= most and sum(group.n_rows for group in groups) == source.n_rows
        assert [b for group in groups for b in group.batches(["user"])] == list(source.batches(["user"]))


def test_a_worker_killed_in_mid_pass_changes_nothing(folder):
    source = Source.open(folder)
    whole = collect(ColumnSummaries("class"), source)
    with clusters.connect_dask_cluster("local:2") as own:
        own.client.wait_for_workers(2)
        victim = next(iter(own.client.run(os.getpid).values()))

        def kill(progress):
            if 0 < progress.rows_done < progress.rows_total and runs(victim):
                os.kill(victim, signal.SIGKILL)

        for _ in range(3):
            assert own.collect(ColumnSummaries("class"), source, on_progress=kill) == whole
        wait_for(lambda: ended([victim]))


def test_errors_of_the_data_come_back_as_they_are_and_a_pass_is_cancelled_between_groups(tmp_path, cluster):
    def cancel(progress):
        raise Cancelled("enough")

    write(tmp_path, 0)
    source = Source.open(tmp_path)
    with pytest.raises(Cancelled, match="enough"):
        cluster.collect(ColumnSummaries("class"), source, on_progress=cancel)
    (tmp_path / "00.parquet").unlink()
    with pytest.raises(SourceError, match="was removed while it was being read"):
        cluster.collect(ColumnSummaries("class"), source)


def test_what_is_no_cluster_is_refused(monkeypatch):
    monkeypatch.setattr(clusters, "CONNECT_S", 0.2)
    none = {"local:0": "with N processes", "local:x": "with N processes", "tcp://127.0.0.1:9": "no Dask scheduler"}
    for address, reason in none.items():
        with pytest.raises(ClusterError, match=reason), clusters.connect_dask_cluster(address):
            pass
