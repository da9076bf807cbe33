"""Lattices of orders, sums over orders and graphs from which all answers are computed, and the posterior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from learners.kernels.arrays import Floats, Integers, Uint64s, freeze_arrays
from learners.kernels.scaled_arithmetic import STEP, scaled_exp, scaled_log, scaled_subset_sums
from learners.orders.lattice.lattice_kernels import (
    Lattice,
    fill_lattice_steps,
    lattice_backward_sums,
    lattice_forward_sums,
    lattice_step_probabilities,
)
from learners.orders.scores.bdeu_bge import BGe, Standard
from learners.orders.scores.known_edges import Edges, condition_scores_on_edges
from learners.orders.scores.scores import FamilyScores

# Bytes of a step: its node, its target and its place.
_STEP_BYTES = 9


def complete_lattice_bytes(d: int) -> int:
    """Return the bytes needed for the steps of the lattice of all orders of d nodes."""
    return _STEP_BYTES * d << (d - 1)


def lattice_of_all_orders(scores: FamilyScores) -> Lattice:
    """Return the lattice of all orders."""
    return lattice_from_node_sets(np.arange(1 << scores.d, dtype=np.uint64), scores)


def lattice_from_node_sets(sets: Uint64s, scores: FamilyScores) -> Lattice:
    """Build the lattice of some sets of nodes, ascending, from the empty set to the set of all nodes.

    Its orders are those whose prefixes are all among the sets.
    """
    freeze_arrays(sets)
    starts, n_steps = np.zeros(sets.size + 1, np.int64), np.zeros(sets.size, np.int64)
    fill_lattice_steps(scores.d, scores.starts, scores.byte_places, n_steps, _with_room(sets, starts))
    np.cumsum(n_steps, out=starts[1:])
    lattice = _with_room(sets, starts)
    fill_lattice_steps(scores.d, scores.starts, scores.byte_places, starts[:-1].copy(), lattice)
    freeze_arrays(*lattice)
    return lattice


def _with_room(sets: Uint64s, starts: Integers) -> Lattice:
    """Allocate a lattice for the number of steps in `starts`."""
    total = int(starts[-1])
    return Lattice(sets, starts, np.empty(total, np.uint8), np.empty(total, np.int32), np.empty(total, np.int32))


class Scaled(NamedTuple):
    """Numbers mantissa * 2^(256 exponent), see `scaled_arithmetic`."""

    mantissa: Floats
    exponent: NDArray[np.int32]

    @classmethod
    def empty(cls, n: int) -> Scaled:
        """Allocate n scaled numbers."""
        return cls(np.empty(n), np.empty(n, np.int32))

    def of(self, part: slice) -> Scaled:
        """Return views of a slice."""
        return Scaled(self.mantissa[part], self.exponent[part])

    @property
    def logs(self) -> Floats:
        """Logarithms of the numbers."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.mantissa) + STEP * self.exponent)


@dataclass(frozen=True)
class OrderSums:
    """Sums over the orders of a lattice and over the graphs that satisfy given edges."""

    scores: FamilyScores  # with -inf for the families that the given edges forbid
    lattice: Lattice
    shifts: Floats  # (d,) float64: the largest log score of each node, by which its numbers are divided
    alpha: Scaled  # (total,): for each node and each set of its candidates, the sum over all parent sets within it
    # before, after (n,): for each set of the lattice, the sum over the orders up to it, and from it on.
    before: Scaled
    after: Scaled

    @property
    def log_z(self) -> float:
        """Log of the sum over all pairs of an order and a graph; -inf without any."""
        return float(scaled_log(self.after.mantissa[0], int(self.after.exponent[0])) + self.shifts.sum())

    def step_shares(self) -> Floats:
        """Probability of each lattice step to be the last one into its target, (E,) float64."""
        shares = np.empty(self.lattice.nodes.size)
        lattice_step_probabilities(self.lattice, *self.alpha, *self.before, shares)
        return shares


