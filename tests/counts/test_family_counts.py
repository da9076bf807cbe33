"""Family counts against counting row by row."""

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.counts import family_counts as family_module
from learners.counts import sparse_counts
from learners.counts.family_counts import Family, FamilyCounts, empty_family_tables
from learners.errors import FamilyTooLarge
from learners.passes.memory import MemoryLimit
from tests import laws, strategies
from tests.naive.counts import family_counts


def assert_equals_naive(counted, parts):
    chunk = strategies.joined(parts)
    assert counted.n_rows == chunk.n_rows
    assert counted.class_counts.tolist() == np.bincount(chunk.y, minlength=counted.schema.n_classes).tolist()
    for index, family in enumerate(counted.families):
        y, parents, x, counts = counted.cells(index)
        cells = zip(y.tolist(), map(tuple, parents.tolist()), x.tolist(), strict=True)
        found = dict(zip(cells, counts.tolist(), strict=True))
        paths, values, same_counts = counted.paths(index)
        assert np.array_equal(paths, np.column_stack([y, parents]))
        assert (values.tolist(), same_counts.tolist()) == (x.tolist(), counts.tolist())
        assert found == family_counts(chunk.x, chunk.y, family.attribute, family.parents)
        assert list(found) == sorted(found), "cells are in the order of the context tree's leaves"


@st.composite
def families_and_chunks(draw):
    schema, parts = draw(strategies.chunk_lists())
    families = []
    for attribute in range(schema.n_attributes):
        others = [a for a in range(schema.n_attributes) if a != attribute]
        parents = draw(st.lists(st.sampled_from(others), unique=True, max_size=3)) if others else []
        families.append(Family(attribute, tuple(parents)))
    return schema, families, parts


@pytest.mark.parametrize("dense_cells", [0, 50, 1 << 20], ids=["sparse", "both", "dense"])
@given(drawn=families_and_chunks())
def test_equal_counting_row_by_row(dense_cells, drawn):
    schema, families, parts = drawn
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(family_module, "DENSE_CELLS", dense_cells)
        patch.setattr(family_module, "MAX_MATCHED_CELLS", min(dense_cells, 64))  # those that match are dense
        assert_equals_naive(laws.updated(FamilyCounts(schema, families), parts), parts)


FAMILIES = [Family(0, (1, 2)), Family(1), Family(2, (1,)), Family(3, (0, 2, 1))]
MIXED = FamilyCounts(strategies.schema_of((5, 70, 3, 9), 3), FAMILIES)


def test_the_routes_agree_bit_for_bit(monkeypatch):
    parts = [strategies.chunk_of(seed, MIXED.schema, 3000) for seed in range(6)]
    dense = laws.updated(MIXED, parts)
    monkeypatch.setattr(family_module, "DENSE_CELLS", 0)
    monkeypatch.setattr(family_module, "MAX_MATCHED_CELLS", 0)
    few, sparse = laws.updated(MIXED, [parts[0].rows(slice(20))]), laws.updated(MIXED, parts)
    assert all(cells.sparse is not None for cells in sparse._cells)
    monkeypatch.undo()
    assert dense.to_arrow().equals(sparse.to_arrow())
    # A statistic that was stored by one route is read by the other, and those of both routes add up and subtract.
    twice, more = laws.merged(dense, dense), laws.merged(dense, few)
    for ours in (dense, sparse):
        assert laws.merged(ours, ours.from_arrow(sparse.to_arrow())) == twice
        for first, second, total in ((ours, dense, twice), (ours, sparse, twice), (ours, few, more), (few, ours, more)):
            added = deepcopy(first)
            added.merge(second)
            assert added == total
            added.subtract(second)
            assert added == first


@pytest.mark.parametrize("block_cells", [1, 7, 1 << 18])
def test_paths_of_a_family_that_lies_in_files(block_cells, monkeypatch, tmp_path):
    schema = strategies.schema_of((40, 40, 40), 2)
    parts = [strategies.chunk_of(seed, schema, 60) for seed in range(3)]
    monkeypatch.setattr(family_module, "DENSE_CELLS", 0)
    monkeypatch.setattr(family_module, "memory_limit", lambda: MemoryLimit(1, tmp_path))
    monkeypatch.setattr(sparse_counts, "BLOCK_CELLS", block_cells)
    empty = FamilyCounts(schema, [Family(0, (1, 2))])
    # Each goes to a file, as there is memory for none.
    counts = laws.merged(*(laws.updated(empty, [part]) for part in parts))
    held = counts._cells[0].sparse
    assert held.files and not held.runs
    assert_equals_naive(counts, parts)
    counts.subtract(counts.from_arrow(counts.to_arrow()))
    assert [column.size for column in counts.paths(0)] == [0, 0, 0]


def test_tables_widen_where_rows_outgrow_32_bits(monkeypatch):
    parts = [strategies.chunk_of(seed, MIXED.schema, 300) for seed in range(4)]
    narrow = laws.updated(MIXED, parts)
    monkeypatch.setattr(family_module, "MOST_SHORT", 700)  # reached by updates, by merging, and by what is stored
    merged = laws.merged(*(laws.updated(MIXED, half) for half in (parts[:2], parts[2:])))
    for wide in (laws.updated(MIXED, parts), merged):
        assert wide == narrow
        assert {cells.dense.dtype for cells in wide._cells} == {np.dtype(np.int64)}
    read = narrow.from_arrow(narrow.to_arrow())
    assert read == narrow
    read._cells[0].add(np.array([0, 3]), np.array([1 << 40, 2]))
    assert read._cells[0].distinct().counts.max() >= 1 << 40


def test_more_values_than_fit_a_word_times_classes_and_summing_out_the_last_parents():
    """The matching route serves up to 64 cells, scattered increments the rest; both at once here."""
    schema = strategies.schema_of((2, 12, 13, 255, 256), 5)
    parts = [strategies.chunk_of(seed, schema, n) for seed, n in enumerate((1, 63, 64, 8200))]
    assert_equals_naive(laws.updated(FamilyCounts(schema, [Family(a) for a in range(5)]), parts), parts)
    counted = laws.updated(FamilyCounts(schema, [Family(2, (1, 0)), Family(0, (1,))]), parts)
    assert_equals_naive(counted.only([Family(2, (1,)), Family(0), Family(2, (0,))]), parts)


def test_a_family_that_63_bits_cannot_number_is_refused_by_name():
    schema = strategies.schema_of((60_000,) * 4, 5)
    with pytest.raises(FamilyTooLarge, match=r"'a3' with parents 'a0', 'a1', 'a2' .*smaller k"):
        FamilyCounts(schema, [Family(3, (0, 1, 2))])
    FamilyCounts(schema, [Family(3, (0, 1))])


def test_sparse_families_share_half_of_what_dense_tables_leave(tmp_path):
    whole = MemoryLimit(8 * 80_000, tmp_path)
    for sizes, n_bytes in (([10**9] * 4, 10_000), ([1000, 1000, 10**9, 10**9], (80_000 - 2 * 8 * 1000) // 4)):
        assert empty_family_tables(sizes, whole)[-1].sparse.limit.n_bytes == n_bytes
    tables = empty_family_tables([1000, 1000, 5000, 10**9], whole)
    assert [cells.dense is not None for cells in tables] == [True, True, False, False]
