"""Context trees: root, class, then one level per parent; m-estimates, and interpolation between levels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from learners.classifiers.estimates.context_tree_kernels import aggregate_context_tree_level
from learners.classifiers.structure import Structure
from learners.counts.family_counts import FamilyCounts
from learners.kernels.arrays import Array, Floats, Int8s, Integers
from learners.passes.engine import Advance, ignore_progress

CONCENTRATIONS = tuple(2.0**power for power in range(10, -4, -1))
"""How many rows the level above may weigh; of equally good ones the first."""

WEIGHTS = np.array(CONCENTRATIONS)[:, None]
BLOCK_CELLS, FEW_CELLS = 1 << 15, 256

CHANCE_NATS = 3.0
"""What a parent that tells nothing may add, over all rows, by chance: it makes the rows twenty times as probable."""

GRID = (0.0, 0.05, 0.2, 1.0, 5.0, 20.0)
"""The values of m that a hold-out chooses from (Petitjean et al. 2018, section 6.1)."""


class ContextTree(NamedTuple):
    """Counts of an attribute in every observed context, level by level; nodes of a level sorted by path.

    Level 0 is the root, level 1 branches on the class, level l + 1 on parent number l. A cell is a pair (node, value)
    with a positive count.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 4.1.
    """

    level_starts: Integers  # (n_levels + 1,) int64: ranges of nodes
    parent: Integers  # (n_nodes,) int64: node above; -1 at the root
    branch: Integers  # (n_nodes,) int64: class or parent-attribute code under the node above; -1 at the root
    cell_starts: Integers  # (n_nodes + 1,) int64: ranges of cells
    cell_value: Integers  # (n_cells,) int64: code of the attribute, ascending within a node
    cell_count: Integers  # (n_cells,) int64: rows with this context and value; at inner nodes the sum over the children
    cell_parent: Integers  # (n_cells,) int64: the cell of the same value at the node above; -1 at the root
    n_values: int  # codes of the attribute, without the unseen one

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.parent.size

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.cell_value.size

    def node_of_cell(self) -> Integers:
        """Return the node of each cell, (n_cells,) int64."""
        return np.repeat(np.arange(self.n_nodes), np.diff(self.cell_starts))

    def node_counts(self) -> Integers:
        """Return the rows in each context, (n_nodes,) int64."""
        return np.add.reduceat(self.cell_count, self.cell_starts[:-1]) if self.n_nodes else np.empty(0, np.int64)


class Averaged(NamedTuple):
    """Estimates for rows whose further parents are missing: (n_cells,) and (n_nodes,) as in `Estimates`."""

    probability: Floats
    rest: Floats


class Estimates(NamedTuple):
    """Probabilities of one context tree."""

    probability: Floats  # (n_cells,) float64: p(x | node) of the values that have a cell
    # (n_nodes,) float64: for a value without a cell at node u: if hierarchical, p(x | u) = rest[u] * p(x | node above),
    # and at the root p(x | u) = rest[u]; if not, p(x | u) = rest[u].
    rest: Floats
    hierarchical: bool  # True for HDP estimates, False for m-estimates
    # As `probability` and `rest`, for rows whose parents below a node are missing: the average over these, where
    # `probability` is that of a context which training never saw. Without, both are the same.
    averaged: Averaged | None = None


def context_tree_probabilities(tree: ContextTree, estimates: Estimates, shape: Sequence[int]) -> Floats:
    """Return p(x | class, parents) of one attribute for every context, with back-off resolved, as float64 of a shape.

    The shape is the number of classes, the domain size of each parent in level order, and the attribute's domain
    size.
    """
    p = np.full((1, shape[-1]), float(estimates.rest[0]))
    root = slice(0, int(tree.cell_starts[1]))
    p[0, tree.cell_value[root]] = estimates.probability[root]
    context = np.zeros(tree.n_nodes, np.int64)
    node_of_cell = tree.node_of_cell()
    for level, size in enumerate(shape[:-1], 1):
        # A context that no row has is like the one above it.
        p = np.repeat(p, size, axis=0)
        nodes = slice(int(tree.level_starts[level]), int(tree.level_starts[level + 1]))
        context[nodes] = context[tree.parent[nodes]] * size + tree.branch[nodes]
        rest = estimates.rest[nodes][:, np.newaxis]
        rows = context[nodes]
        p[rows] = rest * p[rows] if estimates.hierarchical else rest
        cells = slice(int(tree.cell_starts[nodes.start]), int(tree.cell_starts[nodes.stop]))
        p[context[node_of_cell[cells]], tree.cell_value[cells]] = estimates.probability[cells]
    return p.reshape(tuple(shape))


def context_tree_from_cells(
    y: Integers, parents: Integers, x: Integers, counts: Integers, n_values: int
) -> ContextTree:
    """Build the tree of a family from its distinct cells (m,) int64, in any order.

    Codes y of the class, (m, k) of the parents in level order, and x of the attribute are non-negative integers;
    counts are positive numbers of rows.
    """
    path = np.column_stack([y, parents.reshape(y.size, -1)])
    return context_tree_levels_from_cells([path, x, counts], n_values).tree()


class Level(NamedTuple):
    """One level of a tree before layout, in int32 if large enough."""

    # above, branch (n_nodes,): the node in the level above, and the code under it.
    above: Array
    branch: Array
    # node, value, n_rows, cell_above (n_cells,): the node of each cell in this level, its value and rows, and the cell
    # of the same value in the level above.
    node: Array
    value: Array
    n_rows: Array
    cell_above: Array


class Levels(NamedTuple):
    """Levels of a context tree, top first, in a third of the tree's memory and with separate arrays per level."""

    levels: list[Level]
    n_values: int

    def tree(self, n_parents: int | None = None) -> ContextTree:
        """Build the tree with all parents, or with the first `n_parents`."""
        levels = self.levels if n_parents is None else self.levels[: n_parents + 2]
        node_starts = np.concatenate([[0], np.cumsum([level.above.size for level in levels])]).astype(np.int64)
        cell_firsts = np.concatenate([[0], np.cumsum([level.value.size for level in levels])]).astype(np.int64)
        # Nothing is above the root: its -1 stays.
        before = [0, *node_starts.tolist()]
        cells_before = [0, *cell_firsts.tolist()]
        per_node = [np.bincount(level.node, minlength=level.above.size) for level in levels]
        return ContextTree(
            level_starts=node_starts,
            parent=_joined([level.above for level in levels], before),
            branch=_joined([level.branch for level in levels]),
            cell_starts=np.concatenate([[0], np.cumsum(np.concatenate(per_node))]).astype(np.int64),
            cell_value=_joined([level.value for level in levels]),
            cell_count=_joined([level.n_rows for level in levels]),
            cell_parent=_joined([level.cell_above for level in levels], cells_before),
            n_values=self.n_values,
        )


