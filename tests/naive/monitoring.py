"""Counts of served rows and tests of them, written from their definitions."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np


def families(x, parents):
    """For each attribute a Counter of (codes of the parents, code)."""
    return [
        Counter((tuple(int(x[p, row]) for p in own), int(x[i, row])) for row in range(x.shape[1]))
        for i, own in enumerate(parents)
    ]


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


def q_values(p_values):
    """For each test the least rate at which Benjamini and Hochberg reject it."""
    n = len(p_values)
    ranked = sorted(range(n), key=lambda i: p_values[i])
    return np.array(
        [
            min(1.0, min(p_values[j] * n / (k + 1) for k, j in enumerate(ranked) if k >= ranked.index(i)))
            for i in range(n)
        ]
    )
