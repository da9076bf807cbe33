"""The sums over orders and graphs from which every answer follows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from learners.kernels.arrays import Floats
from learners.kernels.scaled_arithmetic import add_subsets, log_of, scale
from learners.orders.lattice.lattice import Lattice
from learners.orders.lattice.lattice_kernels import backward, forward
from learners.orders.scores.edge_constraints import Edges, with_edges
from learners.orders.scores.scores import FamilyScores


@dataclass(frozen=True)
class Scaled:
    """Numbers mantissa * 2^(256 exponent), see `scaled_arithmetic`."""

    mantissa: Floats
    exponent: NDArray[np.int32]

    @classmethod
    def empty(cls, n: int) -> Scaled:
        """Room for n of them."""
        return cls(np.empty(n), np.empty(n, np.int32))


@dataclass(frozen=True)
class OrderSums:
    """Sums over the orders of a lattice and over the graphs that have the given edges.

    Parameters
    ----------
    scores : FamilyScores
        With -inf for the families that the given edges forbid.
    shifts : (d,) float64
        The largest log score of each node, by which its numbers are divided.
    alpha : Scaled, (total,)
        For each node and each set of its candidates, the sum over all parent sets within it.
    before, after : Scaled, (n,)
        For each set of the lattice, the sum over the orders up to it, and from it on.
    """

    scores: FamilyScores
    lattice: Lattice
    shifts: Floats
    alpha: Scaled
    before: Scaled
    after: Scaled

    @property
    def log_z(self) -> float:
        """Log of the sum over all pairs of an order and a graph: -inf if there is none."""
        return float(log_of(self.after.mantissa[0], int(self.after.exponent[0])) + self.shifts.sum())


def scaled_families(scores: FamilyScores) -> tuple[Scaled, Floats]:
    """Every family's score as a number, divided by the largest of its node; and the logs of those."""
    numbers = Scaled.empty(scores.logs.size)
    shifts = np.zeros(scores.d)
    for node in range(scores.d):
        part = slice(scores.starts[node], scores.starts[node + 1])
        largest = float(scores.logs[part].max())
        shifts[node] = largest if np.isfinite(largest) else 0.0
        scale(scores.logs[part], shifts[node], numbers.mantissa[part], numbers.exponent[part])
    return numbers, shifts


def order_sums(scores: FamilyScores, lattice: Lattice, edges: Edges | None = None) -> OrderSums:
    """The sums, given edges that are known to be present or absent.

    References
    ----------
    Koivisto, Sood (2004), section 3; Wang, Wicker, Kwiatkowska (2022), section 4.4.
    """
    given = scores if edges is None else with_edges(scores, edges)
    alpha, shifts = scaled_families(given)
    for node in range(given.d):
        part = slice(given.starts[node], given.starts[node + 1])
        add_subsets(alpha.mantissa[part], alpha.exponent[part])
    n = lattice.sets.size
    before, after = Scaled.empty(n), Scaled.empty(n)
    forward(lattice, alpha.mantissa, alpha.exponent, before.mantissa, before.exponent)
    backward(lattice, alpha.mantissa, alpha.exponent, after.mantissa, after.exponent)
    return OrderSums(given, lattice, shifts, alpha, before, after)
