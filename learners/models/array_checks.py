"""Refusing single arrays of a stored model."""

from __future__ import annotations

import numpy as np

from learners.errors import InvalidArray
from learners.kernels.arrays import Array, Arrays


def check_starts(name: str, starts: Array, n_parts: int, end: int) -> None:
    """Refuse starts of ranges that do not ascend from zero to the end."""
    if starts.size != n_parts + 1 or starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
        raise InvalidArray(name, "does not ascend from zero to the end of what it divides")


def typed(arrays: Arrays, name: str, dtype: type, *shape: int | None) -> Array:
    """An array of a type and shape; None for any length."""
    if name not in arrays:
        raise InvalidArray(name, "is missing")
    array = arrays[name]
    shape = shape or (None,)
    fits = len(array.shape) == len(shape) and all(n in (None, k) for n, k in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        described = f"{array.dtype} of shape {array.shape}"
        sizes = ", ".join("any" if n is None else str(n) for n in shape)
        raise InvalidArray(name, f"is {described}, where {np.dtype(dtype)} of shape ({sizes}) belongs")
    return array


def refuse(name: str, wrong: Array, reason: str) -> None:
    """Refuse an array some of whose elements are wrong, naming the first of them."""
    if wrong.any():
        raise InvalidArray(name, f"{reason} (at {int(np.argmax(wrong))})")
