"""Two-sample tests of counts: G statistics with their bias taken off, exact rates, and false discoveries.

The reference is a sample too: both sides of a test have their noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import chi2

from learners.arrays import Floats, Integers

MIN_EXPECTED = 5.0


class Comparison(NamedTuple):
    """What a test found.

    Attributes
    ----------
    p_value : float
        1 where there is nothing to compare.
    nats : float
        Kullback-Leibler divergence of the window from the reference, less what chance alone gives.
    g : float
    degrees : int
        Of freedom.
    n_rows : int
        Of the window that could be compared.
    """

    p_value: float
    nats: float
    g: float
    degrees: int
    n_rows: int


NOTHING = Comparison(1.0, 0.0, 0.0, 0, 0)


def compare_tables(window: Integers, reference: Integers, inflation: float = 1.0) -> Comparison:
    """G-test of two tables [context, value], each context on its own: of P(value | context), whatever the contexts do.

    Values that are too rare for an expected count of five in both samples share one cell in their context; a context in
    which fewer than two cells remain is left out.

    Parameters
    ----------
    window, reference : (n_contexts, n_values) int64
    inflation : float
        How many times the window's counts vary more than those of independent rows.

    Returns
    -------
    Comparison
        Its `nats` is the sum over contexts of (share of rows) times ((G - degrees) / 2 / effective rows).

    References
    ----------
    Sokal and Rohlf (1981), Biometry, section 17.2 (G-test and Williams' correction).
    """
    n_own, n_other = window.sum(axis=1), reference.sum(axis=1)
    usable = (n_own > 0) & (n_other > 0)
    if not usable.any():
        return NOTHING
    own, other = window[usable].astype(np.float64), reference[usable].astype(np.float64)
    own, other = _pooled(own, other)
    n_own, n_other = own.sum(axis=1), other.sum(axis=1)
    is_cell = own + other > 0
    degrees = np.maximum(is_cell.sum(axis=1) - 1, 0)
    usable = (degrees > 0) & (n_own > 0) & (n_other > 0)
    if not usable.any():
        return NOTHING
    own, other, n_own, n_other = own[usable], other[usable], n_own[usable], n_other[usable]
    degrees, is_cell = degrees[usable], is_cell[usable]
    total, both = own + other, n_own + n_other
    g = 2 * (
        _x_log_ratio(own, total * (n_own / both)[:, None]) + _x_log_ratio(other, total * (n_other / both)[:, None])
    )
    with np.errstate(divide="ignore"):
        spread = np.where(is_cell, both[:, None] / total, 0.0).sum(axis=1) - 1
    correction = 1 + spread * (both / n_own + both / n_other - 1) / (6 * both * degrees)
    corrected = g / correction / inflation
    effective = n_own * n_other / both
    n_rows = float(n_own.sum())
    nats = float(((corrected - degrees) * n_own / n_rows / (2 * effective / inflation)).sum())
    whole, df = float(corrected.sum()), int(degrees.sum())
    return Comparison(float(chi2.sf(whole, df)), max(0.0, nats), whole, df, int(n_rows))


def compare_counts(window: Integers, reference: Integers, inflation: float = 1.0) -> Comparison:
    """As `compare_tables`, of two vectors of counts."""
    return compare_tables(window[np.newaxis], reference[np.newaxis], inflation)


def _pooled(own: Floats, other: Floats) -> tuple[Floats, Floats]:
    """Cells with a small expected count in either sample as one; none of it where even together they are too few."""
    total = own + other
    n_own, n_other = own.sum(axis=1, keepdims=True), other.sum(axis=1, keepdims=True)
    share = np.minimum(n_own, n_other) / (n_own + n_other)
    is_kept = total * share >= MIN_EXPECTED
    rest_own, rest_other = np.where(is_kept, 0, own).sum(axis=1), np.where(is_kept, 0, other).sum(axis=1)
    is_enough = (rest_own + rest_other) * share[:, 0] >= MIN_EXPECTED
    return (
        np.column_stack([np.where(is_kept, own, 0), np.where(is_enough, rest_own, 0)]),
        np.column_stack([np.where(is_kept, other, 0), np.where(is_enough, rest_other, 0)]),
    )


def _x_log_ratio(x: Floats, expected: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(x > 0, x * np.log(x / expected), 0.0)
    found: Floats = terms.sum(axis=1)
    return found


def compare_rates(own: int, n_own: int, other: int, n_other: int, inflation: float = 1.0) -> Comparison:
    """G-test of a rate; `nats` is here the difference of the rates, in points of one hundred.

    Rare events are compared too: there is no least count.
    """
    if n_own <= 0 or n_other <= 0:
        return NOTHING
    table = np.array([[own, n_own - own], [other, n_other - other]], np.float64)
    margins = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    g = float(2 * _x_log_ratio(table, margins).sum()) / inflation
    points = 100 * (own / n_own - other / n_other)
    return Comparison(float(chi2.sf(g, 1)), points, g, 1, n_own)


def population_stability(window: Integers, reference: Integers) -> float:
    """PSI: the symmetrised divergence of two vectors of counts, empty cells counted as half a row."""
    p, q = _shares(window), _shares(reference)
    return float(((p - q) * np.log(p / q)).sum())


def jensen_shannon(window: Integers, reference: Integers) -> float:
    """The Jensen-Shannon distance of two vectors of counts, base 2, from 0 to 1."""
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
    found: Floats = filled / filled.sum()
    return found


def q_values(p_values: Sequence[float]) -> Floats:
    """The least rate of false discoveries at which each test would be one.

    References
    ----------
    Benjamini and Hochberg (1995), section 3.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p)
    raised = p[order] * p.size / np.arange(1, p.size + 1)
    found = np.empty(p.size)
    found[order] = np.minimum(np.minimum.accumulate(raised[::-1])[::-1], 1.0)
    return found
