"""m-estimates with back-off."""

from __future__ import annotations

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Estimates

GRID = (0.0, 0.05, 0.2, 1.0, 5.0, 20.0)
"""The values of m that a hold-out chooses from (Petitjean et al. 2018, section 6.1)."""


def m_estimates(tree: ContextTree, m: float) -> Estimates:
    """p(x | context) = (n(x, context) + m / v) / (n(context) + m) at every node of a context tree; m ≥ 0.

    A context that never occurred has no node; whoever looks it up takes the deepest node on its path, which is the
    back-off: drop the last parent until the context has occurred.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 6.1.
    """
    totals = tree.node_counts() + m
    share = m / tree.n_values
    of_cell = np.repeat(totals, np.diff(tree.cell_starts))
    probability = np.asarray((tree.cell_count + share) / of_cell, np.float64)
    return Estimates(probability, np.asarray(share / totals, np.float64), hierarchical=False)
