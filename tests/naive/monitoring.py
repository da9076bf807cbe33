"""Counts of served rows and tests of them, written from their definitions."""

import math

import numpy as np


def statuses(records, attributes):
    """For each attribute how many values are absent, null, unseen, below and above the range of training."""
    found = []
    for attribute in attributes:
        absent = null = unseen = below = above = 0
        for record in records:
            if attribute.name not in record:
                absent += 1
                continue
            value = record[attribute.name]
            if value is None or (isinstance(value, float) and math.isnan(value)):
                null += not attribute.has_missing
            elif attribute.kind == "nominal":
                unseen += value not in attribute.values and not attribute.n_folded
            else:
                below += value < attribute.quantiles[0]
                above += value > attribute.quantiles[-1]
        found.append((absent, null, unseen, below, above))
    return found


def g_statistic(window, reference):
    """G of a two-sample table, cell by cell."""
    g, both = 0.0, window.sum() + reference.sum()
    for own, other in zip(window, reference, strict=True):
        for count, n in ((own, window.sum()), (other, reference.sum())):
            if count:
                g += 2 * count * math.log(count * both / (n * (own + other)))
    return g


def g_of_tables(window, reference, inflation=1.0):
    """G with Williams' correction, degrees, nats and rows of P(value | context), by arrays of whole tables."""
    n_own, n_other = window.sum(axis=1), reference.sum(axis=1)
    usable = (n_own > 0) & (n_other > 0)
    if not usable.any():
        return 0.0, 0, 0.0, 0
    own, other = window[usable].astype(np.float64), reference[usable].astype(np.float64)
    own, other = _pooled(own, other, 5.0 * inflation)
    n_own, n_other = own.sum(axis=1), other.sum(axis=1)
    is_cell = own + other > 0
    degrees = np.maximum(is_cell.sum(axis=1) - 1, 0)
    usable = (degrees > 0) & (n_own > 0) & (n_other > 0)
    if not usable.any():
        return 0.0, 0, 0.0, 0
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
    return whole, df, nats, int(n_rows)


def _pooled(own, other, least):
    """Cells with a small expected count in either sample as one; none of it where even together they are too few."""
    total = own + other
    n_own, n_other = own.sum(axis=1, keepdims=True), other.sum(axis=1, keepdims=True)
    share = np.minimum(n_own, n_other) / (n_own + n_other)
    is_kept = total * share >= least
    rest_own, rest_other = np.where(is_kept, 0, own).sum(axis=1), np.where(is_kept, 0, other).sum(axis=1)
    is_enough = (rest_own + rest_other) * share[:, 0] >= least
    return (
        np.column_stack([np.where(is_kept, own, 0), np.where(is_enough, rest_own, 0)]),
        np.column_stack([np.where(is_kept, other, 0), np.where(is_enough, rest_other, 0)]),
    )


def _x_log_ratio(x, expected):
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(x > 0, x * np.log(x / expected), 0.0).sum(axis=1)


def without_bursts(window, reference, bursts):
    """The window's table less each burst, from the cell in which the deviance of its context falls most, cell by cell."""

    def deviance(own, n, rate):
        parts = ((own, rate), (n - own, 1 - rate))
        return sum(count * math.log(count / (n * share)) for count, share in parts if count)

    left = window.astype(np.int64).copy()
    for burst in bursts:
        best, cell, taken = 0.0, None, 0
        for (context, value), own in np.ndenumerate(left):
            n, whole = left[context].sum(), reference[context].sum()
            if not n or not whole:
                continue
            rate = max(reference[context, value] / whole, 0.5 / n)
            if rate < 1 and own > n * rate:
                k = min(burst, own, math.ceil((own - n * rate) / (1 - rate)))
                gain = deviance(own, n, rate) - deviance(own - k, n - k, rate)
                if gain > best:
                    best, cell, taken = gain, (context, value), k
        if cell is None:
            break
        left[cell] -= taken
    return left
