"""Distinct rows: counts as GROUP BY has them, in memory and in files, and by a schema that has grown."""

from collections import Counter

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from learners.counts.distinct_rows import DistinctRows
from learners.errors import StatisticMismatch
from learners.passes.memory import memory_limit, set_memory_limit
from learners.schema.schema_growth import schema_code_maps
from tests import laws, strategies


@pytest.fixture
def little_memory(tmp_path):
    """A limit that a few hundred rows exceed."""
    before = memory_limit()
    set_memory_limit(8 * 20_000, tmp_path)
    yield tmp_path
    set_memory_limit(before.n_bytes, before.directory)


def counted(rows):
    return {
        tuple(row): count
        for x, counts in rows.blocks()
        for row, count in zip(x.T.tolist(), counts.tolist(), strict=True)
    }


@given(drawn=strategies.chunk_lists())
def test_every_row_is_counted(drawn):
    schema, parts = drawn
    rows = laws.updated(DistinctRows(schema), parts)
    assert counted(rows) == Counter(tuple(row) for part in parts for row in part.x.T.tolist())
    assert rows.n_distinct == len(counted(rows))


def test_duckdb_counts_the_same():
    schema = strategies.schema_of([300, 3, 1000, 2, 70, 500, 200, 100, 30], 2)
    chunk = strategies.chunk_of(3, schema, 4000, skew=3.0)
    table = pa.table({f"a{i}": column for i, column in enumerate(chunk.x)})
    expected = duckdb.from_arrow(table).query("t", "SELECT *, COUNT(*) FROM t GROUP BY ALL").fetchall()
    assert counted(laws.updated(DistinctRows(schema), [chunk])) == {tuple(row[:-1]): row[-1] for row in expected}


def test_files_take_what_memory_does_not_hold(little_memory):
    schema = strategies.schema_of([50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150], 2)
    parts = [strategies.chunk_of(seed, schema, 600, skew=1.0) for seed in range(4)]
    spilled = laws.updated(DistinctRows(schema), parts)
    assert not spilled.is_in_memory
    assert list(little_memory.rglob("*.run"))
    set_memory_limit(1 << 30)
    whole = laws.updated(DistinctRows(schema), parts)
    assert whole.is_in_memory
    assert spilled == whole
    assert spilled.to_arrow().equals(whole.to_arrow())
    assert len(list(spilled.blocks())) > 10
    assert counted(spilled) == counted(whole)
    set_memory_limit(8 * 20_000, little_memory)
    for empty in (DistinctRows(schema), whole.empty()):
        laws.what_was_added_can_be_subtracted(empty, parts)
        laws.merging_commutes_and_associates(empty, parts)
        laws.arrow_gives_it_back(empty, parts)


def test_rows_are_read_by_a_schema_that_has_grown():
    schema = strategies.schema_of([3, 5, 200], 2, {1})
    grown = strategies.extended(schema)
    chunk = strategies.chunk_of(1, schema, 500)
    maps = schema_code_maps(schema, grown)
    recoded = laws.updated(DistinctRows(schema), [chunk]).recoded(grown, maps)
    expected = np.stack([maps.attributes[i][column] for i, column in enumerate(chunk.x)])
    assert counted(recoded) == Counter(tuple(row) for row in expected.T.tolist())
    back = schema_code_maps(grown, schema)
    assert recoded.recoded(schema, back) == laws.updated(DistinctRows(schema), [chunk])
    other = laws.updated(DistinctRows(grown), [strategies.chunk_of(2, grown, 500)])
    assert other.recoded(schema, back) is None


def test_stored_rows_of_another_schema_are_refused():
    schema, other = strategies.schema_of([3, 4], 2), strategies.schema_of([60_000] * 5, 2)
    with pytest.raises(StatisticMismatch, match="another schema"):
        DistinctRows(schema).from_arrow(DistinctRows(other).to_arrow())
