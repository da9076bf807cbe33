"""What a pass collects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, Self, runtime_checkable

import pyarrow as pa

from learners.schema import Chunk, Schema


@runtime_checkable
class Statistic(Protocol):
    """A commutative monoid over rows: chunks may come in any order and partition, the result is the same bit for bit.

    `merge` and `update` change the statistic in place, so a pass allocates one per thread. `from_arrow` is called on an
    empty statistic of the same specification.
    """

    schema: Schema | None

    @property
    def stage(self) -> str:
        """What the pass does, in words, for progress reports."""

    @property
    def spec(self) -> dict[str, Any]:
        """What is collected: with the schema and the files, the identity under which the result is stored."""

    @property
    def columns(self) -> Sequence[str] | None:
        """Columns to read; None for all."""

    def empty(self) -> Self:
        """The neutral element."""

    def update(self, rows: Chunk) -> None:
        """Add rows. A statistic without a schema gets record batches instead of chunks."""

    def merge(self, other: Self) -> None:
        """Add the rows of another statistic of the same specification."""

    def to_arrow(self) -> pa.Table:
        """As a table."""

    def from_arrow(self, table: pa.Table) -> Self:
        """Read what `to_arrow` wrote."""
