"""How far a predicted probability may be off, from the posterior variances of the probabilities behind it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from learners.classifiers.estimates.context_tree import ContextTree, Estimates
from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.compile import compile_tables
from learners.classifiers.structure import Structure
from learners.errors import InvalidParameter
from learners.kernels.arrays import Floats, Integers, freeze
from learners.schema import Schema

# The delta method trusts logarithms that move by a few units; beyond that they say "unknown" all the same.
LARGEST_LOG_VARIANCE = 25.0


def spread_tables(
    schema: Schema,
    structure: Structure,
    class_counts: Integers,
    trees: Sequence[ContextTree],
    estimates: Sequence[Estimates],
    variances: Sequence[Floats],
) -> kernels.LookupTables:
    """Look-up tables of the variance of each log probability, in place of the log probability.

    Arguments as of `compile_tables`; `variances` of (n_cells,) float64 are the posterior variance of each probability.
    """
    spreads = [_log_variance(*entry) for entry in zip(trees, estimates, variances, strict=True)]
    tables = compile_tables(schema, structure, class_counts, trees, spreads)
    tables = tables._replace(log_prior=1.0 / (np.asarray(class_counts, np.float64) + 1.0))
    freeze(*tables)  # as the model's own tables: one compiled signature
    return tables


def _log_variance(tree: ContextTree, estimates: Estimates, variance: Floats) -> Estimates:
    """Var log p ≈ Var p / p², as exponentials since compiling takes logarithms.

    Values without a cell share what is left of their node; each is taken for the mean of them.
    """
    of_cell = np.minimum(variance / estimates.probability**2, LARGEST_LOG_VARIANCE)
    n_absent = np.maximum(tree.n_values - np.diff(tree.cell_starts), 1)
    left = np.maximum(1.0 - np.add.reduceat(estimates.probability, tree.cell_starts[:-1]), 1e-12)
    mean = left / n_absent
    of_rest = np.minimum((1.0 - mean) / (mean * (tree.node_counts() + 1.0)), LARGEST_LOG_VARIANCE)
    return Estimates(np.exp(of_cell), np.exp(of_rest), hierarchical=False)


def credible_intervals(spread: Floats, probabilities: Floats, level: float) -> tuple[Floats, Floats]:
    """Low and high (n_rows, n_classes) of the central interval of each P(y | x), by a normal approximation of its log odds.

    The logarithms of the probabilities in the product are taken for independent. To first order the log odds of class c
    then have the variance S_c + Σ_j≠c (p_j / (1 - p_c))² S_j, with S_j the sum of the variances of class j, which is
    `spread`: that of log P(y, known). The interval has the posterior probability `level`. Raises InvalidParameter
    unless it is between 0 and 1.
    """
    if not 0 < level < 1:
        raise InvalidParameter("interval", level, "the probability of the interval, above 0 and below 1")
    p = np.clip(probabilities, 1e-300, 1 - 1e-16)
    others = p**2 * spread
    variance = spread + (others.sum(axis=1, keepdims=True) - others) / (1 - p) ** 2
    reach = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(np.maximum(variance, 0.0))
    log_odds = np.log(p) - np.log1p(-p)
    # Log odds beyond 700 are probabilities that no float64 tells from 0 or 1.
    low, high = (1 / (1 + np.exp(-np.clip(log_odds + side * reach, -700, 700))) for side in (-1, 1))
    return low, high
