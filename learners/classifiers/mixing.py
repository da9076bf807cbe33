"""Levels of a context tree, each mixed with the one above: by what weight, and which tell nothing of a value."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from learners.arrays import Floats
from learners.classifiers.context_tree import ContextTree
from learners.classifiers.structure import Structure

CONCENTRATIONS = tuple(2.0**power for power in range(10, -4, -1))
"""How many rows the level above may weigh; of equally good ones the first."""

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
    several = total > 1
    n, total, from_above = n[several], total[several], from_above[several]
    # A scalar product of BLAS has threads of its own, which spin: they took twenty times as long as the work itself.
    scores = [float((n * np.log((n - 1 + a * from_above) / (total - 1 + a))).sum()) for a in CONCENTRATIONS]
    return CONCENTRATIONS[int(np.argmax(scores))]


def telling_levels(tree: ContextTree) -> int:
    """How many of its first parents predict an attribute best, each row predicted from all others.

    The estimate of a level mixes its frequencies with the level above (`best_concentration`).

    Parameters
    ----------
    tree : ContextTree

    Returns
    -------
    int
        The fewest of those as good as the best, to `CHANCE_NATS`.
    """
    node_of_cell, totals = tree.node_of_cell(), tree.node_counts()
    n, total = tree.cell_count.astype(np.float64), totals[node_of_cell].astype(np.float64)
    left_out = (n - 1 + 1.0 / tree.n_values) / np.maximum(total, 1.0)
    scores = []
    for level in range(1, tree.level_starts.size - 1):
        nodes = tree.level_starts[level : level + 2]
        cells = slice(*(int(end) for end in tree.cell_starts[nodes]))
        from_above = left_out[tree.cell_parent[cells]]
        weight = best_concentration(n[cells], total[cells], from_above)
        left_out[cells] = (n[cells] - 1 + weight * from_above) / (total[cells] - 1 + weight)
        scores.append(float((n[cells] * np.log(left_out[cells])).sum()))
    best = max(scores, default=0.0)
    return next((level for level, score in enumerate(scores) if score >= best - CHANCE_NATS), 0)


def cut(tree: ContextTree, n_parents: int) -> ContextTree:
    """The tree of the first parents only; nothing of the others stays in memory."""
    n_levels = n_parents + 2
    if n_levels >= tree.level_starts.size - 1:
        return tree
    n_nodes = int(tree.level_starts[n_levels])
    n_cells = int(tree.cell_starts[n_nodes])
    return ContextTree(
        tree.level_starts[: n_levels + 1].copy(),
        tree.parent[:n_nodes].copy(),
        tree.branch[:n_nodes].copy(),
        tree.cell_starts[: n_nodes + 1].copy(),
        tree.cell_value[:n_cells].copy(),
        tree.cell_count[:n_cells].copy(),
        tree.cell_parent[:n_cells].copy(),
        tree.n_values,
    )


def pruned(structure: Structure, trees: Iterable[ContextTree]) -> tuple[Structure, list[ContextTree]]:
    """A structure and its trees without the last parents of each attribute that tell nothing of it beyond those before.

    Parameters
    ----------
    structure : Structure
    trees : iterable of ContextTree
        One per entry of `structure.order`. Each is cut before the next is asked for, so that they are never all in memory.
    """
    parents, kept = [], []
    for own, tree in zip(structure.parents, trees, strict=True):
        depth = telling_levels(tree)
        parents.append(own[:depth])
        kept.append(cut(tree, depth))
    return Structure(structure.order, tuple(parents)), kept
