"""Orders drawn by Markov chains: where a lattice begins to grow, and how its coverage is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from learners.kernels.arrays import Floats, Integers, Uint64s
from learners.orders.lattice.draw_kernels import first_order, walk
from learners.orders.lattice.forward_backward import Scaled, sums_within
from learners.orders.scores.scores import FamilyScores

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
