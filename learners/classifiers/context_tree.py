"""The tree of contexts of an attribute: root, class, then one level per parent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from learners.arrays import Floats, Integers
from learners.classifiers.tree_kernels import first_differences, summed_level


class ContextTree(NamedTuple):
    """Counts of an attribute in every context that occurred, level by level; nodes of a level sorted by path.

    Level 0 is the root, level 1 branches on the class, level l + 1 on parent number l. A cell is a pair (node, value)
    with a positive count.

    Parameters
    ----------
    level_starts : (n_levels + 1,) int64
        Ranges of nodes.
    parent : (n_nodes,) int64
        Node above; -1 at the root.
    branch : (n_nodes,) int64
        Class or parent-attribute code under the node above; -1 at the root.
    cell_starts : (n_nodes + 1,) int64
        Ranges of cells.
    cell_value : (n_cells,) int64
        Code of the attribute, ascending within a node.
    cell_count : (n_cells,) int64
        Rows with this context and value; at inner nodes the sum over the children.
    cell_parent : (n_cells,) int64
        The cell of the same value at the node above; -1 at the root.
    n_values : int
        Codes of the attribute, without the unseen one.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 4.1.
    """

    level_starts: Integers
    parent: Integers
    branch: Integers
    cell_starts: Integers
    cell_value: Integers
    cell_count: Integers
    cell_parent: Integers
    n_values: int

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.parent.size

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return self.cell_value.size

    def node_of_cell(self) -> Integers:
        """(n_cells,) int64: the node that each cell belongs to."""
        return np.repeat(np.arange(self.n_nodes), np.diff(self.cell_starts))

    def node_counts(self) -> Integers:
        """(n_nodes,) int64: rows in each context."""
        return np.add.reduceat(self.cell_count, self.cell_starts[:-1]) if self.n_nodes else np.empty(0, np.int64)


class Estimates(NamedTuple):
    """Probabilities of one context tree.

    Parameters
    ----------
    probability : (n_cells,) float64
        p(x | node) of the values that have a cell.
    rest : (n_nodes,) float64
        For a value without a cell at node u: if hierarchical, p(x | u) = rest[u] * p(x | node above), and at the root
        p(x | u) = rest[u]; if not, p(x | u) = rest[u].
    hierarchical : bool
        True for HDP estimates, False for m-estimates.
    """

    probability: Floats
    rest: Floats
    hierarchical: bool


def context_tree_from_cells(
    y: Integers,
    parents: Integers,
    x: Integers,
    counts: Integers,
    n_values: int,
    parent_sizes: Sequence[int] | None = None,
) -> ContextTree:
    """Build the tree of a family from its distinct cells.

    Parameters
    ----------
    y : (m,) int64
        Class codes.
    parents : (m, k) int64
        Codes of the parents in the order of the levels.
    x : (m,) int64
        Codes of the attribute.
    counts : (m,) int64
        Positive numbers of rows.
    n_values : int
    parent_sizes : sequence of int, optional
        Domain sizes of the parents; not needed, codes may be any non-negative integers.

    Returns
    -------
    ContextTree
        The same for any order of the cells.
    """
    del parent_sizes
    path = np.column_stack([y, parents.reshape(y.size, -1)]).astype(np.int64, order="C")
    value, count = x.astype(np.int64), counts.astype(np.int64)
    differs = np.empty(value.size, np.int64)
    first_differences(path, value, differs)
    if value.size and differs.min() < 0:  # counts come in this order; others may not
        order = np.lexsort((value, *path.T[::-1]))
        path, value, count = np.ascontiguousarray(path[order]), value[order], count[order]
        first_differences(path, value, differs)
    depth = path.shape[1]
    starts = np.flatnonzero(differs < depth)
    node_of_cell = np.cumsum(differs < depth) - 1
    seen = np.full(n_values, -1, np.int64)
    levels = []
    for level in range(depth, 0, -1):
        is_start = differs[starts] < level - 1 if level > 1 else np.arange(starts.size) == 0
        above_of_node = np.cumsum(is_start) - 1
        above = tuple(np.empty(value.size, np.int64) for _ in range(4))
        n_above = summed_level(node_of_cell, value, count, above_of_node, seen, *above)
        levels.append((above_of_node, path[starts, level - 1], node_of_cell, value, count, above[3]))
        node_of_cell, value, count = (part[:n_above] for part in above[:3])
        starts = starts[is_start]
    none = np.full(1, -1, np.int64)
    levels.append((none, none, node_of_cell, value, count, np.full(value.size, -1, np.int64)))
    return _assembled(levels[::-1], n_values)


def _assembled(levels: Sequence[tuple[Integers, ...]], n_values: int) -> ContextTree:
    """Lay the levels, top first, one behind the other."""
    n_nodes = [level[0].size for level in levels]
    n_cells = [level[3].size for level in levels]
    node_starts = np.concatenate([[0], np.cumsum(n_nodes)]).astype(np.int64)
    cell_starts = np.concatenate([[0], np.cumsum(n_cells)]).astype(np.int64)
    parent, cell_parent, node_of_cell = [levels[0][0]], [levels[0][5]], [levels[0][2]]
    for number, level in enumerate(levels[1:], 1):
        parent.append(level[0] + node_starts[number - 1])
        node_of_cell.append(level[2] + node_starts[number])
        cell_parent.append(level[5] + cell_starts[number - 1])
    per_node = np.bincount(np.concatenate(node_of_cell), minlength=int(node_starts[-1]))
    return ContextTree(
        level_starts=node_starts,
        parent=np.concatenate(parent),
        branch=np.concatenate([level[1] for level in levels]),
        cell_starts=np.concatenate([[0], np.cumsum(per_node)]).astype(np.int64),
        cell_value=np.concatenate([level[3] for level in levels]),
        cell_count=np.concatenate([level[4] for level in levels]),
        cell_parent=np.concatenate(cell_parent),
        n_values=n_values,
    )
