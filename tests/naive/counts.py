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


def numbers_by_class(x, y):
    """(number, class) -> rows, without NaN; the two zeros are one."""
    return Counter((number + 0.0, int(k)) for number, k in zip(x, y, strict=True) if number == number)


def values(rows):
    """value -> rows, and how many rows have none."""
    counts = Counter(value for value in rows if value is not None)
    return counts, len(rows) - counts.total()
