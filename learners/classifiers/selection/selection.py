"""SkDB's choice of how many attributes and parents to use, by leave-one-out losses in one more pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from learners.classifiers.selection import selection_kernels as kernels
from learners.classifiers.selection.loss_tables import Measure
from learners.errors import EmptyStatistic
from learners.kernels.arrays import Floats, Integers
from learners.passes.statistic import Statistic
from learners.schema import Chunk, Schema

LOSSES = ("squared", "zero-one")


@dataclass(frozen=True)
class Selection:
    """What the selection pass found."""

    n_attributes: int  # how many of the first attributes of the order to use
    k: int  # how many of the first parents of each to use
    # (k + 1, n + 1) float64: mean leave-one-out loss for each number of parents and each prefix of the order.
    mean_loss: Floats


class PrefixLosses(Statistic):
    """Sums of leave-one-out losses for every number of parents and every prefix of the attributes.

    Losses are summed in whole multiples of 2^-30, so that they add exactly.

    `measure`: of the structure of kDB with the largest k, from all the rows that the pass will see.
    `class_counts`, (n_classes,) int64.
    `loss`, "squared" or "zero-one": (1 - P(y | x))^2, or whether another class is more probable.

    References
    ----------
    Martínez, Webb, Chen, Zaidi (2016), Scalable learning of Bayesian network classifiers, JMLR 17(44), section 4.
    """

    stage = "measuring prefixes"

    def __init__(self, schema: Schema, measure: Measure, class_counts: Integers, loss: str = "squared") -> None:
        self.schema, self.structure, self.mixes = schema, measure.structure, measure.mixes
        self.class_counts, self.loss = class_counts, loss
        self._tables, self._digest = measure.tables, measure.digest
        self._start()

    def _start(self) -> None:
        self.n_rows = 0
        k = max((len(parents) for parents in self.structure.parents), default=0)
        self.losses = np.zeros((k + 1, len(self.structure.order) + 1), np.int64)

    @property
    def spec(self) -> dict[str, object]:
        """What is collected: the counts that it measures are part of it."""
        return {
            "statistic": "prefix losses",
            "loss": self.loss,
            "mixes": self.mixes,
            "order": list(self.structure.order),
            "parents": [list(parents) for parents in self.structure.parents],
            "counts": self._digest,
        }

    def empty(self) -> PrefixLosses:
        """No rows; the tables are shared."""
        fresh = object.__new__(PrefixLosses)
        fresh.__dict__.update(self.__dict__)
        fresh._start()
        return fresh

    def update(self, rows: Chunk) -> None:
        """Add the losses of a chunk, whose rows must be among those that the trees have counted."""
        assert rows.y is not None
        self.n_rows += rows.n_rows
        add = kernels.add_two_class_losses if self.class_counts.size == 2 else kernels.add_losses
        add(self._tables, rows.x, rows.y, self.loss == "zero-one", self.losses)

    def _combine(self, other: PrefixLosses, sign: int) -> None:
        self.n_rows += sign * other.n_rows
        self.losses += sign * other.losses

    def to_arrow(self) -> pa.Table:
        """One row per number of parents: the sums over the prefixes; the number of rows beside."""
        losses = pa.array(self.losses.tolist(), pa.list_(pa.int64()))
        return pa.table({"losses": losses, "n_rows": np.full(self.losses.shape[0], self.n_rows)})

    def from_arrow(self, table: pa.Table) -> PrefixLosses:
        """Read what `to_arrow` wrote."""
        read = self.empty()
        read.losses = np.array(table["losses"].to_pylist(), np.int64)
        read.n_rows = int(table["n_rows"][0].as_py())
        return read

    def best(self) -> Selection:
        """The prefix and the number of parents of least loss; of equally good ones fewer attributes, then fewer parents.

        Raises EmptyStatistic if no rows were measured.
        """
        if not self.n_rows:
            raise EmptyStatistic("No rows were measured, so no prefix can be chosen.")
        flat = self.losses.T.ravel()  # prefix by prefix: the first of the least is the smallest model
        n_attributes, k = divmod(int(flat.argmin()), self.losses.shape[0])
        return Selection(n_attributes, k, self.losses / (self.n_rows * float(kernels.ONE)))

    def __eq__(self, other: object) -> bool:
        """Whether the same losses were measured."""
        if not isinstance(other, PrefixLosses):
            return NotImplemented
        return self.n_rows == other.n_rows and self.spec == other.spec and np.array_equal(self.losses, other.losses)
