"""Counts beyond memory: the same cells and counts as a dictionary has."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.counts.family_counts import Family, FamilyCounts
from learners.counts.sparse_counts import Run, SparseCells, count_distinct_keys, sum_sparse_runs
from learners.errors import InvalidParameter
from learners.passes import memory
from learners.passes.memory import MemoryLimit, parse_memory_size
from tests import laws, strategies

KEYS = st.lists(st.integers(0, 2**62), max_size=60) | st.lists(st.integers(0, 40), max_size=60)


def as_counter(run):
    return Counter(dict(zip(run.cells.tolist(), run.counts.tolist(), strict=True)))


@given(st.lists(KEYS, max_size=4))
def test_runs_count_and_merge_as_dictionaries_do(lists):
    whole, total = Run(np.empty(0, np.int64), np.empty(0, np.int64)), Counter()
    for keys in lists:
        run = count_distinct_keys(np.array(keys, np.int64), 63)
        assert run.cells.tolist() == sorted(set(keys))
        assert as_counter(run) == Counter(keys)
        whole, total = sum_sparse_runs(whole, run), total + Counter(keys)
    assert as_counter(whole) == total
    gone = count_distinct_keys(np.array(lists[0] if lists else [], np.int64), 63)
    left = sum_sparse_runs(whole, Run(gone.cells, -gone.counts))
    assert as_counter(left) == total - Counter(lists[0] if lists else [])
    assert np.all(left.counts > 0), "what adds up to nothing leaves no trace"


@given(st.lists(st.integers(0, 2**32 - 1), max_size=60) | st.lists(st.integers(0, 40), max_size=60), st.data())
def test_short_and_long_keys_are_counted_alike(keys, data):
    """Keys of up to 32 bits are kept in half of the memory, and sorted by as few digits as they need."""
    n_bits = data.draw(st.integers(max(1, max(keys, default=0).bit_length()), 32))
    short, long = (count_distinct_keys(np.array(keys, kind), n_bits) for kind in (np.uint32, np.int64))
    assert as_counter(short) == as_counter(long) == Counter(keys)
    assert (short.cells.dtype, sum_sparse_runs(short, short).cells.dtype) == (np.uint32, np.int64)
    assert as_counter(sum_sparse_runs(short, long)) == Counter(keys + keys)
    assert short.cells.tolist() == long.cells.tolist() == sorted(set(keys))


@settings(max_examples=8)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_cells=st.sampled_from([50, 70_000, 2**40]),
    n_bytes=st.sampled_from([1, 4096, 1 << 30]),
)
def test_spilled_cells_are_those_of_a_dictionary(tmp_path_factory, seed, n_cells, n_bytes):
    folder = tmp_path_factory.mktemp("spill")
    rng, total = np.random.default_rng(seed), Counter()
    cells, other = (SparseCells(n_cells, MemoryLimit(n_bytes, folder)) for _ in range(2))
    for place, n in ((cells, 2_000), (other, 500), (cells, 1_600), (cells, 10)):
        keys = rng.integers(0, n_cells, n)
        place.room(keys.size)[:] = keys
        total.update(keys.tolist())
    cells.add_counts(other, 1)
    assert as_counter(cells.distinct()) == total
    assert as_counter(cells.distinct()) == total, "asking twice changes nothing"
    cells.add_counts(other, -1)
    total.subtract(as_counter(other.distinct()))
    assert as_counter(cells.distinct()) == Counter({cell: n for cell, n in total.items() if n})
    if n_bytes != 4096:
        assert bool(list(folder.iterdir())) == (n_bytes == 1)
    del cells, other, place
    assert not list(folder.iterdir()), "its files go with the counts"


def test_family_counts_do_not_depend_on_the_memory(tmp_path, monkeypatch):
    schema = strategies.schema_of((300, 300, 300), 2)
    parts = [strategies.chunk_of(seed, schema, 30_000) for seed in range(4)]
    families = [Family(0, (1, 2)), Family(1, (2,)), Family(2)]
    plenty = laws.updated(FamilyCounts(schema, families), parts)
    monkeypatch.setattr(memory, "_limit", MemoryLimit(200_000, tmp_path))
    scarce = laws.updated(FamilyCounts(schema, families), parts)
    assert list(tmp_path.iterdir()), "the counts went to files"
    assert scarce.to_arrow().equals(plenty.to_arrow())
    assert scarce == plenty == scarce.from_arrow(plenty.to_arrow())
    scarce.merge(laws.updated(FamilyCounts(schema, families), parts[:1]))
    scarce.subtract(laws.updated(plenty, parts[:1]))
    assert scarce == plenty


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("64MiB", 2**26), ("1g", 2**30), ("1.5 GB", 3 * 2**29), ("100000000", 10**8), ("2TiB", 2**41)]
)
def test_sizes_are_read(text, n_bytes):
    assert parse_memory_size(text) == n_bytes


@pytest.mark.parametrize("text", ["", "much", "-1g", "10", "1e9", "63M"])
def test_other_sizes_are_refused(text):
    with pytest.raises(InvalidParameter, match="a number of bytes such as 512MiB"):
        parse_memory_size(text)
