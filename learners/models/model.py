"""Protocol of trained models for storage and serving, and checks of single arrays of a stored model."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self, TypedDict

import numpy as np
import pyarrow as pa

from learners.errors import InvalidArray, InvalidParameter, SchemaError
from learners.kernels.arrays import Array, Arrays, Floats
from learners.schema import Chunk, Schema

MOST_ROWS = 1 << 53  # a float64 holds them all
LEAST_LOG = -708.0  # of a probability that a float64 holds without losing digits
LOG_ROUNDING = 1e-3  # of log probabilities that were computed as sums of float32


class Header(TypedDict):
    """Header fields of every stored model; each kind adds others."""

    kind: str
    schema: str  # as JSON
    facts: dict[str, object]


class DerivedHeader(Header):
    """Header of a model with derived arrays, which can be omitted from the file."""

    derived: list[str]


class Model(Protocol):
    """A trained model: immutable arrays with their schema."""

    kind: ClassVar[str]
    schema: Schema
    facts: dict[str, Any]  # how it was learned, as JSON can hold it

    def predict_proba(self, chunk: Chunk) -> Floats:
        """Predict P(class | attributes), (n_rows, n_classes) float64."""

    def structure(self) -> dict[str, object]:
        """Return the model's `nodes` and `edges`, for descriptions and pictures."""

    def to_arrays(self) -> tuple[Mapping[str, object], Arrays]:
        """Return a JSON-compatible header, with `kind`, and named arrays."""

    @classmethod
    def from_arrays(cls, header: Mapping[str, object], arrays: Arrays) -> Self:
        """Build the model from the output of `to_arrays`, without copying; the arrays may be memory-mapped and
        read-only.
        """

    def tables(self) -> dict[str, pa.Table]:
        """Return the tables that users can query with SQL in the model's file."""

    # What only some models can: `ModelDefaults` has what the others answer. What is made of models on higher floors
    # (SQL, networks, graphs, importances) is in the `Kind` of a model, see `learners.registry.kind`.
    answering_member: ClassVar[str | None]
    """The name of the member of an ensemble that answers queries of the joint distribution."""
    needs_every_column: ClassVar[bool]
    """Whether the model cannot sum out a missing column, so that answers without it need a warning."""

    is_quick: ClassVar[bool]
    """Whether some rows are answered sooner than a thread is found for them."""

    @property
    def joint(self) -> Any:
        """The model that answers queries of the joint distribution: the model itself, or a member of an ensemble."""

    def credible_intervals(self, chunk: Chunk, level: float = 0.9) -> tuple[Floats, Floats]:
        """Low and high (n_rows, n_classes) of each class probability; InvalidParameter if the model has no posterior."""

    def member_structure(self, member: int) -> dict[str, object]:
        """The `structure` of one member of an ensemble; InvalidParameter if the model has no such member."""

    def warnings(self) -> list[str]:
        """Warnings for users of the model."""

    def absent_columns_warning(self, columns: Collection[str]) -> str | None:
        """Warning for rows without these columns; None if the model answers them like rows of fewer columns."""

    def columns_without_missing_state(self) -> set[str]:
        """The columns in which the joint distribution knows no missing value, whatever training saw: it is summed out."""

    def prepare(self) -> None:
        """Build what queries share, so that the first one does not wait for it."""


class ModelDefaults:
    """Default capabilities of a model; every model class derives from it.

    A class overrides what it can do. What it cannot do raises one sentence that names its `kind`.
    """

    kind: ClassVar[str]
    answering_member: ClassVar[str | None] = None
    needs_every_column: ClassVar[bool] = False
    is_quick: ClassVar[bool] = False

    @property
    def joint(self) -> Any:
        """The model that answers queries of the joint distribution: itself."""
        return self

    def credible_intervals(self, chunk: Chunk, level: float = 0.9) -> tuple[Floats, Floats]:
        """Raises InvalidParameter: the model has no posterior."""
        del chunk
        text = f"a model of kind {self.kind!r} has no posterior; use estimator hdp, or learner gibbs (docs/limits.md#probabilities)"
        raise InvalidParameter("interval", level, because=text)

    def member_structure(self, member: int) -> dict[str, object]:
        """Raises InvalidParameter: the model has no members."""
        text = f"a model of kind {self.kind!r} has no members; only ensembles have"
        raise InvalidParameter("member", member, because=text)

    def warnings(self) -> list[str]:
        """No warnings."""
        return []

    def absent_columns_warning(self, columns: Collection[str]) -> str | None:
        """No warning: missing values are summed out."""
        del columns
        return None

    def columns_without_missing_state(self) -> set[str]:
        """No columns: a missing value is a state where training saw one."""
        return set()

    def prepare(self) -> None:
        """Nothing to build."""


def check_model_facts(schema: Schema, facts: object) -> None:
    """Refuse facts of an untrusted model that contradict its schema: rows of each class, and rows in all (SchemaError)."""
    if not isinstance(facts, Mapping):
        raise SchemaError("The facts of the model are not a JSON object.")
    known = facts.get("class_counts", [0] * schema.n_classes)
    if not isinstance(known, Sequence) or len(known) != schema.n_classes or not all(map(_is_row_count, known)):
        raise SchemaError(
            f"The fact class_counts of the model is not a number of rows for each of {schema.n_classes} classes."
        )
    if not _is_row_count(facts.get("n_rows", 0)):
        raise SchemaError("The fact n_rows of the model is not a number of rows.")


def _is_row_count(value: object) -> bool:
    return type(value) is int and 0 <= value < MOST_ROWS


def check_log_probabilities(name: str, logs: Array) -> None:
    """Refuse logarithms of probabilities that a float64 cannot hold, or that are above one."""
    check_array_elements(
        name, ~((logs >= LEAST_LOG) & (logs <= LOG_ROUNDING)), "contains values that are not log probabilities"
    )


def check_array_offsets(name: str, starts: Array, n_parts: int, end: int) -> None:
    """Refuse offsets that do not ascend from zero to the end."""
    if starts.size != n_parts + 1 or starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 0).any():
        raise InvalidArray(name, "must ascend from zero to the length of the divided array")


def check_array_type_and_shape(arrays: Arrays, name: str, dtype: type, *shape: int | None) -> Array:
    """Return an array after checking its type and shape; None allows any length."""
    if name not in arrays:
        raise InvalidArray(name, "is missing")
    array = arrays[name]
    shape = shape or (None,)
    fits = len(array.shape) == len(shape) and all(n in (None, k) for n, k in zip(shape, array.shape, strict=True))
    if array.dtype != dtype or not fits:
        described = f"{array.dtype} of shape {array.shape}"
        sizes = ", ".join("any" if n is None else str(n) for n in shape)
        raise InvalidArray(name, f"is {described}; expected {np.dtype(dtype)} of shape ({sizes})")
    return array


def check_array_elements(name: str, wrong: Array, reason: str) -> None:
    """Refuse an array with wrong elements, naming the first position."""
    if wrong.any():
        raise InvalidArray(name, f"{reason} (at {int(np.argmax(wrong))})")