def scaled_family_scores(scores: FamilyScores) -> tuple[Scaled, Floats]:
    """Convert every family's score to a scaled number relative to its node's largest; returns them and the largest
    logs.
    """
    numbers = Scaled.empty(scores.logs.size)
    shifts = np.zeros(scores.d)
    for node in range(scores.d):
        logs = scores.of(node)
        largest = float(logs.max())
        shifts[node] = largest if np.isfinite(largest) else 0.0
        scaled_exp(logs, shifts[node], *numbers.of(scores.part(node)))
    return numbers, shifts


def parent_subset_sums(scores: FamilyScores) -> tuple[Scaled, Floats]:
    """Sum over all parent sets within each set of each node's candidates; returns the sums and their log divisors."""
    alpha, shifts = scaled_family_scores(scores)
    for node in range(scores.d):
        scaled_subset_sums(*alpha.of(scores.part(node)))
    return alpha, shifts


def lattice_forward_backward_sums(lattice: Lattice, alpha: Scaled) -> tuple[Scaled, Scaled]:
    """Return for each set of a lattice the sum over the orders up to it, and after it."""
    before, after = Scaled.empty(lattice.sets.size), Scaled.empty(lattice.sets.size)
    lattice_forward_sums(lattice, *alpha, *before)
    lattice_backward_sums(lattice, *alpha, *after)
    return before, after


def lattice_order_sums(scores: FamilyScores, lattice: Lattice, edges: Edges | None = None) -> OrderSums:
    """Compute the sums, given edges known to be present or absent.

    References: Koivisto, Sood (2004), section 3; Wang, Wicker, Kwiatkowska (2022), section 4.4.
    """
    conditioned = scores if edges is None else condition_scores_on_edges(scores, edges)
    alpha, shifts = parent_subset_sums(conditioned)
    return OrderSums(conditioned, lattice, shifts, alpha, *lattice_forward_backward_sums(lattice, alpha))


class Share(NamedTuple):
    """A share of draws with a 95 % interval."""

    share: float = 1.0
    low: float = 1.0
    high: float = 1.0


class Coverage(NamedTuple):
    """Share of the posterior that the lattice covers."""

    is_exact: bool = True  # whether it holds all orders
    orders: Share = Share()  # of draws whose order is in the lattice
    graphs: Share = Share()  # of draws whose graph has an order in the lattice
    n_draws: int = 0  # independent draws of a Markov chain

    def facts(self) -> dict[str, object]:
        """Return the coverage as a dict for answers."""
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
    """Posterior over orders and graphs."""

    scores: FamilyScores
    sets: Uint64s | None  # (n,) uint64 or None: of the lattice, ascending; None for all sets
    coverage: Coverage
    bge: BGe | None  # of Gaussian data
    standard: Standard  # how the columns became those that were scored

    @cached_property
    def most_parents(self) -> int:
        """Largest number of parents with a score."""
        possible = np.flatnonzero(self.scores.logs > -np.inf)
        starts = self.scores.starts
        node = np.searchsorted(starts, possible, side="right") - 1
        return int(np.bitwise_count(possible - starts[node]).max(initial=0))

    @property
    def limits(self) -> dict[str, int | None]:
        """Limits of the sum over graphs: `max_parents` and `candidates`, None if unlimited."""
        free, most = self.scores.d - 1, self.most_parents
        n = max(own.size for own in self.scores.candidates)
        return {"max_parents": None if most >= free else most, "candidates": None if n >= free else int(n)}

    def facts(self, coverage: Coverage) -> dict[str, object]:
        """Return a coverage as a dict for answers, with the limits."""
        return coverage.facts() | {"limits": self.limits}

    @property
    def leaves_out(self) -> bool:
        """True if some parent sets have no score."""
        return any(limit is not None for limit in self.limits.values())

    @cached_property
    def lattice(self) -> Lattice:
        """Lattice with its steps."""
        return (
            lattice_of_all_orders(self.scores) if self.sets is None else lattice_from_node_sets(self.sets, self.scores)
        )

    @cached_property
    def prior_sums(self) -> OrderSums:
        """Sums without known edges."""
        return lattice_order_sums(self.scores, self.lattice)

    def sums(self, edges: Edges) -> OrderSums:
        """Return the sums given known edges."""
        return lattice_order_sums(self.scores, self.lattice, edges) if edges else self.prior_sums
