"""ADF and BMM in shards, on threads; tests/passes/test_dask_cluster.py has those of workers."""

from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, encode
from learners.circuits.streaming import shards
from learners.circuits.streaming.online import StreamingPosterior
from learners.errors import Cancelled, InvalidParameter
from learners.passes.sources.source import Condition
from learners.registry import recipes
from service.product.datasets.dataset_statistics import JobCheckpoints
from tests.circuits.answer_circuits import learned
from tests.naive.shards import merged_counts

N_ROWS, GROUP = 6000, 250


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    hidden = rng.integers(0, 3, N_ROWS)
    x = rng.random((5, N_ROWS)) < np.array([0.1, 0.5, 0.9])[(hidden + np.arange(5)[:, np.newaxis]) % 3]
    return pa.table({f"v{i}": column.astype(np.uint8) for i, column in enumerate(x)})


@pytest.fixture(scope="module")
def folder(table, tmp_path_factory):
    """Three files of row groups of 250 rows."""
    data = tmp_path_factory.mktemp("rows")
    for i in range(3):
        pq.write_table(table.slice(i * 2000, 2000), data / f"{i}.parquet", row_group_size=GROUP)
    return data


@pytest.fixture(autouse=True)
def short_start(monkeypatch):
    monkeypatch.setattr(shards, "START_ROWS", 600)


streamed = partial(learned, threads=2, states=3, learning="bmm")


@pytest.mark.parametrize("projection", ["adf", "bmm"])
@pytest.mark.parametrize("n_shards", [2, 3])
def test_shards_go_on_from_one_start_and_what_they_add_adds_up(folder, table, projection, n_shards):
    """600 rows are learned first; of the other 5,400 each shard has its share, divided between row groups."""
    found = streamed(Source.open(folder), learning=projection, shards=n_shards)
    start = found.posterior
    rows_of = found.posterior.rows_of
    x = rows_of(encode(table, found.schema))
    cuts = {2: [600, 3250, 6000], 3: [600, 2500, 4250, 6000]}[n_shards]
    wanted = merged_counts(StreamingPosterior(start.structure, start.prior, projection), x, cuts, projection)
    assert found.posterior.pseudo_counts().edge == pytest.approx(wanted, rel=1e-9)
    assert found.posterior.n_rows == N_ROWS and found.facts["shards"] == n_shards
    logs = found.log_likelihood(encode(table, found.schema))
    alone = streamed(Source.open(folder), learning=projection).log_likelihood(encode(table, found.schema))
    assert abs(logs.mean() - alone.mean()) < 0.05


def test_threads_change_nothing(folder):
    one, two = (streamed(Source.open(folder), shards=4, threads=threads) for threads in (1, 2))
    assert one.posterior == two.posterior


def test_where_induced_trees_are_certain_shards_learn_what_one_stream_does(folder):
    parameters = {"structure": "chow-liu", "states": None, "learning": "bmm"}
    one, many = streamed(Source.open(folder), **parameters), streamed(Source.open(folder), **parameters, shards=5)
    assert many.posterior.pseudo_counts().parameter == pytest.approx(one.posterior.pseudo_counts().parameter)
    assert many.circuit.leaf_parameters == pytest.approx(one.circuit.leaf_parameters)
    assert (one.facts["shards"], many.facts["shards"]) == (1, 5)


def test_numeric_leaves_add_up_too(tmp_path):
    rng = np.random.default_rng(1)
    numbers = pa.table({"x": rng.normal(50.0, 3.0, 3000), "y": rng.normal(-2.0, 1.0, 3000)})
    pq.write_table(numbers, tmp_path / "rows.parquet", row_group_size=GROUP)
    parameters = {"structure": "chow-liu", "states": None, "n_bins": 2, "leaves": "gaussian"}
    one, many = (streamed(Source.open(tmp_path), **parameters, shards=n) for n in (1, 3))
    rows = encode(numbers, one.schema)
    assert many.log_likelihood(rows).mean() == pytest.approx(one.log_likelihood(rows).mean(), abs=0.01)
    assert many.posterior.n_rows == 3000


class Even(Condition):
    """Rows whose first column is zero."""

    text, columns = "v0 is 0", ("v0",)

    def mask(self, rows, file, fragment, offset):
        return np.asarray(rows.column("v0")) == 0

    def implies(self, text):
        return self if text == self.text else None


def test_chosen_rows_are_learned_once_each(folder, table):
    whole = Source.open(folder)
    source = whole.restricted({i: [Even()] for i in range(3)})
    n_rows = int((table["v0"].to_numpy() == 0).sum())
    assert streamed(source, shards=3, structure="hclt").posterior.n_rows == n_rows


def test_few_rows_are_one_stream(folder, monkeypatch):
    monkeypatch.setattr(shards, "START_ROWS", N_ROWS)
    many = streamed(Source.open(folder), shards=3)
    assert many.facts["shards"] == 1 and many.posterior == streamed(Source.open(folder)).posterior


def test_shards_are_cancelled(folder):
    def cancel(progress):
        if progress.stage == "learning row by row" and progress.rows_done >= 600:
            raise Cancelled("enough")

    with pytest.raises(Cancelled, match="enough"):
        streamed(Source.open(folder), shards=3, on_progress=cancel)


class Killed(BaseException):
    """Nothing catches it."""


@pytest.mark.parametrize("n_shards", [1, 2])
def test_a_stream_that_was_killed_learns_only_what_is_left(folder, tmp_path, monkeypatch, n_shards):
    """The same posterior, bit for bit, and each row is learned once."""
    whole = streamed(Source.open(folder), shards=n_shards, stream_passes=2)
    n_learned, left = [], [0]
    update = StreamingPosterior.update

    def until_killed(self, rows):
        if not left[0]:
            raise Killed("now")
        left[0] -= 1
        update(self, rows)
        n_learned.append(rows.n_rows)

    monkeypatch.setattr(StreamingPosterior, "update", until_killed)

    def run(n_updates):
        left[0] = n_updates
        checkpoints = JobCheckpoints(tmp_path, 0.0)
        return streamed(Source.open(folder), threads=1, checkpoints=checkpoints, shards=n_shards, stream_passes=2)

    for n_updates in (7, 20):
        with pytest.raises(Killed, match="now"):
            run(n_updates)
    assert run(1000).posterior == whole.posterior
    # Of shards, the first 600 rows of each pass that was begun are learned again.
    assert sum(n_learned) == 2 * N_ROWS + (0 if n_shards == 1 else 2 * 600)
    assert list(tmp_path.glob("stream-*"))


def test_a_file_that_vanishes_is_named(folder, table, tmp_path):
    for i in range(2):
        pq.write_table(table, tmp_path / f"{i}.parquet", row_group_size=GROUP)
    source = Source.open(tmp_path)

    def remove(progress):
        if progress.stage == "learning row by row" and progress.rows_done >= 600:
            (tmp_path / "1.parquet").unlink(missing_ok=True)

    with pytest.raises(Exception, match=r"1\.parquet was removed while it was being read"):
        streamed(source, shards=2, threads=1, on_progress=remove)


@pytest.mark.parametrize("n", [0, 5000])
def test_what_is_no_number_of_shards_is_refused(n):
    with pytest.raises(InvalidParameter, match=f"Parameter shards={n} must be a whole number from 1 to 1,024"):
        recipes.learner("spn", {"learning": "bmm", "shards": n}, None)
