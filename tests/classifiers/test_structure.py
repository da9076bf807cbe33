"""Structures against a naive reference, on random chunks and on every public set."""

from functools import lru_cache

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from learners import Source, encode, infer_schema
from learners.classifiers.structure import (
    Structure,
    k_dependence_structure,
    naive_bayes_structure,
    tree_augmented_structure,
)
from learners.counts.information import conditional_mutual_information, mutual_information
from learners.counts.pairwise import PairwiseCounts
from tests import laws, strategies
from tests.conftest import needs_public_sets, public_sets
from tests.naive import structure as naive
from tests.naive.counts import pair_counts
from tests.naive.information import matrices

N_ROWS = 500


def assert_tan_equals_naive(found, with_class, between):
    """The tree is a maximum one, directed from the right root; the very same tree where only one is maximal."""
    n = len(with_class)
    edges = {(min(a, p[0]), max(a, p[0])) for a, p in zip(found.order, found.parents, strict=True) if p}
    reference = naive.maximum_spanning_tree(between)
    assert len(edges) == n - 1
    assert naive.weight(between, edges) == pytest.approx(naive.weight(between, reference), abs=1e-9)
    if naive.is_unique_tree(between, reference):
        assert edges == reference
    root = naive.root_of(with_class)
    assert found.order[0] == root
    parent = naive.directed_from(root, edges)
    assert {a: (p[0] if p else None) for a, p in zip(found.order, found.parents, strict=True)} == parent


def naive_k_dependence(with_class, between, k):
    order, parents = naive.k_dependence(with_class, between, k)
    return Structure(tuple(order), tuple(parents))


@given(strategies.chunk_lists())
def test_of_random_rows_equal_the_naive_reference(drawn):
    schema, parts = drawn
    pairs = laws.updated(PairwiseCounts(schema), parts)
    if not pairs.n_rows:
        return
    chunk = strategies.joined(parts)
    with_class, between = matrices(chunk.x, chunk.y)
    assert_tan_equals_naive(tree_augmented_structure(pairs), with_class, between)
    for k in (1, 2, 5):
        assert k_dependence_structure(pairs, k) == naive_k_dependence(with_class, between, k)


@lru_cache(maxsize=1)
def public_set(path):
    table = pq.read_table(path)
    if table.num_rows > N_ROWS:
        table = table.take(np.random.default_rng(0).permutation(table.num_rows)[:N_ROWS])
    schema = infer_schema(Source.of_table(table), "class")
    return schema, encode(table, schema)


@needs_public_sets
@pytest.mark.parametrize("path", public_sets(), ids=lambda path: path.stem)
def test_of_public_sets_equal_the_naive_reference(path):
    schema, chunk = public_set(path)
    pairs = laws.updated(PairwiseCounts(schema), [chunk])
    sizes = schema.domain_sizes.tolist()
    for i, j in [(0, schema.n_attributes - 1), (1, 2), (schema.n_attributes // 2, 0)]:
        if i != j and max(i, j) < schema.n_attributes:
            counts = pair_counts(chunk.x[i], chunk.x[j], chunk.y, sizes[i], sizes[j], schema.n_classes)
            assert np.array_equal(pairs.table(i, j), counts)
    with_class, between = matrices(chunk.x, chunk.y)
    assert np.allclose(mutual_information(pairs), with_class, rtol=0, atol=1e-12)
    assert np.allclose(conditional_mutual_information(pairs), between, rtol=0, atol=1e-12)
    assert_tan_equals_naive(tree_augmented_structure(pairs), with_class, between)
    for k in (1, 2, 3):
        assert k_dependence_structure(pairs, k) == naive_k_dependence(with_class, between, k)


def test_equal_information_is_ordered_by_column():
    """Copies of a column have equal information; sums in floating point must not decide between them."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 999).astype(np.uint8)
    column = ((y + (rng.random(999) < 0.4)) % 7).astype(np.uint8)
    relabelled = np.array([3, 6, 0, 5, 1, 2, 4], np.uint8)[column]
    schema = strategies.schema_of((7, 7, 7, 7), 3)
    pairs = PairwiseCounts(schema)
    pairs.update(strategies.Chunk(np.array([column, relabelled, column, relabelled]), y))
    assert k_dependence_structure(pairs, 2) == Structure((0, 1, 2, 3), ((), (0,), (0, 1), (0, 1)))
    assert tree_augmented_structure(pairs) == Structure((0, 1, 2, 3), ((), (0,), (0,), (0,)))


def test_a_wide_column_of_chance_is_nobodys_parent():
    """A column of hundreds of values shows information with every other by chance alone: it pays for its width."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000).astype(np.uint8)
    told = ((y + (rng.random(2000) < 0.3)) % 2).astype(np.uint8)
    follows = ((told + (rng.random(2000) < 0.4)) % 2).astype(np.uint8)
    wide = rng.integers(0, 200, 2000).astype(np.uint8)
    pairs = PairwiseCounts(strategies.schema_of((200, 2, 2), 2))
    pairs.update(strategies.Chunk(np.array([wide, told, follows]), y))
    assert k_dependence_structure(pairs, 1) == Structure((1, 0, 2), ((), (1,), (0,)))
    assert k_dependence_structure(pairs, 1, width_cost=2.0) == Structure((1, 2, 0), ((), (1,), (2,)))
    assert tree_augmented_structure(pairs).order == (1, 0, 2)
    assert tree_augmented_structure(pairs, width_cost=2.0).order == (1, 2, 0)


@pytest.mark.parametrize(("order", "parents"), [((0, 1), ((1,), ())), ((0, 0), ((), ())), ((0,), ((0,),))])
def test_cycles_cannot_be_made(order, parents):
    with pytest.raises(ValueError, match="twice, or before one of its parents"):
        Structure(order, parents)


def test_a_prefix_keeps_the_first_attributes_and_parents_and_naive_bayes_has_none():
    structure = Structure((2, 0, 1), ((), (2,), (0, 2)))
    assert structure.prefix(3, 1) == Structure((2, 0, 1), ((), (2,), (0,)))
    assert structure.prefix(2, 5) == Structure((2, 0), ((), (2,)))
    assert naive_bayes_structure(3) == Structure((0, 1, 2), ((), (), ()))
    assert naive_bayes_structure(0) == Structure((), ())
