"""Counts, row by row."""

from collections import Counter

import numpy as np


def pair_counts(x_i, x_j, y, v_i, v_j, n_classes):
    """(v_i, v_j, n_classes): rows with each pair of values, by class."""
    counts = np.zeros((v_i, v_j, n_classes), int)
    for a, b, k in zip(x_i.tolist(), x_j.tolist(), y.tolist(), strict=True):
        counts[a, b, k] += 1
    return counts


def family_counts(x, y, attribute, parents):
    """How often each (class, values of the parents, value) occurred."""
    return Counter(
        (int(y[row]), tuple(int(x[parent, row]) for parent in parents), int(x[attribute, row])) for row in range(y.size)
    )
