"""What a trained model is to those who store and serve it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self, TypedDict

import pyarrow as pa

from learners.arrays import Arrays, Floats
from learners.schema import Chunk, Schema


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
