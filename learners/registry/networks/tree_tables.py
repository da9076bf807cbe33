"""Probability tables of a network: dense, or read from context trees for the requested contexts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import DTypeLike

from learners.classifiers.estimates.context_tree import ContextTree, Estimates, context_tree_probabilities
from learners.errors import LearnerError
from learners.kernels.arrays import Array, Floats, Integers

# Cells that `TreeTable.given` reads at a time.
BLOCK_CELLS = 1 << 20


class TablesTooLarge(LearnerError, ValueError):
    """Raised if the tables of a network are too large to expand."""

    def __init__(self, n_cells: int, most: int) -> None:
        super().__init__(
            f"The tables of the network have {n_cells:,} probabilities, more than the {most:,} allowed here. Train with fewer parents "
            "(a smaller k), or fold rare values (max_values) (docs/limits.md#probabilities)."
        )


class TreeTable:
    """Table p(x | class, parents) of one family, computed from its context tree only where it is read.

    Parameters
    ----------
    tree, estimates : of the family
    shape : number of classes, domain size of each parent in level order, and the attribute's domain size
    """

    def __init__(self, tree: ContextTree, estimates: Estimates, shape: Sequence[int]) -> None:
        self.tree, self.estimates, self.shape = tree, estimates, tuple(shape)

    @property
    def size(self) -> int:
        """Number of probabilities."""
        return int(np.prod(self.shape, dtype=np.float64))

    @cached_property
    def _keys(self) -> Integers:
        """Number of each node's branch under the node above, ascending within a level, (n_nodes,) int64."""
        keys = np.full(self.tree.n_nodes, -1, np.int64)
        for level, size in enumerate(self.shape[:-1], 1):
            nodes = slice(int(self.tree.level_starts[level]), int(self.tree.level_starts[level + 1]))
            keys[nodes] = self.tree.parent[nodes] * size + self.tree.branch[nodes]
        return keys

    def rows(self, codes: Integers) -> tuple[Floats, Integers]:
        """Return the distributions of the distinct contexts among some, and which of them each context has.

        Parameters
        ----------
        codes : (n_parents, n) int64
            Class and parents of each context.

        Returns
        -------
        (n_distinct, n_values) float64 and (n,) int64
        """
        tree, estimates = self.tree, self.estimates
        p = np.full((1, self.shape[-1]), float(estimates.rest[0]))
        root = slice(0, int(tree.cell_starts[1]))
        p[0, tree.cell_value[root]] = estimates.probability[root]
        which, node = np.zeros(codes.shape[1], np.int64), np.zeros(1, np.int64)  # -1: a context that no row has
        for level, (own, size) in enumerate(zip(codes, self.shape[:-1], strict=True), 1):
            pairs, which = np.unique(which * size + own, return_inverse=True)
            above, branch = np.divmod(pairs, size)
            first, last = int(tree.level_starts[level]), int(tree.level_starts[level + 1])
            keys = np.where(node[above] >= 0, node[above] * size + branch, -1)
            place = first + np.searchsorted(self._keys[first:last], keys)
            is_found = (keys >= 0) & (place < last)
            is_found[is_found] = self._keys[place[is_found]] == keys[is_found]
            p, node = p[above], np.where(is_found, place, -1)
            found = node[is_found]
            rest = estimates.rest[found][:, np.newaxis]
            p[is_found] = rest * p[is_found] if estimates.hierarchical else rest
            starts, n_cells = tree.cell_starts[found], tree.cell_starts[found + 1] - tree.cell_starts[found]
            cells = np.repeat(starts - (np.cumsum(n_cells) - n_cells), n_cells) + np.arange(n_cells.sum())
            p[np.repeat(np.flatnonzero(is_found), n_cells), tree.cell_value[cells]] = estimates.probability[cells]
        return p / p.sum(axis=1, keepdims=True), which.ravel()

    def given(self, known: Mapping[int, Integers]) -> Floats:
        """Return the table with some axes fixed to codes (n or 1,), (n, sizes of the other axes ...) float64."""
        last = len(self.shape) - 1
        n = max(codes.size for codes in known.values())
        free = [size for axis, size in enumerate(self.shape[:-1]) if axis not in known]
        n_contexts = n * int(np.prod(free))
        values = np.empty((n_contexts, *([] if last in known else [self.shape[-1]])))
        step = max(1, BLOCK_CELLS // self.shape[-1])
        for first in range(0, n_contexts, step):
            row, *others = np.unravel_index(np.arange(first, min(first + step, n_contexts)), (n, *free))
            at = iter(others)
            codes = np.array(
                [_repeated(known[axis], row) if axis in known else next(at) for axis in range(last)], np.int64
            )
            p, which = self.rows(codes)
            values[first : first + step] = p[which, _repeated(known[last], row)] if last in known else p[which]
        return values.reshape(n, *free, *values.shape[1:])

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> Array:
        """Return the whole table, of the table's shape."""
        del copy
        table = context_tree_probabilities(self.tree, self.estimates, self.shape)
        return np.asarray(table / table.sum(axis=-1, keepdims=True), dtype)


Table = Floats | TreeTable


def _repeated(codes: Integers, row: Integers) -> Integers:
    """Return the code of each row, of one code if all rows have the same."""
    return codes[row] if codes.size > 1 else np.broadcast_to(codes, row.shape)


def table_rows(table: Table, codes: Array) -> tuple[Floats, Integers]:
    """Return distributions of a variable, (n_distributions, n_values), and the place (n,) of the one that each context
    (n_parents, n) of its parents has.
    """
    if isinstance(table, TreeTable):
        return table.rows(codes.astype(np.int64))
    which = np.zeros(codes.shape[1], np.int64)
    for own, size in zip(codes, table.shape[:-1], strict=True):
        which = which * size + own
    return table.reshape(-1, table.shape[-1]), which


def table_given(table: Table, known: Mapping[int, Integers], free: Sequence[int]) -> Floats:
    """Return a table with some axes fixed to codes (n or 1,), the other axes in an order, (n or 1, sizes ...)."""
    if isinstance(table, TreeTable) and known:
        order = sorted(free)
        return np.ascontiguousarray(np.transpose(table.given(known), [0, *(1 + order.index(axis) for axis in free)]))
    turned = np.transpose(np.asarray(table), [*known, *free])
    return np.ascontiguousarray(turned[tuple(known.values())] if known else turned[np.newaxis])
