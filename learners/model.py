"""What a trained model is to those who store and serve it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol, Self

import numpy as np
import pyarrow as pa

from learners.schema import Chunk, Schema

Arrays = Mapping[str, np.ndarray[Any, np.dtype[Any]]]


class Model(Protocol):
    """Immutable arrays with their schema."""

    kind: ClassVar[str]
    schema: Schema

    def predict_proba(self, chunk: Chunk) -> np.ndarray[Any, np.dtype[np.float64]]:
        """(n_rows, n_classes) float64: P(class | attributes)."""

    def structure(self) -> dict[str, Any]:
        """`nodes` and `edges` of the model, for people and pictures."""

    def to_arrays(self) -> tuple[dict[str, Any], Arrays]:
        """A header that JSON can hold, with `kind`, and named arrays."""

    @classmethod
    def from_arrays(cls, header: Mapping[str, Any], arrays: Arrays) -> Self:
        """The model of `to_arrays`, without copying; the arrays may be mapped and read-only."""

    def tables(self) -> dict[str, pa.Table]:
        """What a user may query with SQL in the model's file."""
