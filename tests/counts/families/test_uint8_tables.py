"""Counts of a byte a cell: the same cells and counts as a dictionary has."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.counts.cell_kernels import BLOCK_ROWS
from learners.counts.families.uint8_tables import NarrowCells
from learners.counts.sparse_counts import counted, wide
from learners.passes.memory import MemoryLimit
from tests import strategies
from tests.naive.counts import family_counts

# Few cells are counted more than 255 times, and often exactly 256; many are more than one block of a merge.
SIZES = st.sampled_from([1, 3, 8, 20, BLOCK_ROWS + 5, 40_000])


def as_counter(run):
    assert np.all(np.diff(run.cells) > 0), "cells ascend"
    assert np.all(run.counts > 0), "what adds up to nothing leaves no trace"
    return Counter(dict(zip(run.cells.tolist(), run.counts.tolist(), strict=True)))


@settings(max_examples=40)
@given(n_cells=SIZES, seed=st.integers(0, 2**32 - 1), n_keys=st.lists(st.integers(0, 3000), min_size=4, max_size=4))
def test_counts_add_and_subtract_as_those_of_a_dictionary(tmp_path_factory, n_cells, seed, n_keys):
    rng, limit = np.random.default_rng(seed), MemoryLimit(1 << 20, tmp_path_factory.getbasetemp())
    ours, theirs = (NarrowCells(n_cells, limit) for _ in range(2))
    keys = [(rng.beta(0.4, 2.0, n) * n_cells).astype(np.uint32) for n in n_keys]
    for place, part in ((ours, keys[0]), (theirs, keys[1]), (ours, keys[2])):
        place.count_keys(part)
    total = Counter(np.concatenate([keys[0], keys[2]]).tolist())
    assert as_counter(ours.distinct()) == total
    ours.merge(theirs)
    total.update(keys[1].tolist())
    assert as_counter(ours.distinct()) == total
    assert as_counter(theirs.distinct()) == Counter(keys[1].tolist()), "the other stays as it was"
    run = wide(counted(keys[3].copy(), 32))
    ours.add(*run)
    assert as_counter(ours.distinct()) == total + Counter(keys[3].tolist())
    for gone in (run, theirs.distinct()):
        ours.add(gone.cells, -gone.counts)
    assert as_counter(ours.distinct()) == Counter(np.concatenate([keys[0], keys[2]]).tolist())


def test_a_cell_of_exactly_256_rows_is_not_lost(tmp_path):
    cells, other = (NarrowCells(9, MemoryLimit(1 << 20, tmp_path)) for _ in range(2))
    for n in (255, 1, 256, 1):
        cells.count_keys(np.full(n, 8, np.uint32))
        other.count_keys(np.full(n, 8, np.uint32))
    assert as_counter(cells.distinct()) == Counter({8: 513})
    cells.merge(other)
    assert as_counter(cells.distinct()) == Counter({8: 1026})


@given(seed=st.integers(0, 2**32 - 1), n_parents=st.integers(0, 5), n_rows=st.integers(0, 2 * BLOCK_ROWS + 3))
@settings(max_examples=25)
def test_families_are_counted_as_row_by_row(tmp_path_factory, seed, n_parents, n_rows):
    schema = strategies.schema_of((2, 3, 2, 4, 2, 3), 2)
    chunk = strategies.chunk_of(seed, schema, n_rows)
    members = np.arange(n_parents + 1)
    sizes = schema.domain_sizes[members]
    n_cells = schema.n_classes * int(sizes.prod())
    cells = NarrowCells(n_cells, MemoryLimit(1 << 20, tmp_path_factory.getbasetemp()))
    cells.count(chunk, members, sizes)
    numbers, counts = cells.distinct()
    codes = np.array(np.unravel_index(numbers, (schema.n_classes, *sizes)))
    found = {(k, tuple(own[:-1]), own[-1]): n for (k, *own), n in zip(codes.T.tolist(), counts.tolist(), strict=True)}
    assert found == family_counts(chunk.x, chunk.y, n_parents, tuple(range(n_parents)))
