"""Posteriors over the orders of a lattice that grows where they are."""

from __future__ import annotations

import numpy as np

from learners.orders.lattice.coverage import coverage_of
from learners.orders.lattice.growth import grown_sets
from learners.orders.lattice.lattice import lattice_of
from learners.orders.lattice.order_mcmc import N_CHAINS, OrderTarget, beginnings, draw_chain_orders
from learners.orders.lattice.posterior import OrderPosterior
from learners.orders.parameters import OrderParameters
from learners.orders.scores.bge import BGe, Standard
from learners.orders.scores.scores import FamilyScores
from learners.passes.engine import Advance

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

    Parameters
    ----------
    scores : FamilyScores
        There is an order that they allow.
    """
    target = OrderTarget.of(scores)
    seeds = draw_chain_orders(target, SEED_DRAWS, 2 * parameters.seed)
    sets = grown_sets(target, np.unique(beginnings(seeds)), parameters.sets, advance)
    lattice = lattice_of(sets, scores)
    n = -(-parameters.draws // N_CHAINS)
    orders = draw_chain_orders(target, n, 2 * parameters.seed + 1)
    return OrderPosterior(scores, sets, coverage_of(target, lattice, orders, parameters.seed), bge, standard)
