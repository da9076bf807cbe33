"""Counts of served rows: laws, a naive twin, statuses; columns that come some at a time give the same counts as whole rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners import Source, collect
from learners.errors import SchemaError
from learners.monitoring import count_layout, kernels, served_counts
from learners.monitoring.count_layout import Watched
from learners.monitoring.reference import training_reference
from learners.monitoring.served_counts import (
    BatchRows,
    ColumnRows,
    RecordRows,
    ServedCounts,
    ServedRows,
    served_value_status_counts,
)
from learners.passes import engine
from learners.passes.sources.source import Condition
from learners.schema.encoding.encode import cached_schema_encoder, encode
from learners.schema.encoding.json_records import encode_json_records
from tests import laws, strategies
from tests.monitoring import problems
from tests.naive import monitoring as naive
from tests.naive.counts import family_counts

FEW = settings(max_examples=10, deadline=None)


@pytest.fixture(scope="module", params=["kdb", "eskdb"])
def watched(request):
    return Watched(problems.model(request.param))


def batches(sizes, seed=3):
    batch = strategies.joined(problems.rows(sum(sizes), seed).to_batches())
    return [batch.slice(sum(sizes[:i]), size) for i, size in enumerate(sizes)]


@given(sizes=st.lists(st.sampled_from((1, 2, 63, 257)), min_size=3, max_size=5))
@FEW
def test_slices_obey_the_laws_of_a_statistic(sizes):
    laws.every_law(ServedCounts(Watched(problems.model())), batches(sizes))


def test_order_partition_and_threads_do_not_matter(watched):
    """Real numbers are added in fixed point; only the number of requests is that of the batches."""
    parts = batches([1000] * 3)
    whole, counts = (laws.updated(ServedCounts(watched), own) for own in ([strategies.joined(parts)], parts[::-1]))
    counts.block("rows")[2] = whole.block("rows")[2]
    assert counts == whole
    source = Source.of_table(pa.Table.from_batches(parts))
    assert collect(ServedCounts(watched), source, threads=1) == collect(ServedCounts(watched), source, threads=3)


def test_families_are_those_of_the_naive_twin(watched):
    chunk = encode(problems.rows(500, 7), watched.schema, with_class=False)
    x = watched.recoded(chunk.x)
    counts = ServedCounts(watched)
    counts.add(ServedRows(chunk.x, None, None))
    for i, parents in enumerate(watched.parents):
        own = family_counts(x, np.zeros(500, int), i, parents)
        table = counts.family(i).reshape([watched.sizes[p] for p in parents] + [watched.sizes[i]])
        assert {(0, cell[:-1], cell[-1]): n for cell, n in np.ndenumerate(table) if n} == own


def test_training_rows_counted_anew_are_the_reference_of_training(watched):
    counts = collect(ServedCounts(watched, 50), Source.of_table(problems.rows(20_000, 1)))
    reference = training_reference(watched)
    for i in range(len(watched.sizes)):
        np.testing.assert_array_equal(counts.family(i), reference.family(i))


RECORDS = [
    {"size": 0.5, "weight": None, "town": "bern", "road": "kiel", "other": "p", "noise": 4},
    {"size": 99.0, "weight": float("nan"), "town": "oslo", "road": None},
    {"size": -99.0, "weight": 1e9, "town": None, "other": "x"},
    {"weight": 0.0, "noise": None},
]


def status_counts(x, rows, schema, of=None, **more):
    """Of some rows, or of all."""
    return served_value_status_counts(x, rows, schema.attributes, np.arange(x.shape[1]) if of is None else of, **more)


def test_statuses_are_those_of_the_naive_twin():
    schema = problems.model().schema
    counts = status_counts(encode_json_records(RECORDS, schema).x, RecordRows(RECORDS), schema)
    assert [tuple(row[:5]) for row in counts.tolist()] == naive.statuses(RECORDS, schema.attributes)


def test_records_columns_and_batches_have_the_same_statuses():
    schema = problems.model().schema
    names = [attribute.name for attribute in schema.attributes]
    records = [{name: record.get(name) for name in names} for record in RECORDS]
    columns = {name: [record[name] for record in records] for name in names}
    batch = pa.RecordBatch.from_pydict(columns)
    x = encode(batch, schema, with_class=False).x
    of_records = status_counts(x, RecordRows(records), schema)
    for rows in (ColumnRows(columns), BatchRows(batch)):
        np.testing.assert_array_equal(of_records, status_counts(x, rows, schema))
    of_some = status_counts(x[:, [1, 3]], RecordRows(records[1::2]), schema)
    np.testing.assert_array_equal(of_some, status_counts(x, BatchRows(batch), schema, np.array([1, 3])))


@pytest.mark.parametrize("form", [pa.RecordBatch.from_pydict, pa.table])
def test_all_numbers_of_a_batch_at_once_are_compared_as_one_column_after_the_other(form):
    """With nulls, NaN, whole numbers, and a column as a dictionary, which is read by itself."""
    schema, rng = problems.model().schema, np.random.default_rng(4)
    names = [attribute.name for attribute in schema.attributes]
    size = rng.normal(1, 4, 3000)
    size[::50] = np.nan
    rows = {
        "size": pa.array(size, mask=rng.random(3000) < 0.1),
        "weight": pa.array(rng.integers(-9, 9, 3000)),
        "town": pa.array(rng.choice(["bern", "oslo"], 3000)),
    }
    for columns in (rows, rows | {"weight": rows["weight"].cast(pa.float32()).dictionary_encode()}):
        table = form({name: column for name, column in columns.items() if name in names})
        x = encode(table, schema).x
        singly = status_counts(x, BatchRows(table), schema)
        assert singly[names.index("size"), 3:].min() > 0
        together = status_counts(x, BatchRows(table), schema, encoder=cached_schema_encoder(schema).inputs)
        np.testing.assert_array_equal(together, singly)


def test_predictions_are_added_in_fixed_point():
    p = np.array([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    confidence, sums = np.zeros((2, 20), np.int64), np.zeros(4, np.int64)
    kernels.add_prediction_counts(p, confidence, sums)
    assert confidence[1, 15] == confidence[0, 19] == confidence[0, 10] == 1 == confidence.sum() - 2
    np.testing.assert_allclose(sums / 2**32, [1.75, 1.25, 2.25, 0.5623351446 + 0 + np.log(2)], rtol=1e-9)


@pytest.fixture
def _small(monkeypatch):
    """So that rows begin and end within blocks and groups."""
    monkeypatch.setattr(served_counts, "BLOCK_ROWS", 300)
    monkeypatch.setattr(count_layout, "GROUPED", 2)


class LargeSizes(Condition):
    """A condition on a column that is read for it alone."""

    text, columns = "size > 0.5", ("size",)

    def mask(self, rows, file, fragment, offset):
        return rows.column("size").to_numpy() > 0.5

    def implies(self, text):
        return None


def counts_of(source, one_in=1):
    return collect(ServedCounts(Watched(problems.model()), one_in, source.arrow_schema.names), source, threads=2)


def alike(source, monkeypatch, one_in=1):
    """Both ways, but for the number of batches."""
    gathered_counts = counts_of(source, one_in)
    monkeypatch.setattr(engine, "MOST_GATHERED", 0)
    whole = counts_of(source, one_in)
    assert gathered_counts.n_rows == whole.n_rows > 0
    for counts in (gathered_counts, whole):
        counts.block("rows")[2] = 0
    assert gathered_counts == whole


@pytest.mark.parametrize("one_in", [1, 7])
@pytest.mark.usefixtures("_small")
def test_columns_by_themselves_count_as_whole_rows_do(tmp_path, monkeypatch, one_in):
    table = problems.rows(3000, 5)
    strange = pa.array(np.where(np.arange(3000) % 9, table["town"].to_numpy(zero_copy_only=False), "oslo"))
    pq.write_table(table.set_column(2, "town", strange), tmp_path / "rows.parquet", row_group_size=1100)
    alike(Source.open(str(tmp_path / "rows.parquet")), monkeypatch, one_in)


@pytest.mark.usefixtures("_small")
def test_absent_columns_are_absent_in_every_row(tmp_path, monkeypatch):
    pq.write_table(problems.rows(700, 6).drop_columns(["town", "weight"]), tmp_path / "rows.parquet")
    source = Source.open(str(tmp_path / "rows.parquet"))
    n_absent = counts_of(source).block("statuses")[:, 0].tolist()
    assert n_absent == [700 * (name in ("town", "weight")) for name in Watched(problems.model()).names]
    alike(source, monkeypatch)


@pytest.mark.usefixtures("_small")
def test_conditions_choose_the_same_rows_of_every_column(tmp_path, monkeypatch):
    pq.write_table(problems.rows(2000, 7), tmp_path / "rows.parquet", row_group_size=900)
    source = Source.open(str(tmp_path / "rows.parquet"))
    chosen = source.restricted({0: [LargeSizes()]})
    assert 0 < counts_of(chosen).n_rows < 2000
    alike(chosen, monkeypatch)


@pytest.mark.usefixtures("_small")
def test_a_column_of_another_type_is_named_with_its_file(tmp_path):
    table = problems.rows(50, 8)
    pq.write_table(table.set_column(0, "size", pa.array(["big"] * 50)), tmp_path / "rows.parquet")
    with pytest.raises(SchemaError, match=r"rows\.parquet: Column 'size' holds 'big' \(str\), but .* a number"):
        counts_of(Source.open(str(tmp_path / "rows.parquet")))
