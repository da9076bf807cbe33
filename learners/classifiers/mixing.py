"""Levels of a context tree, each mixed with the one above: by what weight, and which tell nothing of a value."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from learners.arrays import Floats
from learners.classifiers.context_tree import ContextTree, Levels
from learners.classifiers.structure import Structure

CONCENTRATIONS = tuple(2.0**power for power in range(10, -4, -1))
"""How many rows the level above may weigh; of equally good ones the first."""

WEIGHTS = np.array(CONCENTRATIONS)[:, None]
BLOCK_CELLS, FEW_CELLS = 1 << 15, 256

CHANCE_NATS = 3.0
"""What a parent that tells nothing may add, over all rows, by chance: it makes the rows twenty times as probable."""


def best_concentration(n: Floats, total: Floats, from_above: Floats) -> float:
    """The concentration of `CONCENTRATIONS` under which rows are most probable, each predicted from the others.

    Parameters
    ----------
    n, total : (m,) float64
        Rows of each cell, and of its context.
    from_above : (m,) float64
        Probability of the value at the level above, without the row.

    References
    ----------
    Ney, Essen, Kneser (1994), On structuring probabilistic dependences in stochastic language modelling, section 4.
    """
    scores = np.zeros(len(CONCENTRATIONS))
    for first in range(0, n.size, BLOCK_CELLS):  # which stays in the cache for all of them
        block = slice(first, first + BLOCK_CELLS)
        several = total[block] > 1
        rows, others, above = n[block][several], total[block][several] - 1, from_above[block][several]
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

    The estimate of a level mixes its frequencies with the level above (`best_concentration`).

    Parameters
    ----------
    grown : Levels

    Returns
    -------
    int
        The fewest of those as good as the best, to `CHANCE_NATS`.
    """
    scores: list[float] = []
    left_out = np.empty(0)
    for number, level in enumerate(grown.levels):
        n = level.n_rows.astype(np.float64)
        total = np.bincount(level.node, n, level.above.size)[level.node]
        if number == 0:
            left_out = (n - 1 + 1.0 / grown.n_values) / np.maximum(total, 1.0)
            continue
        from_above = left_out[level.cell_above]
        weight = best_concentration(n, total, from_above)
        left_out = np.multiply(weight, from_above, out=from_above)
        left_out += n - 1
        left_out /= np.add(total, weight - 1, out=total)
        scores.append(float(np.multiply(n, np.log(left_out, out=total), out=n).sum()))
    best = max(scores, default=0.0)
    return next((level for level, score in enumerate(scores) if score >= best - CHANCE_NATS), 0)


def pruned(structure: Structure, grown: Iterable[Levels]) -> tuple[Structure, list[ContextTree]]:
    """A structure and its trees without the last parents of each attribute that tell nothing of it beyond those before.

    Parameters
    ----------
    structure : Structure
    grown : iterable of Levels
        One per entry of `structure.order`. Only what stays of each becomes a tree, before the next is asked for, so that whole
        trees are never in memory together.
    """
    parents, kept = [], []
    given = iter(structure.parents)
    for levels in grown:  # alone: `zip` keeps what it gave last until it has the next
        depth = telling_levels(levels)
        parents.append(next(given)[:depth])
        kept.append(levels.tree(depth))
        del levels
    return Structure(structure.order, tuple(parents)), kept
