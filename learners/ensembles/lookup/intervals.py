"""How far a pooled probability may be off, from the posterior variances of the probabilities behind it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from learners.classifiers.lookup import kernels
from learners.classifiers.lookup.tables import log_joints
from learners.errors import InvalidParameter
from learners.kernels.arrays import Codes, Floats, Integers


def pooled_intervals(
    spreads: Sequence[kernels.LookupTables], class_counts: Integers, probabilities: Floats, x: Codes, level: float
) -> tuple[Floats, Floats]:
    """The central interval of each P(y | x), by a normal approximation of its log odds.

    Within a member the terms are taken for independent. All members have learned from the same rows, so their errors are
    taken for one: the standard deviations of the members' scores add. To first order the log odds of class c have the
    variance S_c + Σ_j≠c (p_j / (1 - p_c))² S_j, with S_j the variance of the score of class j.

    Parameters
    ----------
    spreads : sequence of LookupTables
        For each member the variances of its weighted terms.
    class_counts : (n_classes,) int64
    probabilities : (n_rows, n_classes) float64
    x : (n_views, n_rows) codes
    level : float
        Posterior probability of the interval, between 0 and 1.

    Returns
    -------
    low, high : (n_rows, n_classes) float64

    Raises
    ------
    InvalidParameter
    """
    if not 0 < level < 1:
        raise InvalidParameter("interval", level, "the probability of the interval, above 0 and below 1")
    deviation = np.zeros_like(probabilities)
    of_member = np.empty_like(probabilities)
    for tables in spreads:
        log_joints(tables, x, 0, x.shape[1], of_member)
        deviation += np.sqrt(np.maximum(of_member, 0.0))
    spread = deviation**2 + 1.0 / (np.asarray(class_counts, np.float64) + 1.0)
    p = np.clip(probabilities, 1e-300, 1 - 1e-16)
    others = p**2 * spread
    variance = spread + (others.sum(axis=1, keepdims=True) - others) / (1 - p) ** 2
    reach = NormalDist().inv_cdf(0.5 + level / 2) * np.sqrt(variance)
    log_odds = np.log(p) - np.log1p(-p)
    # Log odds beyond 700 are probabilities that no float64 tells from 0 or 1.
    low, high = (1 / (1 + np.exp(-np.clip(log_odds + side * reach, -700, 700))) for side in (-1, 1))
    return low, high
