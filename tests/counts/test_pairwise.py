"""Pairwise counts against counting row by row; sparse pairs tell the same as whole tables, within a memory limit."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.classifiers.structure import k_dependence_structure, tree_augmented_structure
from learners.counts import pairwise
from learners.counts.information import conditional_mutual_information, mutual_information
from learners.counts.pairwise import PairwiseCounts, SparsePairs, empty_pair_counts
from learners.passes import memory
from tests import laws, strategies
from tests.naive.counts import pair_counts as naive_counts


def assert_equals_naive(schema, parts):
    counted = laws.updated(PairwiseCounts(schema), parts)
    x, y = strategies.joined(parts).x, strategies.joined(parts).y
    sizes, n_classes = schema.domain_sizes.tolist(), schema.n_classes
    assert counted.n_rows == y.size
    assert counted.class_counts.tolist() == [int((y == k).sum()) for k in range(n_classes)]
    for i in range(schema.n_attributes):
        margin = naive_counts(x[i], x[i] * 0, y, sizes[i], 1, n_classes)[:, 0]
        assert np.array_equal(counted.margins[i], margin)
        for j in range(i + 1, schema.n_attributes):
            naive = naive_counts(x[i], x[j], y, sizes[i], sizes[j], n_classes)
            assert np.array_equal(counted.table(i, j), naive)
            assert np.array_equal(counted.table(j, i), naive.transpose(1, 0, 2))


@given(strategies.chunk_lists())
def test_equal_counting_row_by_row(drawn):
    assert_equals_naive(*drawn)


@pytest.mark.parametrize("most", [0, 10_000, 1 << 40], ids=["planes at once", "planes later", "never planes"])
@pytest.mark.parametrize("sizes", [(2, 300, 3, 5), (65, 2), (255, 2, 4, 256)])
def test_planes_of_a_mixed_table_wait_for_enough_rows(most, sizes, monkeypatch):
    monkeypatch.setattr(pairwise, "FEW_INCREMENTS", most)
    schema = strategies.schema_of(sizes, 3)
    parts = [strategies.chunk_of(seed, schema, n_rows, 2.0) for seed, n_rows in enumerate((0, 1, 700, 8200, 9000))]
    assert_equals_naive(schema, parts)
    assert PairwiseCounts(schema)._plan.scatter_pairs.size


@pytest.mark.parametrize("limit", [0, 10**9], ids=["increments", "bit-planes"])
@pytest.mark.parametrize("sizes", [(1, 2, 3), (2, 64, 5, 16), (255, 2, 3), (256, 2, 64), (65, 64, 2)])
@pytest.mark.parametrize("n_classes", [1, 2, 5])
def test_both_routes_count_the_same(limit, sizes, n_classes, monkeypatch):
    """Whichever way pairs are counted; the route is forced here."""
    monkeypatch.setattr(pairwise, "MAX_PLANE_CELLS", limit)
    schema = strategies.schema_of(sizes, n_classes)
    parts = [strategies.chunk_of(seed, schema, n_rows, 2.0) for seed, n_rows in enumerate((0, 1, 64, 700, 8200))]
    assert_equals_naive(schema, parts)
    plan = PairwiseCounts(schema)._plan
    assert (plan.scatter_pairs.size == 0) == (limit > 0 and max(sizes) <= pairwise.MAX_PLANE_VALUES)


@pytest.mark.parametrize("n_attributes", [2, 3, 4, 5, 8, 11, 14])
@pytest.mark.parametrize("n_classes", [1, 2, 5])
def test_binary_attributes_are_counted_as_the_others(n_attributes, n_classes):
    """Four attributes at a time, also where a few are left over and where a class has more rows than a block of words."""
    schema = strategies.schema_of((2,) * n_attributes, n_classes)
    assert_equals_naive(schema, [strategies.chunk_of(seed, schema, n, 2.0) for seed, n in enumerate((0, 1, 64, 700))])
    binary, others = PairwiseCounts(schema), PairwiseCounts(schema)
    assert binary._plan.is_binary
    others._plan = replace(others._plan, is_binary=False)
    rows = strategies.chunk_of(4, schema, 40_000, 2.0)
    assert laws.updated(binary, [rows]) == laws.updated(others, [rows])


@pytest.mark.parametrize("most", [0, 100, 1 << 32], ids=["none", "some", "all"])
def test_tables_of_any_size_are_counted(most, monkeypatch):
    """Cells of a table are numbered by 32 bits unless there are more of them; the limit is forced here."""
    monkeypatch.setattr(pairwise, "MAX_NUMBERED_CELLS", most)
    monkeypatch.setattr(pairwise, "MAX_PLANE_CELLS", 0)
    schema = strategies.schema_of((2, 300, 4, 70), 3, {1})
    plan = PairwiseCounts(schema)._plan
    assert (plan.huge_pairs.size, plan.scatter_pairs.size) == {0: (6, 0), 100: (5, 1), 1 << 32: (0, 6)}[most]
    assert_equals_naive(schema, [strategies.chunk_of(seed, schema, n) for seed, n in enumerate((0, 5, 4097))])


@pytest.mark.parametrize("most", [0, 100, 1 << 32], ids=["huge", "both", "scattered"])
def test_tables_widen_where_rows_outgrow_32_bits(most, monkeypatch):
    schema = strategies.schema_of((2, 300, 4, 70), 3, {1})
    parts = [strategies.chunk_of(seed, schema, 300) for seed in range(4)]
    narrow = laws.updated(PairwiseCounts(schema), parts)
    assert narrow.counts.dtype == np.int32
    assert narrow.table(0, 1).dtype == np.int64
    monkeypatch.setattr(pairwise, "MAX_NUMBERED_CELLS", most)
    monkeypatch.setattr(pairwise, "MOST_SHORT", 700)  # reached by updates, by merging, and by reading what is stored
    merged = laws.merged(*(laws.updated(PairwiseCounts(schema), half) for half in (parts[:2], parts[2:])))
    read = narrow.from_arrow(narrow.to_arrow())
    for wide in (laws.updated(PairwiseCounts(schema), parts), merged, read):
        assert wide == narrow
        assert wide.counts.dtype == np.int64
        assert wide.to_arrow().equals(narrow.to_arrow())
    binary = strategies.schema_of((2,) * 5, 2)
    rows = [strategies.chunk_of(seed, binary, 400) for seed in range(2)]
    assert_equals_naive(binary, rows)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), n_classes=st.sampled_from([1, 2, 5, 256]), data=st.data())
def test_pairs_are_counted_by_planes_and_by_increments_side_by_side(seed, n_classes, data):
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 20, 70]), min_size=2, max_size=6))
    schema = strategies.schema_of(tuple(sizes), n_classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairwise, "FEW_INCREMENTS", data.draw(st.sampled_from([-1, 500, 1 << 24])))
        patch.setattr(pairwise, "MAX_PLANE_CELLS", 8)
        assert_equals_naive(schema, [strategies.chunk_of(seed + n, schema, n, 2.0) for n in (0, 1, 300, 5000)])


@given(drawn=strategies.chunk_lists(), width_cost=st.sampled_from([0.0, 2.0]))
def test_information_and_structures_are_those_of_whole_tables(drawn, width_cost):
    schema, parts = drawn
    whole, sparse = (laws.updated(kind(schema), parts) for kind in (PairwiseCounts, SparsePairs))
    if not whole.n_rows:
        return
    for information in (mutual_information, conditional_mutual_information):
        assert np.allclose(information(sparse, width_cost), information(whole, width_cost), rtol=0, atol=1e-12)
    assert k_dependence_structure(sparse, 2, width_cost) == k_dependence_structure(whole, 2, width_cost)
    assert tree_augmented_structure(sparse, width_cost) == tree_augmented_structure(whole, width_cost)


def test_tables_beyond_the_memory_limit_are_sparse(monkeypatch):
    small, large = strategies.schema_of((3, 4, 2), 3), strategies.schema_of((300, 300, 300), 100)
    limit = memory.MemoryLimit(memory.MIN_BYTES, memory.memory_limit().directory)
    monkeypatch.setattr(memory, "_limit", limit)
    assert isinstance(empty_pair_counts(small), PairwiseCounts)
    assert isinstance(empty_pair_counts(large), SparsePairs)
    monkeypatch.setattr(memory, "_limit", replace(limit, n_bytes=1 << 40))
    assert isinstance(empty_pair_counts(large), PairwiseCounts)


def test_two_values_in_thousands_of_columns_stay_whole(monkeypatch):
    """There would be millions of sparse tables, each larger than the whole one."""
    monkeypatch.setattr(memory, "_limit", memory.MemoryLimit(memory.MIN_BYTES, memory.memory_limit().directory))
    assert isinstance(empty_pair_counts(strategies.schema_of((2,) * 1000, 2)), PairwiseCounts)
