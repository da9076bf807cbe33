"""Sparse pairs tell the same as whole tables, within a memory limit."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learners.classifiers.structure import k_dependence, tree_augmented
from learners.counts.information import conditional_mutual_information, mutual_information
from learners.counts.pairs.pairwise import PairwiseCounts
from learners.counts.pairs.sparse_pairs import SparsePairs, pair_counts
from learners.passes import memory
from tests import laws, strategies


@given(drawn=strategies.chunk_lists(), width_cost=st.sampled_from([0.0, 2.0]))
def test_information_and_structures_are_those_of_whole_tables(drawn, width_cost):
    schema, parts = drawn
    whole, sparse = (laws.updated(kind(schema), parts) for kind in (PairwiseCounts, SparsePairs))
    if not whole.n_rows:
        return
    for information in (mutual_information, conditional_mutual_information):
        assert np.allclose(information(sparse, width_cost), information(whole, width_cost), rtol=0, atol=1e-12)
    assert k_dependence(sparse, 2, width_cost) == k_dependence(whole, 2, width_cost)
    assert tree_augmented(sparse, width_cost) == tree_augmented(whole, width_cost)


def test_tables_beyond_the_memory_limit_are_sparse(monkeypatch):
    small, large = strategies.schema_of((3, 4, 2), 3), strategies.schema_of((300, 300, 300), 100)
    limit = memory.MemoryLimit(memory.MIN_BYTES, memory.memory_limit().directory)
    monkeypatch.setattr(memory, "_limit", limit)
    assert isinstance(pair_counts(small), PairwiseCounts)
    assert isinstance(pair_counts(large), SparsePairs)
    monkeypatch.setattr(memory, "_limit", replace(limit, n_bytes=1 << 40))
    assert isinstance(pair_counts(large), PairwiseCounts)


def test_two_values_in_thousands_of_columns_stay_whole(monkeypatch):
    """There would be millions of sparse tables, each larger than the whole one."""
    monkeypatch.setattr(memory, "_limit", memory.MemoryLimit(memory.MIN_BYTES, memory.memory_limit().directory))
    assert isinstance(pair_counts(strategies.schema_of((2,) * 1000, 2)), PairwiseCounts)
