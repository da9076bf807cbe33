"""Posteriors over a lattice of orders that is grown around samples of Markov chains, and the share of all orders that
it covers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from learners.kernels.arrays import Floats, Integers, Mask, Uint64s
from learners.orders.lattice.draw_kernels import run_order_metropolis_steps
from learners.orders.lattice.graph_samples import draw_parent_sets
from learners.orders.lattice.lattice import (
    Coverage,
    OrderPosterior,
    Scaled,
    Share,
    lattice_forward_backward_sums,
    lattice_from_node_sets,
    parent_subset_sums,
)
from learners.orders.lattice.lattice_kernels import (
    NONE,
    Lattice,
    count_graph_orders_in_lattice,
    lattice_extension_candidates,
    parent_set_score_index,
    scaled_product_ratios,
)
from learners.orders.parameters import OrderParameters
from learners.orders.scores.bdeu_bge import BGe, Standard
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
        """Create the distribution over orders from the scores of all families."""
        return cls(scores, *parent_subset_sums(scores))


def draw_markov_chain_orders(target: OrderTarget, n: int, seed: int, n_chains: int = N_CHAINS) -> Integers:
    """Draw orders by independent Markov chains from random starts, (n_chains, n, d) int64.

    Some order must have a positive sum. There are `STEPS_BETWEEN` steps per node between two draws.
    """
    scores, d = target.scores, target.scores.d
    log_alpha = target.alpha.logs
    drawn = np.empty((n_chains, n, d), np.int64)
    for chain in range(n_chains):
        rng = np.random.default_rng([seed, chain])
        order = _first_order(scores, log_alpha, rng.random(d))
        for draw in range(n):
            n_steps = d * (STEPS_BETWEEN if draw else STEPS_AT_FIRST)
            run_order_metropolis_steps(
                order, 1.0, rng.random((n_steps, 4)), log_alpha, scores.starts, scores.byte_places
            )
            drawn[chain, draw] = order
    return drawn


def _first_order(scores: FamilyScores, log_alpha: Floats, uniforms: Floats) -> Integers:
    """Return a random order (d,) int64 in which every node has possible parents among its predecessors; uniforms (d,)."""
    before, order = 0, []
    for u in uniforms.tolist():
        places = {
            node: parent_set_score_index(np.uint64(before), node, scores.starts, scores.byte_places)
            for node in range(scores.d)
            if not (before >> node) & 1
        }
        possible = [node for node, place in places.items() if log_alpha[place] > -np.inf]
        order.append(possible[int(u * len(possible))])
        before |= 1 << order[-1]
    return np.array(order, np.int64)


def order_prefix_sets(orders: Integers) -> Uint64s:
    """Return the sets of the first 0 to d nodes of orders (..., d), (..., d + 1) uint64."""
    bits = np.uint64(1) << orders.astype(np.uint64)
    sets = np.zeros((*orders.shape[:-1], orders.shape[-1] + 1), np.uint64)
    np.cumsum(bits, axis=-1, out=sets[..., 1:])
    return sets


def grow_lattice_sets(target: OrderTarget, sets: Uint64s, most_sets: int, advance: Advance | None = None) -> Uint64s:
    """Grow a lattice by repeatedly adding the sets with the most mass; returns its sets (m,) uint64, ascending.

    The lattice's sum is a lower bound of the sum over all orders, the evidence lower bound at the best weights,
    so each set is chosen by its gain in the bound. The given sets (n,), ascending and with at least one order
    among them, are all kept. `advance` receives the number of sets so far and the maximum, and may raise.
    """
    threshold, n_rounds = FIRST_THRESHOLD, 0
    while sets.size < most_sets and threshold >= LAST_THRESHOLD:
        if advance is not None:
            advance(sets.size, most_sets)
        promising, gains = _promising(target, lattice_from_node_sets(sets, target.scores), threshold)
        if promising.size > most_sets - sets.size:
            best = np.argsort(-gains, kind="stable")[: most_sets - sets.size]
            promising = promising[best]
        n_before = sets.size
        sets = np.union1d(sets, promising)
        n_rounds += 1
        if promising.size < WORTHWHILE * n_before or n_rounds >= ROUNDS:
            threshold, n_rounds = threshold / FALL, 0
    return sets


def _promising(target: OrderTarget, lattice: Lattice, threshold: float) -> tuple[Uint64s, np.ndarray]:
    """Return the sets that add at least the threshold, ascending, and their gains."""
    alpha, n = target.alpha, lattice.sets.size
    before, after = lattice_forward_backward_sums(lattice, alpha)
    masses = np.empty(n)
    scaled_product_ratios(*before, *after, (float(after.mantissa[0]), int(after.exponent[0])), masses)
    families = (target.scores.starts, target.scores.byte_places)
    size = 4 << int(2 * n).bit_length()
    while True:
        found, gains = np.empty(size, np.uint64), np.empty(size)
        n_found = lattice_extension_candidates(lattice, *alpha, *after, masses, threshold, families, found, gains)
        if n_found >= 0:
            break
        size *= 2
    chosen = np.flatnonzero(found != NONE)
    chosen = chosen[gains[chosen] >= threshold]
    order = np.argsort(found[chosen])
    return found[chosen][order], gains[chosen][order]


LEVEL = 0.95
# Steps of each chain whose orders grow a lattice.
SEED_DRAWS = 8


def order_posterior_with_coverage(
    scores: FamilyScores,
    parameters: OrderParameters,
    bge: BGe | None,
    standard: Standard,
    advance: Advance | None = None,
) -> OrderPosterior:
    """Compute the posterior over a lattice of orders that grows to `parameters.sets` sets, with its coverage.

    scores: they must allow an order.
    """
    target = OrderTarget.of(scores)
    seeds = draw_markov_chain_orders(target, SEED_DRAWS, 2 * parameters.seed)
    sets = grow_lattice_sets(target, np.unique(order_prefix_sets(seeds)), parameters.sets, advance)
    lattice = lattice_from_node_sets(sets, scores)
    n = -(-parameters.draws // N_CHAINS)
    orders = draw_markov_chain_orders(target, n, 2 * parameters.seed + 1)
    return OrderPosterior(scores, sets, lattice_coverage(target, lattice, orders, parameters.seed), bge, standard)


def lattice_coverage(target: OrderTarget, lattice: Lattice, orders: Integers, seed: int) -> Coverage:
    """Return the shares of drawn orders, and of a graph drawn given each, that the lattice covers.

    orders (n_chains, n, d) int64 must come from chains that were not used to grow the lattice.
    """
    sets = order_prefix_sets(orders)
    places = np.minimum(np.searchsorted(lattice.sets, sets), lattice.sets.size - 1)
    by_order = (lattice.sets[places] == sets).all(axis=-1)
    by_graph = by_order.copy()
    missing = ~by_order
    if missing.any():
        graphs = _graphs_of(target, orders[missing], sets[missing], seed)
        m, e = np.empty(lattice.sets.size), np.empty(lattice.sets.size, np.int32)
        by_graph[missing] = [count_graph_orders_in_lattice(lattice, parents, m, e)[0] > 0 for parents in graphs]
    return Coverage(False, clopper_pearson_coverage(by_order), clopper_pearson_coverage(by_graph), by_order.size)


def _graphs_of(target: OrderTarget, orders: Integers, sets: Uint64s, seed: int) -> Uint64s:
    """Draw a graph given each order (n, d); returns the parents of each node as bits, (n, d) uint64."""
    scores, rng = target.scores, np.random.default_rng([seed, 2])
    before = np.take_along_axis(sets, np.argsort(orders, axis=1), axis=1)
    places = [
        [parent_set_score_index(own, node, scores.starts, scores.byte_places) for own in before[:, node]]
        for node in range(scores.d)
    ]
    return draw_parent_sets(scores, np.array(places, np.int64).T, rng)[0]


def clopper_pearson_coverage(is_covered: Mask) -> Share:
    """Return the share of covered draws (n_chains, n), and its 95 % Clopper-Pearson interval.

    Draws of a chain are dependent, so the effective number of draws is the one that explains the variance between
    the chains' shares.

    References: Clopper, Pearson (1934), The use of confidence or fiducial limits illustrated in the case of the
    binomial.
    """
    n_chains, n = is_covered.shape
    share = float(is_covered.mean())
    size = float(n_chains * n)
    if n_chains > 1 and 0 < share < 1:
        of_mean = float(is_covered.mean(axis=1).var(ddof=1)) / n_chains
        if of_mean > 0:
            size = min(size, max(float(n_chains), share * (1 - share) / of_mean))
    hits = share * size
    low = float(scipy.special.betaincinv(hits, size - hits + 1, (1 - LEVEL) / 2)) if share > 0 else 0.0
    high = float(scipy.special.betaincinv(hits + 1, size - hits, (1 + LEVEL) / 2)) if share < 1 else 1.0
    return Share(share, low, high)
