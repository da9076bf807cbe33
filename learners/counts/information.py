"""Mutual information from counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learners.arrays import Floats
from learners.counts.pairwise import PairwiseCounts
from learners.errors import EmptyStatistic


def _x_log_x(counts: ArrayLike) -> Floats:
    counts = np.asarray(counts, np.float64)
    return counts * np.log(np.maximum(counts, 1.0))


def mutual_information(pairs: PairwiseCounts) -> Floats:
    """Mutual information I(X_i; Y) of every attribute with the class, in nats.

    Parameters
    ----------
    pairs : PairwiseCounts over n attributes

    Returns
    -------
    (n,) float64, never negative

    Raises
    ------
    EmptyStatistic
        If `pairs` has counted no rows.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 2.2.
    """
    n = _n_rows(pairs)
    of_class = _x_log_x(pairs.class_counts).sum()
    values = [
        _x_log_x(margin).sum() - _x_log_x(margin.sum(axis=1)).sum() - of_class + _x_log_x(n) for margin in pairs.margins
    ]
    return np.maximum(np.array(values) / n, 0.0)


def conditional_mutual_information(pairs: PairwiseCounts) -> Floats:
    """Conditional mutual information I(X_i; X_j | Y) of every pair of attributes, in nats.

    Parameters
    ----------
    pairs : PairwiseCounts over n attributes

    Returns
    -------
    (n, n) float64, symmetric, zero on the diagonal, never negative

    Raises
    ------
    EmptyStatistic
        If `pairs` has counted no rows.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 2.2.
    """
    n_rows, n = _n_rows(pairs), len(pairs.margins)
    information = np.zeros((n, n))
    of_class = _x_log_x(pairs.class_counts).sum()
    of_margin = [_x_log_x(margin).sum() for margin in pairs.margins]
    for i in range(n):
        for j in range(i + 1, n):
            value = _x_log_x(pairs.table(i, j)).sum() - of_margin[i] - of_margin[j] + of_class
            information[i, j] = information[j, i] = max(value / n_rows, 0.0)
    return information


def _n_rows(pairs: PairwiseCounts) -> int:
    if not pairs.n_rows:
        raise EmptyStatistic("There are no counted rows to compute information from.")
    return pairs.n_rows
