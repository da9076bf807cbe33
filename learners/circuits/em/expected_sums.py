"""Sums over rows for expectation maximization, as integers: a statistic independent of order."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import pairwise
from typing import Any, Generic, NamedTuple, Self, TypeVar

import numpy as np
import pyarrow as pa

from learners.errors import StatisticMismatch
from learners.kernels.arrays import Array
from learners.passes.statistic import Statistic
from learners.schema import Chunk, Schema

# Log likelihoods are rounded to multiples of 2^-16 nats.
PER_NAT = 2.0**16

Model = TypeVar("Model")
Sums = TypeVar("Sums", bound=NamedTuple)
S = TypeVar("S", bound="ExpectedSums[Any, Any]")


class ExpectedSums(Statistic, Generic[Model, Sums]):
    """Sums over rows under the current parameters of a model.

    model: gives the expectations.
    schema: schema of the chunks in a pass; with it the variables are the attributes in order.
    rows_of: converts a chunk to (n_variables, n_rows); by default its `x`.
    columns: to read; by default all.
    """

    kind: str  # "circuit" or "mixture"
    columns: Sequence[str] | None = None

    def __init__(
        self,
        model: Model,
        schema: Schema | None = None,
        rows_of: Callable[[Chunk], Array] | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.model, self.schema, self.rows_of, self.columns = model, schema, rows_of, columns
        self._sums = self._zeros()

    @abstractmethod
    def _zeros(self) -> Sums:
        """Return zero arrays of int64; the last holds rows, impossible rows and the log likelihood."""

    @abstractmethod
    def _parameters(self) -> Iterable[Array]:
        """Return the arrays that identify the model."""

    @abstractmethod
    def update(self, rows: Chunk | Array) -> None:
        """Add rows: a chunk, or (n_variables, n_rows)."""

    @property
    def spec(self) -> dict[str, object]:
        """Digest of the model's arrays."""
        return {"statistic": self.stage, self.kind: self._digest}

    @cached_property
    def _digest(self) -> str:
        digest = hashlib.sha256()
        for array in self._parameters():
            digest.update(array.tobytes())
        return digest.hexdigest()

    @property
    def n_rows(self) -> int:
        """Number of rows so far."""
        return int(self._sums[-1][0])

    @property
    def n_impossible(self) -> int:
        """Number of rows of probability zero, which are not counted elsewhere."""
        return int(self._sums[-1][1])

    @property
    def log_likelihood(self) -> float:
        """Sum of the log densities of the possible rows, in nats, each rounded to 2^-16."""
        return float(self._sums[-1][2]) / PER_NAT

    def empty(self) -> Self:
        """Return sums of no rows for the same model."""
        return type(self)(self.model, self.schema, self.rows_of, self.columns)

    def _combine(self, other: Self, sign: int) -> None:
        for ours, theirs in zip(self._sums, other._sums, strict=True):
            ours[...] += sign * theirs

    def to_arrow(self) -> pa.Table:
        """Return a table with one row of lists."""
        columns = {name: array.ravel() for name, array in self._sums._asdict().items()}
        return pa.table({name: pa.array([array], pa.list_(pa.int64())) for name, array in columns.items()})

    def from_arrow(self, table: pa.Table) -> Self:
        """Build the sums from the output of `to_arrow`. Raises StatisticMismatch if they are of another model."""
        read = self.empty()
        for name, target in read._sums._asdict().items():
            values = table.column(name).combine_chunks().flatten().to_numpy()
            if values.size != target.size:
                raise StatisticMismatch(
                    f"The table holds sums of a different {self.kind}: {name!r} has {values.size} entries."
                )
            target[...] = values.reshape(target.shape)
        return read

    def __eq__(self, other: object) -> bool:
        """Return whether both sum the same rows under the same model."""
        if not isinstance(other, ExpectedSums):
            return NotImplemented
        return self.spec == other.spec and all(
            np.array_equal(a, b) for a, b in zip(self._sums, other._sums, strict=True)
        )

    def _require_same(self, other: Self) -> None:
        if self.spec != other.spec:
            raise StatisticMismatch(f"The {self.stage} belong to different {self.kind}s.")


def parallel_expected_sums(empty: Callable[[], S], x: Array, threads: int) -> S:
    """Sum expectations over rows (n_variables, n_rows); the result does not depend on the number of threads."""
    bounds = np.linspace(0, x.shape[1], threads + 1).astype(int).tolist()
    parts = [np.ascontiguousarray(x[:, a:b]) for a, b in pairwise(bounds) if b > a]

    def sums(part: Array) -> S:
        statistic = empty()
        statistic.update(part)
        return statistic

    with ThreadPoolExecutor(threads) as pool:
        first, *others = pool.map(sums, parts)
    for other in others:
        first.merge(other)
    return first
