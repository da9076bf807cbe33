"""Solved context trees of the deterministic hierarchical Dirichlet process, readable with any number of parents."""

from __future__ import annotations

import numpy as np

from learners.classifiers.estimates.context_tree import Averaged, ContextTree, Estimates
from learners.classifiers.estimates.hdp import ROOT_CONCENTRATION, HDPParameters, hdp_map_solution
from learners.counts.family_counts import Family
from learners.ensembles.level_kernels import (
    LeftOut,
    LevelTree,
    left_out_level_estimates,
    level_log_probabilities,
    weighted_level_estimates,
    weighted_level_variances,
)
from learners.kernels.arrays import Float32s, Integers, read_only_array
from learners.schema import Chunk

# The delta method trusts logarithms that move by a few units; beyond that they say "unknown" all the same.
LARGEST_LOG_VARIANCE = 25.0
# Of the concentrations: many trees, pooled, need less than a single network (a tolerance of 1e-3 takes five times as long
# and changes no RMSE by more than 0.002 on car, vehicle and adult).
MOST_SWEEPS, TOLERANCE = 60, 0.02


def truncate_context_tree_levels(tree: ContextTree, k: int) -> ContextTree:
    """Return a copy of the tree with the first k parents only, so that the deeper levels can be freed."""
    if k + 2 >= tree.level_starts.size - 1:
        return tree
    starts = tree.level_starts[: k + 3]
    n_nodes, n_cells = int(starts[-1]), int(tree.cell_starts[starts[-1]])
    return ContextTree(
        starts,
        tree.parent[:n_nodes].copy(),
        tree.branch[:n_nodes].copy(),
        tree.cell_starts[: n_nodes + 1].copy(),
        tree.cell_value[:n_cells].copy(),
        tree.cell_count[:n_cells].copy(),
        tree.cell_parent[:n_cells].copy(),
        tree.n_values,
    )


