"""Estimates of rare classes, whose few rows would otherwise say more than they know."""

from __future__ import annotations

import numpy as np

from learners.classifiers.estimates.context_tree import CONCENTRATIONS, ContextTree
from learners.classifiers.estimates.hdp import Posterior
from learners.kernels.arrays import Floats

# A class with a smaller share of the rows is rare.
RARE = 0.005
# What rounding leaves where every value has a row.
LEAST = 1e-12


def with_own_concentrations_of_rare_classes(tree: ContextTree, posterior: Posterior) -> Posterior:
    """Mix each rare class with all rows by its own concentration: the one under which its rows are most probable.

    Each row is predicted from the others of its class. The classes share a concentration otherwise, which the frequent ones
    decide; the few rows of a rare class then count for more than chance allows. Where most rows are of rare classes,
    these decide. An attribute without information about the class gets the distribution of all rows. Only attributes
    without parents: contexts of other parents have no rows in common.
    """
    if tree.level_starts.size != 3:  # the root and the classes
        return posterior
    totals, estimates = tree.node_counts(), posterior.estimates
    n_rows = int(totals[0])
    rare = [node for node in range(1, tree.n_nodes) if totals[node] < RARE * n_rows]
    if not rare or 2 * int(totals[rare].sum()) > n_rows:  # no frequent class decides for these
        return posterior
    probability, rest, variance = (np.array(own) for own in (estimates.probability, estimates.rest, posterior.variance))
    for node in rare:
        cells = slice(int(tree.cell_starts[node]), int(tree.cell_starts[node + 1]))
        above, n, total = tree.cell_parent[cells], tree.cell_count[cells].astype(np.float64), float(totals[node])
        left_out = (tree.cell_count[above] - 1 + 1.0 / tree.n_values) / n_rows
        share = _own_share(n, total, left_out)
        # The root says how values spread over classes, each of which counts alike; rows count here.
        of_all = (tree.cell_count[above] + 1.0 / tree.n_values) / (n_rows + 1.0)
        probability[cells] = share * n / total + (1.0 - share) * of_all
        lacking = 1.0 - float(estimates.probability[above].sum())
        if lacking > LEAST:  # values without a row of the class share among them what is left
            rest[node] = (1.0 - share) * (1.0 - float(of_all.sum())) / lacking
        variance[cells] = share**2 * variance[cells] + (1.0 - share) ** 2 * posterior.variance[above]
    return posterior._replace(estimates=estimates._replace(probability=probability, rest=rest), variance=variance)


def _own_share(n: Floats, total: float, left_out: Floats) -> float:
    """Weight of the frequencies of a class against those of all rows: total / (total + a) for the best concentration a."""
    best, share = float((n * np.log(left_out)).sum()), 0.0
    if total > 1:
        for a in CONCENTRATIONS:
            score = float((n * np.log((n - 1 + a * left_out) / (total - 1 + a))).sum())
            if score > best:
                best, share = score, total / (total + a)
    return share
