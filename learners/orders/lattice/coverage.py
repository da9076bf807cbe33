"""Posteriors over the orders of a lattice that grows where they are, and how much of all orders it holds."""

from __future__ import annotations

import numpy as np
import scipy

from learners.kernels.arrays import Integers, Mask, Uint64s
from learners.orders.lattice.graphs import draw_families
from learners.orders.lattice.growth import N_CHAINS, OrderTarget, beginnings, draw_chain_orders, grown_sets
from learners.orders.lattice.lattice import Lattice, lattice_of
from learners.orders.lattice.lattice_kernels import count_orders, place_of
from learners.orders.lattice.posterior import Coverage, OrderPosterior, Share
from learners.orders.parameters import OrderParameters
from learners.orders.scores.bge import BGe, Standard
from learners.orders.scores.scores import FamilyScores
from learners.passes.engine import Advance

LEVEL = 0.95
# Of each chain, from whose orders a lattice grows.
SEED_DRAWS = 8


def covered_posterior(
    scores: FamilyScores,
    parameters: OrderParameters,
    bge: BGe | None,
    standard: Standard,
    advance: Advance | None = None,
) -> OrderPosterior:
    """The posterior over the orders of a lattice that grows to `parameters.sets` sets, with its coverage.

    scores: there is an order that they allow.
    """
    target = OrderTarget.of(scores)
    seeds = draw_chain_orders(target, SEED_DRAWS, 2 * parameters.seed)
    sets = grown_sets(target, np.unique(beginnings(seeds)), parameters.sets, advance)
    lattice = lattice_of(sets, scores)
    n = -(-parameters.draws // N_CHAINS)
    orders = draw_chain_orders(target, n, 2 * parameters.seed + 1)
    return OrderPosterior(scores, sets, coverage_of(target, lattice, orders, parameters.seed), bge, standard)


def coverage_of(target: OrderTarget, lattice: Lattice, orders: Integers, seed: int) -> Coverage:
    """The shares of drawn orders, and of a graph drawn given each, that the lattice holds.

    orders (n_chains, n, d) int64 are of chains that did not make the lattice.
    """
    sets = beginnings(orders)
    places = np.minimum(np.searchsorted(lattice.sets, sets), lattice.sets.size - 1)
    by_order = (lattice.sets[places] == sets).all(axis=-1)
    by_graph = by_order.copy()
    missing = ~by_order
    if missing.any():
        by_graph[missing] = _have_orders(lattice, _graphs_of(target, orders[missing], sets[missing], seed))
    return Coverage(False, binomial_share(by_order), binomial_share(by_graph), by_order.size)


def _graphs_of(target: OrderTarget, orders: Integers, sets: Uint64s, seed: int) -> Uint64s:
    """(n, d) uint64: a graph drawn given each order (n, d), the parents of each node as bits."""
    scores, rng = target.scores, np.random.default_rng([seed, 2])
    before = np.take_along_axis(sets, np.argsort(orders, axis=1), axis=1)
    places = [
        [place_of(own, node, scores.starts, scores.byte_places) for own in before[:, node]] for node in range(scores.d)
    ]
    return draw_families(scores, np.array(places, np.int64).T, rng)[0]


def _have_orders(lattice: Lattice, graphs: Uint64s) -> Mask:
    """(n,) bool: which graphs (n, d) have an order in the lattice."""
    m, e = np.empty(lattice.sets.size), np.empty(lattice.sets.size, np.int32)
    return np.array([count_orders(lattice, parents, m, e)[0] > 0 for parents in graphs])


def binomial_share(is_covered: Mask) -> Share:
    """The share of draws (n_chains, n), and its Clopper-Pearson interval at 95 %.

    Draws of a chain depend on each other: they count as many as give the variance between the chains' own shares.

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
