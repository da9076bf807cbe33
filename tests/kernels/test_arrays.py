"""What is in arrays."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learners.kernels.arrays import concatenate_arrays, unique_integers


@given(st.lists(st.integers(-(1 << 62), 1 << 62) | st.integers(0, 5)))
def test_distinct_numbers_and_their_places(numbers):
    given_numbers = np.array(numbers, np.int64)
    distinct, place = unique_integers(given_numbers)
    assert distinct.tolist() == sorted(set(numbers))
    assert distinct[place].tolist() == numbers


@given(st.lists(st.integers(0, 3)), st.integers(0, 2))
def test_stacked_parts_are_one_behind_the_other(sizes, n_columns):
    rng = np.random.default_rng(0)
    parts = [rng.random((size, n_columns)).astype(np.float32) for size in sizes]
    expected = np.concatenate([np.empty((0, n_columns), np.float32), *parts])
    found = concatenate_arrays(parts, np.empty((0, n_columns), np.float32))
    assert parts == []
    assert found.dtype == np.float32
    assert found.tolist() == expected.tolist()
