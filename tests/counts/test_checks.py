"""Counts that no rows have are refused where a pass ends, and where they are read."""

import numpy as np
import pyarrow as pa
import pytest

from learners import Source, collect
from learners.counts.distinct_rows import DistinctRows
from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.multi_view_counts import Viewed
from learners.counts.pairwise import PairwiseCounts
from learners.errors import InvalidCounts
from learners.passes.statistic import Together
from learners.schema.encoding.column_views import Views
from tests import laws, strategies

SIZES = (3, 5, 70, 2)


def counted(make, n_classes=3):
    schema = strategies.schema_of(SIZES, n_classes)
    return laws.updated(make(schema), [strategies.chunk_of(seed, schema, 300) for seed in range(2)])


def spoiled_cell(counts):
    counts.counts[0] += 1


def spoiled_class(counts):
    """Rows that moved to another class: the sums over all classes are right."""
    cell = int(np.flatnonzero(counts.counts.reshape(-1, 3)[:, 0])[0]) * 3
    counts.counts[cell] -= 1
    counts.counts[cell + 1] += 1


def spoiled_margin(counts):
    counts.margins[1][0, 0] -= 10_000


def spoiled_rows(counts):
    counts.n_rows += 1


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (spoiled_cell, "'a0' and 'a1'"),
        (spoiled_class, "'a0' and 'a1'"),
        (spoiled_margin, "'a1'"),
        (spoiled_rows, "601"),
    ],
)
def test_pairs_that_no_rows_have(spoil, named):
    counts = counted(PairwiseCounts)
    counts.check()
    spoil(counts)
    with pytest.raises(InvalidCounts, match=f"'counting pairs' is inconsistent: .*{named}"):
        counts.check()
    with pytest.raises(InvalidCounts, match="is inconsistent"):
        Together(counts.empty(), counts).check()


def test_stored_counts_that_no_rows_have():
    pairs = counted(PairwiseCounts)
    spoiled_cell(pairs)
    families = counted(lambda schema: FamilyCounts(schema, [Family(2, (1, 0))]))
    table = families.to_arrow()
    spoiled = table.set_column(2, "count", pa.array(np.append(table["count"].to_numpy()[:-1], -5)))
    for counts, stored in ((pairs, pairs.to_arrow()), (families, spoiled)):
        with pytest.raises(InvalidCounts, match="is inconsistent"):
            counts.from_arrow(stored)


@pytest.mark.parametrize("change", [1, -10_000])
def test_families_that_no_rows_have(change):
    counts = counted(lambda schema: FamilyCounts(schema, [Family(2, (1, 0)), Family(3)]))
    counts._cells[0].add(np.array([4]), np.array([change]))
    for read in (counts.cells, counts.paths, lambda index: list(counts.blocks(index))):
        with pytest.raises(InvalidCounts, match="'counting families' is inconsistent: the table of 'a2'"):
            read(0)
        read(1)


def test_distinct_rows_that_no_rows_have():
    schema = strategies.schema_of(SIZES, 0)
    counts = laws.updated(DistinctRows(schema), [strategies.chunk_of(0, strategies.schema_of(SIZES, 1), 300)])
    counts.check()
    counts.n_rows += 1
    with pytest.raises(InvalidCounts, match="301"):
        counts.check()


def test_a_pass_ends_with_the_check():
    class Wrong(PairwiseCounts):
        def empty(self):
            return Wrong(self.schema)

        def update(self, rows):
            super().update(rows)
            self.counts[0] -= 5

    schema = strategies.schema_of(SIZES, 3)
    table = strategies.table_of(schema, [strategies.chunk_of(0, schema, 300)])
    views = Views(schema)
    for statistic in (Wrong(schema), Viewed(views, lambda own: Wrong(own.schema))):
        with pytest.raises(InvalidCounts, match="is inconsistent"):
            collect(statistic, Source.of_table(table))
