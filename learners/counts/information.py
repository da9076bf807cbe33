"""Mutual information from counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from learners.arrays import Floats
from learners.counts.information_kernels import sums_of_x_log_x
from learners.counts.pairwise import PairwiseCounts
from learners.errors import EmptyStatistic


def _x_log_x(counts: ArrayLike) -> Floats:
    counts = np.asarray(counts, np.float64)
    return counts * np.log(np.maximum(counts, 1.0))


def mutual_information(pairs: PairwiseCounts, width_cost: float = 0.0) -> Floats:
    """Mutual information I(X_i; Y) of every attribute with the class, in nats, less the cost of its width.

    Parameters
    ----------
    pairs : PairwiseCounts over n attributes
    width_cost : float
        How many times df / 2N is taken off, where df = (values of X_i seen - 1)(classes seen - 1).

    Returns
    -------
    (n,) float64, never negative where the width costs nothing

    Raises
    ------
    EmptyStatistic
        If `pairs` has counted no rows.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 2.2; Schwarz (1978), Estimating the dimension of a model: the cost log N.
    """
    n = _n_rows(pairs)
    of_class = _x_log_x(pairs.class_counts).sum()
    values = [
        _x_log_x(margin).sum() - _x_log_x(margin.sum(axis=1)).sum() - of_class + _x_log_x(n) for margin in pairs.margins
    ]
    n_classes = np.count_nonzero(pairs.class_counts)
    freedom = np.array([(np.count_nonzero(margin.any(axis=1)) - 1.0) * (n_classes - 1) for margin in pairs.margins])
    return np.maximum(np.array(values) / n, 0.0) - width_cost * freedom / (2 * n)


def conditional_mutual_information(pairs: PairwiseCounts, width_cost: float = 0.0) -> Floats:
    """Conditional mutual information I(X_i; X_j | Y) of every pair of attributes, in nats, less the cost of their widths.

    Parameters
    ----------
    pairs : PairwiseCounts over n attributes
    width_cost : float
        How many times df / 2N is taken off, where df is the sum over the classes of (values of X_i seen there - 1) times
        (values of X_j seen there - 1): two independent attributes of many values would show about df / 2N by chance.

    Returns
    -------
    (n, n) float64, symmetric, zero on the diagonal, never negative where the width costs nothing

    Raises
    ------
    EmptyStatistic
        If `pairs` has counted no rows.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 2.2; Miller (1955), Note on the bias of information estimates.
    """
    n_rows, n = _n_rows(pairs), len(pairs.margins)
    information = np.zeros((n, n))
    i, j = np.triu_indices(n, 1)
    sums = np.empty(i.size)
    sums_of_x_log_x(pairs.counts, pairs.table_starts, sums)
    of_class = _x_log_x(pairs.class_counts).sum()
    of_margin = np.array([_x_log_x(margin).sum() for margin in pairs.margins])
    information[i, j] = np.maximum((sums - of_margin[i] - of_margin[j] + of_class) / n_rows, 0.0)
    if width_cost:
        seen = np.array([np.maximum(np.count_nonzero(margin, axis=0) - 1.0, 0.0) for margin in pairs.margins])
        freedom = seen @ seen.T if n else information
        information[i, j] -= width_cost * freedom[i, j] / (2 * n_rows)
    return information + information.T


def _n_rows(pairs: PairwiseCounts) -> int:
    if not pairs.n_rows:
        raise EmptyStatistic("There are no counted rows to compute information from.")
    return pairs.n_rows