def context_tree_levels_from_cells(cells: list[Array], n_values: int) -> Levels:
    """Build the levels of a tree from its distinct cells.

    `cells` is emptied so that its arrays are freed early: (m, k + 1) class and parent codes in level order, (m,)
    codes of the attribute, and (m,) int64 positive numbers of rows.
    """
    path, value, count = cells
    cells.clear()
    if path.dtype != np.uint16:
        is_narrow = path.size == 0 or (path.min() >= 0 and path.max() <= np.iinfo(np.uint16).max)
        path = path.astype(np.uint16 if is_narrow else np.int64, order="C")
    value, count = value.astype(np.int32), count.astype(np.int64, copy=False)
    differs, ascends = _first_differences(path, value)
    if not ascends:  # counts come in this order; others may not
        order = np.lexsort((value, *path.T[::-1]))
        path, value, count = np.ascontiguousarray(path[order]), value[order], count[order]
        differs, _ = _first_differences(path, value)
    depth = path.shape[1]
    is_first = differs < depth
    node = np.cumsum(is_first, dtype=np.int32)
    node -= 1
    path, differs = path[is_first], differs[is_first]  # one row per node, of the lowest level first
    del is_first
    seen = np.full(n_values, -1, np.int64)
    levels = []
    for level in range(depth, 0, -1):
        is_start = differs < level - 1 if level > 1 else np.arange(differs.size) == 0
        above_of_node = np.cumsum(is_start, dtype=np.int32)
        above_of_node -= 1
        out_node, out_value, cell_parent = (np.empty(value.size, np.int32) for _ in range(3))
        out_count = np.empty(value.size, np.int64)
        n_above = aggregate_context_tree_level(
            node, value, count, above_of_node, seen, out_node, out_value, out_count, cell_parent
        )
        branch = path[:, level - 1]
        own = [_narrowed(part) for part in (above_of_node, branch, node, value, count, cell_parent)]
        levels.append(Level._make(own))
        node, value, count = out_node[:n_above].copy(), out_value[:n_above].copy(), out_count[:n_above].copy()
        path, differs = path[is_start], differs[is_start]
    none = np.full(1, -1, np.int32)
    cells = [_narrowed(part) for part in (node, value, count)]
    levels.append(Level._make([none, none, *cells, np.full(value.size, -1, np.int32)]))
    return Levels(levels[::-1], n_values)