class Levels:
    """A context tree with its solution, in half the memory of the two.

    `parent_sizes` (k,) int64 are the domains of the parents, whose levels follow those of root and class.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 4.
    """

    def __init__(self, arrays: LevelTree, parent_sizes: Integers) -> None:
        self.arrays, self.parent_sizes = arrays, read_only_array(parent_sizes)

    @property
    def n_parents(self) -> int:
        """Number of parents with a level."""
        return self.parent_sizes.size

    @classmethod
    def solved(cls, tree: ContextTree, parent_sizes: Integers) -> Levels:
        """Solve a context tree."""
        customers, concentrations = hdp_map_solution(tree, HDPParameters(), MOST_SWEEPS, TOLERANCE)
        n_levels = tree.level_starts.size - 1
        concentration = np.full(n_levels, ROOT_CONCENTRATION)
        concentration[1:] = concentrations[: n_levels - 1]
        arrays = LevelTree(
            child_starts=(np.searchsorted(tree.parent[1:], np.arange(tree.n_nodes + 1)) + 1).astype(np.int32),
            branch=tree.branch.astype(np.int32),
            cell_starts=tree.cell_starts.astype(np.int32),
            cell_value=tree.cell_value.astype(np.int32),
            cell_parent=tree.cell_parent.astype(np.int32),
            rows=tree.cell_count,
            customers=customers,
            node_rows=tree.node_counts().astype(np.float64),
            node_customers=np.add.reduceat(customers, tree.cell_starts[:-1]),
            level_starts=tree.level_starts,
            concentration=concentration,
            n_values=tree.n_values,
        )
        return cls(arrays, parent_sizes)

    def cut(self, k: int) -> Levels:
        """Keep only the first k parents; counts, tables and concentrations of the remaining levels do not change."""
        if k >= self.n_parents:
            return self
        n_levels, all_ = k + 2, self.arrays
        n_nodes = int(all_.level_starts[n_levels])
        n_cells = int(all_.cell_starts[n_nodes])
        arrays = LevelTree(
            child_starts=np.minimum(all_.child_starts[: n_nodes + 1], np.int32(n_nodes)),
            branch=all_.branch[:n_nodes].copy(),
            cell_starts=all_.cell_starts[: n_nodes + 1].copy(),
            cell_value=all_.cell_value[:n_cells].copy(),
            cell_parent=all_.cell_parent[:n_cells].copy(),
            rows=all_.rows[:n_cells].copy(),
            customers=all_.customers[:n_cells].copy(),
            node_rows=all_.node_rows[:n_nodes].copy(),
            node_customers=all_.node_customers[:n_nodes].copy(),
            level_starts=all_.level_starts[: n_levels + 1].copy(),
            concentration=all_.concentration[:n_levels].copy(),
            n_values=all_.n_values,
        )
        return Levels(arrays, self.parent_sizes[:k])

    @property
    def tree(self) -> ContextTree:
        """The context tree, reconstructed from the arrays."""
        arrays = self.arrays
        return ContextTree(
            arrays.level_starts,
            self._parents,
            arrays.branch.astype(np.int64),
            arrays.cell_starts.astype(np.int64),
            arrays.cell_value.astype(np.int64),
            arrays.rows,
            arrays.cell_parent.astype(np.int64),
            arrays.n_values,
        )

    @property
    def _parents(self) -> Integers:
        """Parent of each node, (n_nodes,) int64; -1 for the root."""
        n_children = np.diff(self.arrays.child_starts)
        return np.concatenate([[-1], np.repeat(np.arange(n_children.size), n_children)])

    def log_probabilities(
        self, family: Family, rows: Chunk, log_p: Float32s, leave_out: bool, copies: Integers | None = None
    ) -> None:
        """Fill `log_p` with log P(value | class, first j parents) of rows in views, for the tree's family with all its
        parents.

        Fills `log_p`, of any strides: (n_rows, k + 1, n_classes) float32. With `leave_out` each row, one that was
        counted, is left out of its own class, and the array may be (n_rows, k + 1, 1) of that class. `copies` (n_rows,)
        int64: how many counted rows are left out with each row, itself included; by default it alone.
        """
        y = rows.y if leave_out and rows.y is not None else read_only_array(np.empty(0, rows.x.dtype))
        n_left_out = np.ones(y.size) if copies is None else copies.astype(np.float64)
        left_out = LeftOut(y, read_only_array(n_left_out))
        parents = np.array(family.parents, np.int64)
        first = np.full(1 << (2 * rows.n_rows).bit_length(), -1, np.int32)
        level_log_probabilities(
            self.arrays, rows.x, family.attribute, parents, self.parent_sizes, left_out, first, log_p
        )

    def weighted(self, a: float, b: float) -> Estimates:
        """Return the weighted log probabilities a log p_0 + b (log p - log p_0) in the form of estimates."""
        (probability, averaged), (rest, averaged_rest) = (
            np.empty((2, n)) for n in (self.arrays.rows.size, self.arrays.branch.size)
        )
        weighted_level_estimates(self.arrays, a, b, probability, rest, averaged, averaged_rest)
        return Estimates(probability, rest, hierarchical=True, averaged=Averaged(averaged, averaged_rest))

    def left_out(self, a: float, b: float) -> Estimates:
        """Return `weighted` for training rows, each left out of its own class; only that class is valid."""
        estimates = self.weighted(a, b)
        left_out_level_estimates(self.arrays, self._parents, a, b, estimates.probability)
        return estimates

    def spreads(self, a: float, b: float) -> Estimates:
        """Return the exponentiated posterior variances of the terms of `weighted`, in the form of estimates."""
        of_cell, of_rest = np.empty(self.arrays.rows.size), np.empty(self.arrays.branch.size)
        weighted_level_variances(self.arrays, a, b, LARGEST_LOG_VARIANCE, of_cell, of_rest)
        averaged = Averaged(np.exp(of_cell), np.exp(of_rest))  # by rows at every level
        return Estimates(*averaged, hierarchical=False, averaged=averaged)
