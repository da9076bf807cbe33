"""Lanes against the plain arithmetic of each row, bit for bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learners.kernels.jit import kernel
from learners.kernels.simd import (
    N_LANES,
    fixed_point_lane_sum,
    load_code_lanes,
    load_integer_lanes,
    load_lanes,
    select_lanes,
    store_integer_lanes,
    store_lanes,
    unchecked_array_item,
)


@kernel
def arithmetic(values, weight):
    """Rows 2 and on of values from the first two."""
    a, b, w = load_lanes(values, 0), load_lanes(values, 1), unchecked_array_item(weight, 1)
    store_lanes(values, 2, w * a + b)
    store_lanes(values, 3, b * w)
    store_lanes(values, 4, a * b)
    store_lanes(values, 5, a / b)
    store_lanes(values, 6, w / b)


@kernel
def read_codes(x, first, n, codes, planes):
    """Codes of sixteen items, and a plane of each value."""
    code = load_code_lanes(x, first, np.float64(n))
    store_integer_lanes(codes, 1, code)
    for a in range(n):
        store_lanes(planes, a, select_lanes((code == np.float64(a)) | (code == np.float64(n)), 1.0, 0.0))


@kernel
def choose(values, codes):
    """Rows 2 and on of values from the first two and codes; returns the whole sum of the first."""
    a, b = load_lanes(values, 0), load_lanes(values, 1)
    store_lanes(values, 2, select_lanes(a >= 0.25, a, 0.0))
    store_lanes(values, 3, select_lanes((a > 0.0) | (b > 2.0), a / b, 0.0))
    store_lanes(values, 4, select_lanes(load_integer_lanes(codes, 0) == 2.0, 7.5, a))
    return fixed_point_lane_sum(a)


@given(seed=st.integers(0, 2**32 - 1))
def test_lanes_are_the_arithmetic_of_each_row(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(7, N_LANES)) * 10.0 ** rng.integers(-200, 100, (7, N_LANES))
    values[1, rng.integers(N_LANES)] = 0.0
    weight = rng.normal(size=2)
    a, b, w = values[0].copy(), values[1].copy(), weight[1]
    arithmetic(values, weight)
    with np.errstate(all="ignore"):
        expected = [w * a + b, b * w, a * b, a / b, w / b]
    assert np.array_equal(values[2:], expected, equal_nan=True)


def test_what_is_no_code_is_missing():
    n = 3
    x = np.arange(40.0).reshape(2, 20) % 6
    x[1, 4:7] = [np.nan, -1.0, 1e300]
    codes, planes = np.zeros((2, N_LANES), np.int64), np.empty((n, N_LANES))
    read_codes(x, 20 + 3, n, codes, planes)
    row = x[1, 3 : 3 + N_LANES]
    expected = np.where((row >= 0) & (row < n), row, n)
    assert codes[1].tolist() == expected.tolist()
    assert codes[0].tolist() == [0] * N_LANES
    for a in range(n):
        assert planes[a].tolist() == ((expected == a) | (expected == n)).tolist()


@given(seed=st.integers(0, 2**32 - 1))
def test_lanes_are_chosen_and_summed_as_rows_are(seed):
    rng = np.random.default_rng(seed)
    values, codes = rng.random((6, N_LANES)), rng.integers(0, 4, (1, N_LANES))
    values[0, rng.random(N_LANES) < 0.3] = 0.0
    values[0, 0] = rng.choice([1.0, 2.0**-33, 2.0**-32 * 0.6, 0.25, 2.0**18])
    values[1, rng.random(N_LANES) < 0.3] = 0.0
    a, b = values[0].copy(), values[1].copy()
    total = choose(values, codes)
    with np.errstate(all="ignore"):
        expected = [np.where(a >= 0.25, a, 0.0), np.where(a > 0, a / b, 0.0), np.where(codes[0] == 2, 7.5, a)]
    assert np.array_equal(values[2:5], expected)
    assert total == int(np.rint(a * 2.0**32).sum())
