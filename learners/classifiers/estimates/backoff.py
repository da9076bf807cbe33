"""Levels of a context tree, each mixed with the one above: by what weight, and which tell nothing of a value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Level, Levels
from learners.classifiers.structure import Structure
from learners.kernels.arrays import Floats

CONCENTRATIONS = tuple(2.0**power for power in range(10, -4, -1))
"""How many rows the level above may weigh; of equally good ones the first."""

WEIGHTS = np.array(CONCENTRATIONS)[:, None]
BLOCK_CELLS, FEW_CELLS = 1 << 15, 256

CHANCE_NATS = 3.0
"""What a parent that tells nothing may add, over all rows, by chance: it makes the rows twenty times as probable."""


def totals_of(level: Level) -> Floats:
    """(n_nodes,) float64: rows of each context."""
    totals = np.zeros(level.above.size)
    for first in range(0, level.node.size, BLOCK_CELLS):  # so that nothing is copied whole
        node = level.node[first : first + BLOCK_CELLS]
        sums = np.bincount(node - node[0], level.n_rows[first : first + BLOCK_CELLS])
        totals[node[0] : node[0] + sums.size] += sums
    return totals


def _blocks(level: Level, totals: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
    """Some cells after the others, which stay in the cache: where they are, their rows and those of their contexts."""
    for first in range(0, level.node.size, BLOCK_CELLS):
        block = slice(first, first + BLOCK_CELLS)
        yield block, level.n_rows[block].astype(np.float64), totals[level.node[block]]


def mixed(level: Level, totals: Floats, above: Floats, weight: float, n_left_out: int = 0) -> Floats:
    """(m,) float64: the frequency of each cell in its context, mixed with what the level above says.

    `totals` (n_nodes,) float64 as of `totals_of`; `above` (m_above,) float64 of each cell of the level above, which
    weighs `weight` rows. `n_left_out` rows are missing from the cell and from its context.
    """
    found = np.empty(level.node.size)
    for block, n, total in _blocks(level, totals):
        share = weight * above[level.cell_above[block]]
        found[block] = (n - n_left_out + share) / (total - n_left_out + weight)
    return found


def best_concentration(level: Level, totals: Floats, left_out: Floats) -> float:
    """The concentration of `CONCENTRATIONS` under which rows are most probable, each predicted from the others.

    `totals` (n_nodes,) float64 as of `totals_of`; `left_out` (m_above,) float64 is the probability of each cell of the
    level above, without the row.

    References
    ----------
    Ney, Essen, Kneser (1994), On structuring probabilistic dependences in stochastic language modelling, section 4.
    """
    scores = np.zeros(len(CONCENTRATIONS))
    for block, n, total in _blocks(level, totals):
        several = total > 1
        rows, others, above = n[several], total[several] - 1, left_out[level.cell_above[block][several]]
        fewer = rows - 1
        if rows.size <= FEW_CELLS:  # where calling numpy takes longest
            share = (fewer + WEIGHTS * above) / (others + WEIGHTS)
            scores += (rows * np.log(share)).sum(axis=1)
            continue
        share, place = np.empty_like(rows), np.empty_like(rows)
        for i, a in enumerate(CONCENTRATIONS):  # n log((n - 1 + a from_above) / (total - 1 + a))
            np.add(fewer, np.multiply(a, above, out=share), out=share)
            np.divide(share, np.add(others, a, out=place), out=share)
            # A scalar product of BLAS has threads of its own, which spin: they took twenty times as long as the work itself.
            scores[i] += np.multiply(rows, np.log(share, out=share), out=share).sum()
    return CONCENTRATIONS[int(np.argmax(scores))]


def telling_levels(grown: Levels) -> int:
    """How many of its first parents predict an attribute best, each row predicted from all others.

    The estimate of a level mixes its frequencies with the level above (`best_concentration`). The fewest of those as
    good as the best, to `CHANCE_NATS`.
    """
    scores: list[float] = []
    left_out = np.empty(0)
    for number, level in enumerate(grown.levels):
        totals = totals_of(level)
        if number == 0:
            left_out = (level.n_rows - 1 + 1.0 / grown.n_values) / np.maximum(totals, 1.0)
            continue
        left_out = mixed(level, totals, left_out, best_concentration(level, totals, left_out), 1)
        scores.append(sum(float((n * np.log(left_out[block])).sum()) for block, n, _ in _blocks(level, totals)))
    best = max(scores, default=0.0)
    return next((level for level, score in enumerate(scores) if score >= best - CHANCE_NATS), 0)


def pruned(structure: Structure, grown: Iterable[Levels]) -> tuple[Structure, list[ContextTree]]:
    """A structure and its trees without the last parents of each attribute that tell nothing of it beyond those before.

    `grown` has one per entry of `structure.order`. Only what stays of each becomes a tree, before the next is asked
    for, so that whole trees are never in memory together.
    """
    parents, kept = [], []
    given = iter(structure.parents)
    for levels in grown:  # alone: `zip` keeps what it gave last until it has the next
        depth = telling_levels(levels)
        parents.append(next(given)[:depth])
        kept.append(levels.tree(depth))
        del levels
    return Structure(structure.order, tuple(parents)), kept
