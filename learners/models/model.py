"""What a trained model is to those who store and serve it; and refusing single arrays of a stored one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self, TypedDict

import numpy as np
import pyarrow as pa

from learners.errors import InvalidArray
from learners.kernels.arrays import Array, Arrays, Floats
from learners.schema import Chunk, Schema


class Header(TypedDict):
    """What the header of every stored model holds; each kind adds its own."""

    kind: str
    schema: str  # as JSON
    facts: dict[str, object]


class DerivedHeader(Header):
    """Header of a model with derived arrays, which need not be stored."""

    derived: list[str]


class Model(Protocol):
    """Immutable arrays with their schema."""

    kind: ClassVar[str]
    schema: Schema

    def predict_proba(self, chunk: Chunk) -> Floats:
        """(n_rows, n_classes) float64: P(class | attributes)."""

    def structure(self) -> dict[str, object]:
        """`nodes` and `edges` of the model, for people and pictures."""

    def to_arrays(self) -> tuple[Mapping[str, object], Arrays]:
        """A header that JSON can hold, with `kind`, and named arrays."""

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """The model of `to_arrays`, without copying; the arrays may be mapped and read-only."""

    def tables(self) -> dict[str, pa.Table]:
        """What a user may query with SQL in the model's file."""


def check_array_offsets(name: str, starts: Array, n_parts: int, end: int) -> None:
    """Refuse starts of ranges that do not ascend from zero to the end."""
    if starts.size != n_parts + 1 or starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
        raise InvalidArray(name, "does not ascend from zero to the end of what it divides")


def check_array_type_and_shape(arrays: Arrays, name: str, dtype: type, *shape: int | None) -> Array:
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


def check_array_elements(name: str, wrong: Array, reason: str) -> None:
    """Refuse an array some of whose elements are wrong, naming the first of them."""
    if wrong.any():
        raise InvalidArray(name, f"{reason} (at {int(np.argmax(wrong))})")
