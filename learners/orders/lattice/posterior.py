"""A posterior over structures: family scores and the lattice of orders that it covers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from learners.kernels.arrays import Uint64s
from learners.orders.lattice.forward_backward import OrderSums, order_sums
from learners.orders.lattice.lattice import Lattice, complete_lattice, lattice_of
from learners.orders.scores.bge import BGe, Standard
from learners.orders.scores.edge_constraints import Edges
from learners.orders.scores.scores import FamilyScores


class Share(NamedTuple):
    """A share of draws with a 95 % interval."""

    share: float = 1.0
    low: float = 1.0
    high: float = 1.0


class Coverage(NamedTuple):
    """How much of the posterior the lattice holds."""

    is_exact: bool = True  # whether it holds all orders
    orders: Share = Share()  # of draws whose order is in the lattice
    graphs: Share = Share()  # of draws whose graph has an order in the lattice
    n_draws: int = 0  # independent draws of a Markov chain

    def facts(self) -> dict[str, object]:
        """For answers."""
        if self.is_exact:
            return {"is_exact": True, "orders": 1.0, "graphs": 1.0}
        return {
            "is_exact": False,
            "orders": self.orders.share,
            "orders_interval": [self.orders.low, self.orders.high],
            "graphs": self.graphs.share,
            "graphs_interval": [self.graphs.low, self.graphs.high],
            "n_draws": self.n_draws,
        }


@dataclass(frozen=True)
class OrderPosterior:
    """Everything that answers follow from."""

    scores: FamilyScores
    sets: Uint64s | None  # (n,) uint64 or None: of the lattice, ascending; None for all sets
    coverage: Coverage
    bge: BGe | None  # of Gaussian data
    standard: Standard  # how the columns became those that were scored

    @cached_property
    def most_parents(self) -> int:
        """Parents of the largest set that has a score."""
        possible = np.flatnonzero(self.scores.logs > -np.inf)
        starts = self.scores.starts
        node = np.searchsorted(starts, possible, side="right") - 1
        return int(np.bitwise_count(possible - starts[node]).max(initial=0))

    @property
    def limits(self) -> dict[str, int | None]:
        """Under which limits the graphs are summed: `max_parents` and `candidates`, None where all others may be parents."""
        free, most = self.scores.d - 1, self.most_parents
        n = max(own.size for own in self.scores.candidates)
        return {"max_parents": None if most >= free else most, "candidates": None if n >= free else int(n)}

    def facts(self, coverage: Coverage) -> dict[str, object]:
        """A coverage for answers, with the limits under which it holds."""
        return coverage.facts() | {"limits": self.limits}

    @property
    def leaves_out(self) -> bool:
        """Whether there are parent sets without a score."""
        return any(limit is not None for limit in self.limits.values())

    @cached_property
    def lattice(self) -> Lattice:
        """The lattice with its steps."""
        return complete_lattice(self.scores) if self.sets is None else lattice_of(self.sets, self.scores)

    @cached_property
    def prior_sums(self) -> OrderSums:
        """The sums without known edges."""
        return order_sums(self.scores, self.lattice)

    def sums(self, edges: Edges) -> OrderSums:
        """The sums given edges."""
        return order_sums(self.scores, self.lattice, edges) if edges else self.prior_sums
