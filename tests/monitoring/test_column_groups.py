"""Columns that come some at a time give the same counts as whole rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from learners import Source, collect
from learners.errors import SchemaError
from learners.monitoring import count_layout, served_counts
from learners.monitoring.count_layout import Watched
from learners.monitoring.served_counts import ServedCounts
from learners.passes import engine
from tests.monitoring import problems


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """So that rows begin and end within blocks and groups."""
    monkeypatch.setattr(served_counts, "BLOCK_ROWS", 300)
    monkeypatch.setattr(count_layout, "GROUPED", 2)


class LargeSizes:
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
def test_columns_by_themselves_count_as_whole_rows_do(tmp_path, monkeypatch, one_in):
    table = problems.rows(3000, 5)
    strange = pa.array(np.where(np.arange(3000) % 9, table["town"].to_numpy(zero_copy_only=False), "oslo"))
    pq.write_table(table.set_column(2, "town", strange), tmp_path / "rows.parquet", row_group_size=1100)
    alike(Source.open(str(tmp_path / "rows.parquet")), monkeypatch, one_in)


def test_absent_columns_are_absent_in_every_row(tmp_path, monkeypatch):
    pq.write_table(problems.rows(700, 6).drop_columns(["town", "weight"]), tmp_path / "rows.parquet")
    source = Source.open(str(tmp_path / "rows.parquet"))
    names = Watched(problems.model()).names
    assert counts_of(source).block("statuses")[names.index("town"), 0] == 700
    alike(source, monkeypatch)


def test_conditions_choose_the_same_rows_of_every_column(tmp_path, monkeypatch):
    pq.write_table(problems.rows(2000, 7), tmp_path / "rows.parquet", row_group_size=900)
    source = Source.open(str(tmp_path / "rows.parquet"))
    chosen = source.restricted({0: [LargeSizes()]})
    assert 0 < counts_of(chosen).n_rows < 2000
    alike(chosen, monkeypatch)


def test_a_column_of_another_type_is_named_with_its_file(tmp_path):
    table = problems.rows(50, 8)
    pq.write_table(table.set_column(0, "size", pa.array(["big"] * 50)), tmp_path / "rows.parquet")
    with pytest.raises(SchemaError, match=r"rows\.parquet: Column 'size' holds string, but the model needs numbers"):
        counts_of(Source.open(str(tmp_path / "rows.parquet")))
