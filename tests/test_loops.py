"""Loops over ranges in kernels, against Python's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learners.jit import kernel

PLACES = st.integers(-9, 9)
MOST = 40


@kernel
def up_to(stop, out):
    n = 0
    for i in range(stop):
        out[n] = i
        n += 1
    return n


@kernel
def between(start, stop, out):
    n = 0
    for i in range(start, stop):
        out[n] = i
        n += 1
    return n


@kernel
def down(start, stop, out):
    n = 0
    for i in range(start, stop, -1):
        out[n] = i
        n += 1
    return n


@kernel
def by_three(start, stop, out):
    n = 0
    for i in range(start, stop, 3):
        out[n] = i
        n += 1
    return n


@kernel
def by_step(start, stop, step, out):
    n = 0
    for i in range(start, stop, step):
        out[n] = i
        n += 1
    return n


@kernel
def twice_over(start, stop, out):
    """The same range in two loops, one in the other; what follows the last number; leaving a loop."""
    n, last = 0, -99
    numbers = range(start, stop)
    for i in numbers:
        for j in numbers:
            if j == i + 2:
                break
            if j == i:
                continue
            out[n % out.size] += 10 * i + j
            n += 1
        last = i
    stop += 5  # which the range does not see
    return n, last, len(numbers)


def answered(function, *arguments):
    """What a kernel finds, or Python running its text."""
    out = np.zeros(MOST, np.int64)
    found = function(*arguments, out)
    return found, out.tolist()


@given(start=PLACES, stop=PLACES, step=PLACES.filter(bool))
def test_loops_are_those_of_python(start, stop, step):
    for function, arguments in (
        (up_to, (stop,)),
        (between, (start, stop)),
        (down, (start, stop)),
        (by_three, (start, stop)),
        (by_step, (start, stop, step)),
        (twice_over, (start, stop)),
    ):
        assert answered(function, *arguments) == answered(function.py_func, *arguments)


@pytest.mark.parametrize("kind", [np.int32, np.uint8, np.uint64])
def test_numbers_of_other_types_are_counted_to(kind):
    assert answered(up_to, kind(7)) == answered(up_to.py_func, 7)
    assert answered(between, kind(3), kind(7)) == answered(between.py_func, 3, 7)
    assert answered(between, kind(7), kind(3)) == answered(between.py_func, 7, 3)


def test_a_step_of_zero_is_refused():
    with pytest.raises(ValueError, match=r"range\(\) arg 3 must not be zero"):
        by_step(1, 5, 0, np.zeros(MOST, np.int64))
