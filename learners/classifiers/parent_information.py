"""What each parent of an attribute tells of it, and the tables behind one attribute, for people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.kernels.arrays import Floats, Integers


def information_of_parents(tree: ContextTree) -> Floats:
    """What knowing one more parent tells of the attribute, in nats: I(X; class), I(X; P_1 | class), I(X; P_2 | class, P_1), …

    (n_levels - 1,) float64, never negative, of a tree with the class as level 1 and parent l as level l + 1. Their sum
    is I(X; class, parents). Zeros of a tree without rows.

    References
    ----------
    Cover and Thomas (2006), Elements of Information Theory, theorem 2.5.2 (the chain rule of information).
    """
    n_levels = tree.level_starts.size - 1
    n_rows = int(tree.cell_count[tree.cell_starts[0] : tree.cell_starts[1]].sum()) if tree.n_nodes else 0
    if not n_rows:
        return np.zeros(max(0, n_levels - 1))
    log_share = np.log(tree.cell_count / np.repeat(tree.node_counts(), np.diff(tree.cell_starts)))
    ends = pairwise(tree.cell_starts[tree.level_starts].tolist())
    entropies = np.array([-(tree.cell_count[a:b] * log_share[a:b]).sum() / n_rows for a, b in ends])
    return np.maximum(0.0, entropies[:-1] - entropies[1:])


class Context(NamedTuple):
    """One context of an attribute."""

    codes: tuple[int, ...]  # of the class, then of the parents
    n_rows: Integers  # (n_values,) int64
    probability: Floats  # (n_values,) float64


def contexts_of(tree: ContextTree, estimates: Estimates, limit: int) -> list[Context]:
    """At most `limit` of the contexts that occurred with all parents known, those with most rows first."""
    first, last = int(tree.level_starts[-2]), int(tree.level_starts[-1])
    counts = tree.node_counts()[first:last]
    order = np.argsort(-counts, kind="stable")[:limit]
    return [_context(tree, estimates, first + int(place)) for place in order]


def _context(tree: ContextTree, estimates: Estimates, node: int) -> Context:
    path = list(_path(tree, node))
    probability = np.zeros(tree.n_values)
    for step, each in enumerate(reversed(path)):  # from the root
        rest = float(estimates.rest[each])
        probability = probability * rest if estimates.hierarchical and step else np.full(tree.n_values, rest)
        cells = slice(int(tree.cell_starts[each]), int(tree.cell_starts[each + 1]))
        probability[tree.cell_value[cells]] = estimates.probability[cells]
    n_rows = np.zeros(tree.n_values, np.int64)
    cells = slice(int(tree.cell_starts[node]), int(tree.cell_starts[node + 1]))
    n_rows[tree.cell_value[cells]] = tree.cell_count[cells]
    codes = tuple(int(tree.branch[each]) for each in reversed(path[:-1]))
    return Context(codes, n_rows, probability)


def _path(tree: ContextTree, node: int) -> Iterator[int]:
    """A node and all above it, the root last."""
    while node >= 0:
        yield node
        node = int(tree.parent[node])
