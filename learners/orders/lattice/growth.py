"""Lattices that grow where the posterior is, from the orders of Markov chains."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.kernels.arrays import Floats, Integers, Uint64s
from learners.orders.lattice.draw_kernels import first_order, walk
from learners.orders.lattice.forward_backward import Scaled, sums_along, sums_within
from learners.orders.lattice.growth_kernels import NONE, promising_sets, set_masses
from learners.orders.lattice.lattice import Lattice, lattice_of
from learners.orders.scores.scores import FamilyScores
from learners.passes.engine import Advance

# Sets that add at least this share are taken first; then the threshold falls, until the lattice is full.
FIRST_THRESHOLD = 1e-2
LAST_THRESHOLD = 1e-13
FALL = 4.0
ROUNDS = 2
# A round that adds less than this share of the sets is the last at its threshold.
WORTHWHILE = 0.1
# Steps of a chain for each node, before the first draw and between two of them.
STEPS_AT_FIRST = 4000
STEPS_BETWEEN = 50
N_CHAINS = 8


@dataclass(frozen=True)
class OrderTarget:
    """The posterior over orders."""

    scores: FamilyScores
    alpha: Scaled  # (total,): sums over parent sets within each set of candidates
    shifts: Floats  # (d,) float64: logs by which they are divided

    @classmethod
    def of(cls, scores: FamilyScores) -> OrderTarget:
        """That of some scores."""
        return cls(scores, *sums_within(scores))


def draw_chain_orders(target: OrderTarget, n: int, seed: int, n_chains: int = N_CHAINS) -> Integers:
    """(n_chains, n, d) int64: the nodes in turn, in orders of independent chains, each from a random start.

    There is an order with a positive sum. Between two draws there are `STEPS_BETWEEN` steps for each node.
    """
    scores, d = target.scores, target.scores.d
    log_alpha = target.alpha.logs
    drawn = np.empty((n_chains, n, d), np.int64)
    for chain in range(n_chains):
        rng = np.random.default_rng([seed, chain])
        order = np.empty(d, np.int64)
        first_order(log_alpha, scores.starts, scores.byte_places, rng.random(d), order)
        for draw in range(n):
            n_steps = d * (STEPS_BETWEEN if draw else STEPS_AT_FIRST)
            walk(order, 1.0, rng.random((n_steps, 4)), log_alpha, scores.starts, scores.byte_places)
            drawn[chain, draw] = order
    return drawn


def beginnings(orders: Integers) -> Uint64s:
    """(..., d + 1) uint64: the sets of the first 0 to d nodes of orders (..., d)."""
    bits = np.uint64(1) << orders.astype(np.uint64)
    sets = np.zeros((*orders.shape[:-1], orders.shape[-1] + 1), np.uint64)
    np.cumsum(bits, axis=-1, out=sets[..., 1:])
    return sets


def grown_sets(target: OrderTarget, sets: Uint64s, most_sets: int, advance: Advance | None = None) -> Uint64s:
    """(m,) uint64, ascending: sets of a lattice to which those are added, again and again, that add the most mass.

    What a lattice sums is a lower bound of the sum over all orders, its evidence lower bound at the best weights: so
    each set is chosen by how much the bound gains. The given sets (n,), ascending and with at least one order among
    them, are all kept. `advance` is called with the sets so far and the most there may be; may raise.
    """
    threshold, n_rounds = FIRST_THRESHOLD, 0
    while sets.size < most_sets and threshold >= LAST_THRESHOLD:
        if advance is not None:
            advance(sets.size, most_sets)
        found, gains = _promising(target, lattice_of(sets, target.scores), threshold)
        if found.size > most_sets - sets.size:
            best = np.argsort(-gains, kind="stable")[: most_sets - sets.size]
            found = found[best]
        n_before = sets.size
        sets = np.union1d(sets, found)
        n_rounds += 1
        if found.size < WORTHWHILE * n_before or n_rounds >= ROUNDS:
            threshold, n_rounds = threshold / FALL, 0
    return sets


def _promising(target: OrderTarget, lattice: Lattice, threshold: float) -> tuple[Uint64s, np.ndarray]:
    """The sets that add at least as much as the threshold, ascending, and what they add."""
    alpha, n = target.alpha, lattice.sets.size
    before, after = sums_along(lattice, alpha)
    masses = np.empty(n)
    set_masses(*before, *after, masses)
    families = (target.scores.starts, target.scores.byte_places)
    size = 4 << int(2 * n).bit_length()
    while True:
        found, gains = np.empty(size, np.uint64), np.empty(size)
        n_found = promising_sets(lattice, *alpha, *after, masses, threshold, families, found, gains)
        if n_found >= 0:
            break
        size *= 2
    chosen = np.flatnonzero(found != NONE)
    chosen = chosen[gains[chosen] >= threshold]
    order = np.argsort(found[chosen])
    return found[chosen][order], gains[chosen][order]