def _first_differences(path: Array, value: Array) -> tuple[Int8s, bool]:
    """Return the first path column in which each row differs from the previous one, (m,), its width if none; and
    whether rows ascend.
    """
    differs = np.full(value.size, path.shape[1], np.int8)
    differs[:1] = 0
    is_less = value[1:] <= value[:-1]
    for column in reversed(range(path.shape[1])):
        own, before = path[1:, column], path[:-1, column]
        is_other = own != before
        np.copyto(differs[1:], column, where=is_other)
        np.copyto(is_less, own < before, where=is_other)
    return differs, not is_less.any()


def _narrowed(numbers: Array) -> Array:
    """Convert to int32 if large enough."""
    is_short = numbers.dtype == np.int32 or numbers.max(initial=0) <= np.iinfo(np.int32).max
    return numbers.astype(np.int32, copy=False) if is_short else numbers


def _joined(parts: Sequence[Array], before: Sequence[int] | None = None) -> Integers:
    """Concatenate levels as int64, each offset by the start of the level above."""
    moved = before or [0] * len(parts)
    return np.concatenate([part.astype(np.int64) + first for part, first in zip(parts, moved, strict=False)])


def build_context_trees(families: FamilyCounts, advance: Advance = ignore_progress) -> list[ContextTree]:
    """Build the context tree of each family; `advance` receives the number done, and may raise."""
    return [levels.tree() for levels in iterate_tree_levels(families, advance)]


def iterate_tree_levels(families: FamilyCounts, advance: Advance = ignore_progress) -> Iterator[Levels]:
    """Yield the levels of each tree of `build_context_trees`."""
    sizes = families.schema.domain_sizes
    for index, family in enumerate(families.families):
        advance(index, len(families.families))
        yield context_tree_levels_from_cells(list(families.paths(index)), int(sizes[family.attribute]))


def m_estimates(tree: ContextTree, m: float, back_off: str = "context") -> Estimates:
    """Compute p(x | context) = (n(x, context) + m / v) / (n(context) + m) at every node of a context tree; m ≥ 0.

    Parameters
    ----------
    tree : ContextTree
    m : float
    back_off : "context" or "cell"
        When the last parent is dropped: where the context never occurred, or, as in the paper, also where it occurred
        without the value. A context that never occurred has no node, so a look-up ends at the deepest node on its path.
        With "cell" the probabilities of a context do not add up to one.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 6.1.
    """
    totals = tree.node_counts() + m
    share = m / tree.n_values
    of_cell = np.repeat(totals, np.diff(tree.cell_starts))
    probability = np.asarray((tree.cell_count + share) / of_cell, np.float64)
    rest = np.asarray(share / totals, np.float64)
    if back_off == "cell":
        rest[1:] = 1.0
    return Estimates(probability, rest, hierarchical=back_off == "cell")


