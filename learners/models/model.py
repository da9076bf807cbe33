"""What a trained model is to those who store and serve it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Protocol, Self, TypedDict

import pyarrow as pa

from learners.kernels.arrays import Arrays, Floats
from learners.schema import Chunk, Schema

CELLS_AT_A_TIME = 1 << 23  # probabilities that are made together: 64 MiB


def blocks_of(chunk: Chunk, n_classes: int) -> Iterator[Chunk]:
    """The rows of a chunk, as many at a time as have `CELLS_AT_A_TIME` probabilities."""
    n_rows = max(1, CELLS_AT_A_TIME // n_classes)
    if chunk.n_rows <= n_rows:
        yield chunk
        return
    for first in range(0, chunk.n_rows, n_rows):
        yield chunk.rows(slice(first, first + n_rows))


class Header(TypedDict):
    """What the header of every stored model holds; each kind adds its own."""

    kind: str
    schema: str  # as JSON
    facts: dict[str, object]


class DerivedHeader(Header):
    """Of a model of which some arrays follow from the others: they need not be stored."""

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
