"""The sums over orders and graphs from which every answer follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.kernels.arrays import Floats
from learners.kernels.scaled_arithmetic import STEP, add_subsets, log_of, scale
from learners.orders.lattice.lattice import Lattice
from learners.orders.lattice.lattice_kernels import backward, forward, shares_of_steps
from learners.orders.scores.edge_constraints import Edges, with_edges
from learners.orders.scores.scores import FamilyScores


class Scaled(NamedTuple):
    """Numbers mantissa * 2^(256 exponent), see `scaled_arithmetic`."""

    mantissa: Floats
    exponent: NDArray[np.int32]

    @classmethod
    def empty(cls, n: int) -> Scaled:
        """Room for n of them."""
        return cls(np.empty(n), np.empty(n, np.int32))

    def of(self, part: slice) -> Scaled:
        """Views of some of them."""
        return Scaled(self.mantissa[part], self.exponent[part])

    @property
    def logs(self) -> Floats:
        """Their logarithms."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mantissa) + STEP * self.exponent)


@dataclass(frozen=True)
class OrderSums:
    """Sums over the orders of a lattice and over the graphs that have the given edges."""

    scores: FamilyScores  # with -inf for the families that the given edges forbid
    lattice: Lattice
    shifts: Floats  # (d,) float64: the largest log score of each node, by which its numbers are divided
    alpha: Scaled  # (total,): for each node and each set of its candidates, the sum over all parent sets within it
    # before, after (n,): for each set of the lattice, the sum over the orders up to it, and from it on.
    before: Scaled
    after: Scaled

    @property
    def log_z(self) -> float:
        """Log of the sum over all pairs of an order and a graph: -inf if there is none."""
        return float(log_of(self.after.mantissa[0], int(self.after.exponent[0])) + self.shifts.sum())

    def step_shares(self) -> Floats:
        """(E,) float64: how probable each step of the lattice is as the last one to its target."""
        shares = np.empty(self.lattice.nodes.size)
        shares_of_steps(self.lattice, *self.alpha, *self.before, shares)
        return shares


def scaled_families(scores: FamilyScores) -> tuple[Scaled, Floats]:
    """Every family's score as a number, divided by the largest of its node; and the logs of those."""
    numbers = Scaled.empty(scores.logs.size)
    shifts = np.zeros(scores.d)
    for node in range(scores.d):
        logs = scores.of(node)
        largest = float(logs.max())
        shifts[node] = largest if np.isfinite(largest) else 0.0
        scale(logs, shifts[node], *numbers.of(scores.part(node)))
    return numbers, shifts


def sums_within(scores: FamilyScores) -> tuple[Scaled, Floats]:
    """Of each node and each set of its candidates, the sum over all parent sets within it; and the logs that it is divided by."""
    alpha, shifts = scaled_families(scores)
    for node in range(scores.d):
        add_subsets(*alpha.of(scores.part(node)))
    return alpha, shifts


def sums_along(lattice: Lattice, alpha: Scaled) -> tuple[Scaled, Scaled]:
    """Of each set of a lattice, the sum over the orders up to it, and from it on."""
    before, after = Scaled.empty(lattice.sets.size), Scaled.empty(lattice.sets.size)
    forward(lattice, *alpha, *before)
    backward(lattice, *alpha, *after)
    return before, after


def order_sums(scores: FamilyScores, lattice: Lattice, edges: Edges | None = None) -> OrderSums:
    """The sums, given edges that are known to be present or absent.

    References: Koivisto, Sood (2004), section 3; Wang, Wicker, Kwiatkowska (2022), section 4.4.
    """
    given = scores if edges is None else with_edges(scores, edges)
    alpha, shifts = sums_within(given)
    return OrderSums(given, lattice, shifts, alpha, *sums_along(lattice, alpha))