def context_row_counts(level: Level) -> Floats:
    """Return the rows of each context, (n_nodes,) float64."""
    totals = np.zeros(level.above.size)
    for first in range(0, level.node.size, BLOCK_CELLS):  # so that nothing is copied whole
        node = level.node[first : first + BLOCK_CELLS]
        sums = np.bincount(node - node[0], level.n_rows[first : first + BLOCK_CELLS])
        totals[node[0] : node[0] + sums.size] += sums
    return totals


def _blocks(level: Level, totals: Floats) -> Iterator[tuple[slice, Floats, Floats]]:
    """Yield blocks of cells that fit the cache: their positions, their rows, and those of their contexts."""
    for first in range(0, level.node.size, BLOCK_CELLS):
        block = slice(first, first + BLOCK_CELLS)
        yield block, level.n_rows[block].astype(np.float64), totals[level.node[block]]


def interpolate_levels(level: Level, totals: Floats, above: Floats, weight: float, n_left_out: int = 0) -> Floats:
    """Interpolate the frequency of each cell in its context with the level above, (m,) float64.

    `totals` (n_nodes,) float64 as in `context_row_counts`; `above` (m_above,) float64 are the probabilities of
    the level above, which count as `weight` rows. `n_left_out` rows are removed from the cell and its context.
    """
    frequencies = np.empty(level.node.size)
    for block, n, total in _blocks(level, totals):
        share = weight * above[level.cell_above[block]]
        frequencies[block] = (n - n_left_out + share) / (total - n_left_out + weight)
    return frequencies


def leave_one_out_concentration(level: Level, totals: Floats, left_out: Floats) -> float:
    """Return the concentration in `CONCENTRATIONS` with the largest leave-one-out likelihood of the rows.

    `totals` (n_nodes,) float64 as in `context_row_counts`; `left_out` (m_above,) float64 is the leave-one-out
    probability of each cell of the level above.

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


def n_informative_parents(grown: Levels) -> int:
    """Return how many of the first parents predict an attribute best by leave-one-out likelihood.

    Each level interpolates its frequencies with the level above (`leave_one_out_concentration`). Returns the
    fewest parents whose likelihood is within `CHANCE_NATS` of the best.
    """
    scores: list[float] = []
    left_out = np.empty(0)
    for number, level in enumerate(grown.levels):
        totals = context_row_counts(level)
        if number == 0:
            left_out = (level.n_rows - 1 + 1.0 / grown.n_values) / np.maximum(totals, 1.0)
            continue
        left_out = interpolate_levels(level, totals, left_out, leave_one_out_concentration(level, totals, left_out), 1)
        scores.append(sum(float((n * np.log(left_out[block])).sum()) for block, n, _ in _blocks(level, totals)))
    best = max(scores, default=0.0)
    return next((level for level, score in enumerate(scores) if score >= best - CHANCE_NATS), 0)


def prune_uninformative_parents(structure: Structure, grown: Iterable[Levels]) -> tuple[Structure, list[ContextTree]]:
    """Drop each attribute's last parents that add no information; returns the structure and its trees.

    `grown` has one entry per entry of `structure.order`. Each is reduced to a tree before the next is requested,
    so that the full trees are never in memory together.
    """
    parents, trees = [], []
    all_parents = iter(structure.parents)
    for levels in grown:  # alone: `zip` keeps what it gave last until it has the next
        depth = n_informative_parents(levels)
        parents.append(next(all_parents)[:depth])
        trees.append(levels.tree(depth))
        del levels
    return Structure(structure.order, tuple(parents)), trees
