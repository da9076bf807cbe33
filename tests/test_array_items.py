"""Reading and writing numbers of arrays in kernels, against numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learners.jit import kernel

DTYPES = (np.uint8, np.int32, np.uint64, np.float32, np.float64, np.bool_)


@kernel
def moved(source, i, j, k, target):
    """Two numbers of an array of three axes, one with an unsigned index; the last row of its first plane."""
    target[j, -1 - i] = source[i, j, k]
    target[np.uint8(0), k] = source[-1, np.uint64(j), -1 - k]
    plane = source[0]
    row = plane[-1]
    return source[i][j][k], row[k], row[1:].size


def layouts(cells: np.ndarray) -> list[np.ndarray]:
    """The same numbers, contiguous, and as every second of more numbers."""
    room = np.zeros(tuple(2 * n for n in cells.shape), cells.dtype)
    room[::2, ::2, ::2] = cells
    return [cells, room[::2, ::2, ::2]]


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=25)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(2, 4)),
    at=st.tuples(*[st.integers(-100, 100)] * 3),
    seed=st.integers(0, 9),
)
def test_places_are_those_of_numpy(dtype, shape, at, seed):
    cells = np.random.default_rng(seed).integers(0, 2 if dtype is np.bool_ else 100, shape).astype(dtype)
    i, j, k = (place % size for place, size in zip(at, shape, strict=True))
    n = max(shape)
    for source in layouts(cells):
        for target in (np.zeros((n, n), np.float64), np.zeros((2 * n, 2 * n), np.float64)[::2, ::2]):
            expected = target.copy()
            expected[j, -1 - i] = cells[i, j, k]
            expected[0, k] = cells[-1, j, -1 - k]
            assert moved(source, i, j, k, target) == (cells[i, j, k], cells[0, -1, k], shape[2] - 1)
            assert np.array_equal(target, expected)


def test_negative_places_from_outside_count_from_the_end():
    cells = np.arange(24.0).reshape(2, 3, 4)
    target = np.zeros((4, 4))
    assert moved(cells, -1, 2, -3, target) == (cells[-1, 2, -3], cells[0, -1, -3], 3)
    assert target[2, 0] == cells[-1, 2, -3] and target[0, -3] == cells[-1, 2, 2]
