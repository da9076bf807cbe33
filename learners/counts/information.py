"""Mutual information from counts."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from learners.counts.cell_kernels import cell_x_log_x_sums
from learners.counts.pairwise import PairCounts, PairwiseCounts
from learners.errors import EmptyStatistic
from learners.kernels.arrays import Floats


def x_log_x(counts: ArrayLike) -> Floats:
    """Return x log x of each count, 0 for zero."""
    counts = np.asarray(counts, np.float64)
    return counts * np.log(np.maximum(counts, 1.0))


class _Margins(NamedTuple):
    """Sums over the margins of n attributes."""

    of_cells: Floats  # (n,) sum of x log x over values and classes
    of_values: Floats  # (n,) the same over values
    n_seen: Floats  # (n,) values that occur
    n_seen_in_class: Floats  # (n, n_classes)


def _margins(pairs: PairCounts) -> _Margins:
    """Compute sums over each attribute's counts by class."""
    if isinstance(pairs, PairwiseCounts):
        margins = pairs.margins
        return _Margins(
            np.array([x_log_x(margin).sum() for margin in margins]),
            np.array([x_log_x(margin.sum(axis=1)).sum() for margin in margins]),
            np.array([np.count_nonzero(margin.any(axis=1)) for margin in margins], np.float64),
            np.array([np.count_nonzero(margin, axis=0) for margin in margins], np.float64),
        )
    of_cells, of_values, n_seen, n_seen_in_class = [], [], [], []
    for i in range(pairs.schema.n_attributes):
        x, y, counts = pairs.margin(i)
        of_value = np.bincount(x, counts, int(pairs.schema.domain_sizes[i]))
        of_cells.append(x_log_x(counts).sum())
        of_values.append(x_log_x(of_value).sum())
        n_seen.append(np.count_nonzero(of_value))
        n_seen_in_class.append(np.bincount(y, minlength=pairs.schema.n_classes))
    return _Margins(*(np.array(part, np.float64) for part in (of_cells, of_values, n_seen, n_seen_in_class)))


def _of_pairs(pairs: PairCounts, n_pairs: int) -> Floats:
    """Return the sum of x log x over each pair's cells, (n_pairs,) float64."""
    if isinstance(pairs, PairwiseCounts):
        sums = np.empty(n_pairs)
        cell_x_log_x_sums(pairs.counts, pairs.table_starts, sums)
        return sums
    return np.array([sum(float(x_log_x(counts).sum()) for counts in blocks) for blocks in pairs.counts_of_pairs()])


def mutual_information(pairs: PairCounts, width_cost: float = 0.0) -> Floats:
    """Mutual information I(X_i; Y) of every attribute with the class, in nats, minus a width penalty.

    `width_cost`: factor of the penalty df / 2N, where df = (values of X_i seen - 1)(classes seen - 1). Returns
    (n,) float64, never negative without a penalty. Raises EmptyStatistic if `pairs` has counted no rows.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 2.2; Schwarz (1978), Estimating the dimension of a model: the cost log N.
    """
    n = _n_rows(pairs)
    of_class = x_log_x(pairs.class_counts).sum()
    margins = _margins(pairs)
    values = margins.of_cells - margins.of_values - of_class + x_log_x(n)
    freedom = (margins.n_seen - 1.0) * (np.count_nonzero(pairs.class_counts) - 1)
    return np.maximum(values / n, 0.0) - width_cost * freedom / (2 * n)


def conditional_mutual_information(pairs: PairCounts, width_cost: float = 0.0) -> Floats:
    """Conditional mutual information I(X_i; X_j | Y) of every pair of attributes, in nats, minus a width penalty.

    `width_cost`: factor of the penalty df / 2N, where df is the sum over the classes of (a - 1)(b - 1) for a
    values of X_i and b of X_j seen there: two independent attributes of many values would show about df / 2N by
    chance. Returns (n, n) float64, symmetric, zero on the diagonal, never negative without a penalty. Raises
    EmptyStatistic if `pairs` has counted no rows.

    References
    ----------
    Petitjean, Buntine, Webb, Zaidi (2018), section 2.2; Miller (1955), Note on the bias of information estimates.
    """
    n_rows, n = _n_rows(pairs), pairs.schema.n_attributes
    information = np.zeros((n, n))
    sums, margins = _of_pairs(pairs, n * (n - 1) // 2), _margins(pairs)
    of_class = x_log_x(pairs.class_counts).sum()
    of_cells = margins.of_cells
    seen = np.maximum(margins.n_seen_in_class - 1.0, 0.0)
    freedom = seen @ seen.T if width_cost and n else information
    first = 0
    for i in range(n):  # row by row: indices of millions of pairs would take longer than all else
        own, last = information[i, i + 1 :], first + n - 1 - i
        own[:] = np.maximum((sums[first:last] - of_cells[i] - of_cells[i + 1 :] + of_class) / n_rows, 0.0)
        if width_cost:
            own -= width_cost * freedom[i, i + 1 :] / (2 * n_rows)
        first = last
    return information + information.T


def _n_rows(pairs: PairCounts) -> int:
    if not pairs.n_rows:
        raise EmptyStatistic("No rows were counted, so information cannot be computed.")
    return pairs.n_rows
