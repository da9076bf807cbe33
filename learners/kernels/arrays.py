"""Array type names by content, with shapes in docstrings; and helpers for read-only, unique and concatenated arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Array = np.ndarray  # of any dtype
Arrays = Mapping[str, np.ndarray]

Floats = NDArray[np.float64]
Float32s = NDArray[np.float32]
Integers = NDArray[np.int64]
Int8s = NDArray[np.int8]
Int32s = NDArray[np.int32]
AnyIntegers = NDArray[np.signedinteger]  # of 32 or 64 bits
Uint8s = NDArray[np.uint8]
Uint32s = NDArray[np.uint32]
Uint64s = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.unsignedinteger]  # uint8 or uint16, as in a Chunk

Scalar = TypeVar("Scalar", bound=np.generic)


def freeze_arrays(*arrays: Array) -> None:
    """Make arrays read-only.

    Numba treats a read-only array as another type, and arrays mapped from a file are read-only: if all arrays
    are, each kernel compiles once.
    """
    for array in arrays:
        array.setflags(write=False)


def read_only_array(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array, or a contiguous copy of it, as read-only."""
    contiguous = np.ascontiguousarray(array)
    freeze_arrays(contiguous)
    return contiguous


def take_rows(x: NDArray[Scalar], rows: Integers) -> NDArray[Scalar]:
    """Return some rows of codes (n_attributes, n_rows), read-only; an index in brackets would copy them twice."""
    own: NDArray[Scalar] = x.take(rows, axis=1)
    own.setflags(write=False)
    return own


def unique_integers(numbers: Integers) -> tuple[Integers, Integers]:
    """Return the distinct numbers, ascending, and the index of each of (n,) numbers among them.

    Equivalent to `numpy.unique` with its inverse, in half the memory; faster if most numbers ascend.
    """
    ordered = np.sort(numbers)  # `numpy.unique` alone takes longer: it puts integers into a hash table first
    is_first = np.ones(ordered.size, np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    distinct = ordered[is_first]
    return distinct, np.searchsorted(distinct, numbers)


def concatenate_arrays(parts: list[NDArray[Scalar]], like: NDArray[Scalar]) -> NDArray[Scalar]:
    """Concatenate the parts (n, ...), emptying the list from its end so that the data is in memory once.

    `like` (any number, ...) has the shape and type of the rows, in case there are no parts.
    """
    whole = np.empty((sum(map(len, parts)), *like.shape[1:]), like.dtype)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole


def offsets_from_sizes(sizes: Sequence[int] | Integers) -> Integers:
    """Return the start of each of consecutive ranges with these sizes, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def concatenate_ranges(firsts: Integers, sizes: Integers) -> Integers:
    """Return the numbers first, first + 1, … of every range, concatenated."""
    ends = np.cumsum(sizes)
    return np.repeat(firsts - ends + sizes, sizes) + np.arange(ends[-1] if ends.size else 0)
