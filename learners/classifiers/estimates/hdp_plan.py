"""What of a context tree the HDP sampler can change."""

from __future__ import annotations

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree
from learners.classifiers.estimates.hdp_kernels import Plan
from learners.kernels.arrays import Integers, Mask

TYINGS = ("level", "parent", "single")
ROOTS = ("unit", "dirichlet")


def plan_of(tree: ContextTree, tying: str, root: str) -> Plan:
    """The plan of a context tree, of a tying and a root as of `HDPParameters`."""
    n_levels = tree.level_starts.size - 1
    levels = [slice(*tree.cell_starts[tree.level_starts[level : level + 2]].tolist()) for level in range(n_levels)]
    base, is_item, is_inner = _items(tree, levels)
    node_of_cell = tree.node_of_cell()
    parts = [np.flatnonzero(is_item[cells]) + cells.start for cells in levels]
    # Of one n after another, so that the branches of drawing t are foreseen.
    parts[-1] = parts[-1][np.argsort(base[parts[-1]], kind="stable")]
    item_cell = np.concatenate(parts)
    item_of_cell = np.full(tree.n_cells, -1, np.int64)
    item_of_cell[item_cell] = np.arange(item_cell.size)
    above = tree.cell_parent[item_cell]
    item_starts = np.concatenate([[0], np.cumsum([part.size for part in parts])]).astype(np.int64)
    node_level = np.repeat(np.arange(n_levels), np.diff(tree.level_starts))
    active_node, active_first, active_last = _active(
        node_of_cell[item_cell[: item_starts[-2]]], is_inner[item_cell[: item_starts[-2]]]
    )
    child_group, group_starts, group_nodes = _groups(tree, node_level, tying)
    return Plan(
        item_starts=item_starts,
        item_parent=np.where(above >= 0, item_of_cell[above], -1),
        item_base=base[item_cell],
        item_cell=item_cell,
        item_node=node_of_cell[item_cell],
        is_inner=is_inner[item_cell].astype(np.uint8),
        active_starts=np.searchsorted(node_level[active_node], np.arange(n_levels)),
        active_node=active_node,
        active_first=active_first,
        active_last=active_last,
        node_fixed=np.bincount(node_of_cell[~is_item], minlength=tree.n_nodes).astype(np.int64),
        node_parent=tree.parent,
        node_level=node_level,
        child_group=child_group,
        group_starts=group_starts,
        group_nodes=group_nodes,
        n_values=tree.n_values,
        is_unit_root=root == "unit",
    )


def _items(tree: ContextTree, levels: list[slice]) -> tuple[Integers, Mask, Mask]:
    """For each cell its rows or fixed children, whether it is an item, and whether it has items below."""
    base = np.zeros(tree.n_cells, np.int64)
    is_item, is_inner = np.zeros(tree.n_cells, bool), np.zeros(tree.n_cells, bool)
    deepest = levels[-1]
    base[deepest] = tree.cell_count[deepest]
    is_item[deepest] = base[deepest] > 1
    for cells, below in zip(levels[-2::-1], levels[:0:-1], strict=True):
        parent = tree.cell_parent[below] - cells.start
        n_children = np.bincount(parent, minlength=cells.stop - cells.start)
        n_items = np.bincount(parent, weights=is_item[below], minlength=cells.stop - cells.start).astype(np.int64)
        base[cells] = n_children - n_items
        is_item[cells] = (n_children > 1) | (n_items > 0)
        is_inner[cells] = n_items > 0
    return base, is_item, is_inner


def _active(node: Integers, is_inner: Mask) -> tuple[Integers, Integers, Integers]:
    """Nodes with inner items, and the range of items of each; items come node by node."""
    nodes, first = np.unique(node, return_index=True)
    last = np.append(first[1:], node.size)
    has_inner = np.add.reduceat(is_inner, first) > 0 if node.size else np.zeros(0, bool)
    return nodes[has_inner], first[has_inner].astype(np.int64), last[has_inner].astype(np.int64)


def _groups(tree: ContextTree, node_level: Integers, tying: str) -> tuple[Integers, Integers, Integers]:
    """The concentration that the children of each node have, and the nodes of each concentration."""
    n_inner = int(tree.level_starts[-2])
    child_group = np.zeros(tree.n_nodes, np.int64)
    if tying == "level":
        child_group[:n_inner] = node_level[:n_inner]
    elif tying == "parent":
        child_group[:n_inner] = np.arange(n_inner)
    group = child_group[tree.parent[1:]]
    nodes = np.argsort(group, kind="stable") + 1
    starts = np.searchsorted(group[nodes - 1], np.arange(int(group.max(initial=0)) + 2))
    return child_group, starts.astype(np.int64), nodes.astype(np.int64)
