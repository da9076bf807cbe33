"""Causal effects in linear Gaussian networks, averaged over structures and coefficients."""

from __future__ import annotations

import numpy as np

from learners.kernels.arrays import Floats
from learners.orders.lattice.forward_backward import OrderSums, scaled_families
from learners.orders.lattice.graphs import DrawnGraphs
from learners.orders.queries.effect_kernels import average_over_subsets, coefficients, effects_of, graph_effects
from learners.orders.scores.bge import BGe

# Draws are made so many at a time.
BLOCK = 500


def mean_effects(sums: OrderSums, bge: BGe) -> Floats:
    """(d, d) float64: [i, j] the expected effect of i on j, exactly: over orders, graphs and coefficients.

    The expectation of a product of coefficients of different nodes is that of their means, as the parameters of
    different nodes are independent given the graph.

    References: Wang, Wicker, Kwiatkowska (2022), section 4.4 and appendix C.
    """
    scores, lattice, d = sums.scores, sums.lattice, sums.scores.d
    tables = _mean_coefficients(sums, bge)
    betas = np.concatenate([table.ravel() for table in tables])
    beta_starts = np.cumsum([0, *(table.size for table in tables)])
    most = max(1, *(candidates.size for candidates in scores.candidates))
    candidates = np.full((d, most), -1, np.int64)
    for node, own in enumerate(scores.candidates):
        candidates[node, : own.size] = own
    shares, found = sums.step_shares(), np.empty((d, d))
    effects = np.empty((lattice.sets.size, d))
    for source in range(d):
        effects[:] = 0.0
        effects_of(source, lattice, shares, betas, beta_starts, scores.starts, candidates, effects)
        found[source] = effects[-1]
    return found


def mean_effects_bytes(sums: OrderSums) -> int:
    """Memory that `mean_effects` takes."""
    tables = sum(8 * candidates.size << candidates.size for candidates in sums.scores.candidates)
    return 2 * tables + 8 * sums.lattice.nodes.size + 8 * sums.lattice.sets.size * sums.scores.d


def _mean_coefficients(sums: OrderSums, bge: BGe) -> list[Floats]:
    """Of each node, (2^k, k): the mean coefficients given that the parents are among a set of candidates."""
    numbers, _ = scaled_families(sums.scores)
    scale = bge.scale
    tables = []
    for node, candidates in enumerate(sums.scores.candidates):
        k = candidates.size
        members = np.concatenate([candidates, [node]])
        table = np.empty((1 << k, k))
        coefficients(np.ascontiguousarray(scale[np.ix_(members, members)]), np.empty((k + 1, k + 1, k + 1)), table)
        average_over_subsets(table, *numbers.of(sums.scores.part(node)))
        tables.append(table)
    return tables


def draw_effects(graphs: DrawnGraphs, bge: BGe, seed: int) -> tuple[Floats, Floats]:
    """(n, d, d) float64 each: effects in drawn graphs by their mean coefficients, and by coefficients drawn from their posterior."""
    n, d = graphs.parents.shape
    rng = np.random.default_rng([seed, 1])
    means, draws = np.empty((n, d, d)), np.empty((n, d, d))
    degrees = bge.degrees + np.bitwise_count(graphs.parents) + 1.0
    for first in range(0, n, BLOCK):
        part = slice(first, min(first + BLOCK, n))
        size = part.stop - part.start
        graph_effects(
            bge.scale,
            graphs.orders[part],
            graphs.parents[part],
            rng.chisquare(degrees[part]),
            rng.standard_normal((size, d, d)),
            means[part],
            draws[part],
        )
    return means, draws
