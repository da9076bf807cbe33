"""Two-sample tests of counts: bias-corrected G statistics, exact tests of rates, and false discovery rates.

The reference is a sample too, so tests account for the noise of both sides.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from learners.kernels.arrays import Floats, Integers
from learners.monitoring.kernels import g_test_statistic


class Comparison(NamedTuple):
    """Result of a test."""

    p_value: float  # 1 where there is nothing to compare
    nats: float  # Kullback-Leibler divergence of the window from the reference, less what chance alone gives
    g: float
    degrees: int  # of freedom
    n_rows: int  # of the window that could be compared


NOTHING = Comparison(1.0, 0.0, 0.0, 0, 0)


class Repeats(NamedTuple):
    """Repetition among the rows of a window, which tests discount."""

    # How many times the window's counts vary more than those of independent rows, without its bursts.
    inflation: float = 1.0
    # Copies of each row that came very often. A test is of what is left when each burst is taken away where it hurts
    # the test most: nobody knows which values the row had, and one row sent 200 times is an alarm about no column.
    bursts: tuple[int, ...] = ()


INDEPENDENT = Repeats()


def g_test_tables(window: Integers, reference: Integers, repeats: Repeats = INDEPENDENT) -> Comparison:
    """Compare P(value | context) of two tables [context, value] by a G-test, conditional on the context.

    Values with an expected count below five in either sample are merged within their context; a context with
    fewer than two cells left is omitted.

    `window`, `reference`, (n_contexts, n_values) int64.
    Returns Comparison: its `nats` is the sum over contexts of (share of rows) times ((G - degrees) / 2 / effective
    rows).

    References
    ----------
    Sokal and Rohlf (1981), Biometry, section 17.2 (G-test and Williams' correction).
    """
    own, other = _whole(window), _whole(reference)
    if repeats.bursts:
        own = _whole(counts_without_bursts(own, other, repeats.bursts))
    g, degrees, nats, n_rows = g_test_statistic(own, other, repeats.inflation)
    if not degrees:
        return NOTHING
    return Comparison(float(scipy.special.chdtrc(degrees, g)), max(0.0, nats), g, degrees, n_rows)


def counts_without_bursts(window: Integers, reference: Integers, bursts: Sequence[int]) -> Integers:
    """Subtract each burst of equal rows from the cell in which it raises G most, down to the reference's share."""
    left, n_other = window.astype(np.float64), reference.sum(axis=1, keepdims=True)
    for burst in bursts:
        n = left.sum(axis=1, keepdims=True)
        with np.errstate(divide="ignore", invalid="ignore"):
            rate = np.maximum(reference / n_other, 0.5 / n)
            most = np.ceil((left - n * rate) / (1 - rate))
            n_copies = np.minimum(np.minimum(burst, left), most)
            gain = _half_g(left, n, rate) - _half_g(left - n_copies, n - n_copies, rate)
            gain[~((n > 0) & (n_other > 0) & (rate < 1) & (left > n * rate) & (gain > 0))] = 0.0
        if not gain.any():
            break
        best = np.unravel_index(gain.argmax(), gain.shape)
        left[best] -= n_copies[best]
    return left.astype(np.int64)


def _half_g(own: Floats, n: Floats, rate: Floats) -> Floats:
    """Return half of G of each cell against the other n - own rows, with this expected share."""
    rest = n - own
    of_own = np.where(own > 0, own * np.log(own / (n * rate)), 0.0)
    return of_own + np.where(rest > 0, rest * np.log(rest / (n * (1 - rate))), 0.0)


def _whole(table: Integers) -> Integers:
    """Return a contiguous, read-only table, so that the kernel is compiled only once."""
    own: Integers = np.ascontiguousarray(table, np.int64).view()
    own.setflags(write=False)
    return own


def g_test_counts(window: Integers, reference: Integers, repeats: Repeats = INDEPENDENT) -> Comparison:
    """Apply `g_test_tables` to two vectors of counts."""
    return g_test_tables(window[np.newaxis], reference[np.newaxis], repeats)


def count_divergence_nats(window: Integers, reference: Integers) -> float:
    """Compute only the `nats` of `g_test_counts`, which avoids loading a slow library for the probability."""
    return max(0.0, float(g_test_statistic(_whole(window[np.newaxis]), _whole(reference[np.newaxis]), 1.0)[2]))


def g_test_rates(own: float, n_own: float, other: float, n_other: float, repeats: Repeats = INDEPENDENT) -> Comparison:
    """Compare two rates by a G-test; `nats` is the difference of the rates, in percentage points.

    There is no minimum count, so rare events are compared too. Counts may be fractional, such as sums of
    probabilities.
    """
    if n_own <= 0 or n_other <= 0:
        return NOTHING
    if repeats.bursts:
        own, n_own = _rate_without_bursts(own, n_own, other / n_other, sum(repeats.bursts))
        if n_own <= 0:  # all rows were copies
            return NOTHING
    total, whole = own + other, n_own + n_other
    terms = (
        _x_log_ratio(own, n_own * total / whole),
        _x_log_ratio(n_own - own, n_own * (whole - total) / whole),
        _x_log_ratio(other, n_other * total / whole),
        _x_log_ratio(n_other - other, n_other * (whole - total) / whole),
    )
    g = max(0.0, 2 * math.fsum(terms) / repeats.inflation)
    points = 100 * (own / n_own - other / n_other)
    return Comparison(math.erfc(math.sqrt(g / 2)), points, g, 1, int(n_own))  # of chi-square with one degree of freedom


def _rate_without_bursts(own: float, n_own: float, rate: float, n_copies: int) -> tuple[float, float]:
    """Return the rate's counts after removing copies that increase the difference, until none is left."""
    if own > rate * n_own:
        most = int((own - rate * n_own) / max(1 - rate, 1e-12))
        n = min(n_copies, most, own)
        return own - n, n_own - n
    most = int((rate * n_own - own) / max(rate, 1e-12))
    return own, n_own - min(n_copies, most, n_own - max(own, 1))


def _x_log_ratio(x: float, expected: float) -> float:
    return x * math.log(x / expected) if x > 0 else 0.0


def population_stability_index(window: Integers, reference: Integers) -> float:
    """Compute the population stability index of two vectors of counts; empty cells count as half a row."""
    p, q = _shares(window), _shares(reference)
    return float(((p - q) * np.log(p / q)).sum())


def jensen_shannon_distance(window: Integers, reference: Integers) -> float:
    """Compute the Jensen-Shannon distance of two vectors of counts, base 2, from 0 to 1."""
    if not window.sum() or not reference.sum():
        return 0.0
    p, q = window / window.sum(), reference / reference.sum()
    middle = (p + q) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        of_p = np.where(p > 0, p * np.log2(p / middle), 0.0).sum()
        of_q = np.where(q > 0, q * np.log2(q / middle), 0.0).sum()
    return float(np.sqrt(max(0.0, (of_p + of_q) / 2)))


def _shares(counts: Integers) -> Floats:
    filled = np.maximum(counts, 0.5)
    return filled / filled.sum()


def benjamini_hochberg_q_values(p_values: Sequence[float]) -> Floats:
    """Return the smallest false discovery rate at which each test would be a discovery.

    References
    ----------
    Benjamini and Hochberg (1995), section 3.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)
    raised = p[order] * p.size / np.arange(1, p.size + 1)
    q_values = np.empty(p.size)
    q_values[order] = np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0)
    return q_values
