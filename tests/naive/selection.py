"""Leave-one-out losses from the definition: for every row, count all the others."""

import numpy as np


def estimate(rows, labels, attribute, value, label, parents, values_of_parents, n_values):
    """m-estimate with m = 1 from the given rows; without any in the context the last parent is dropped, then the class."""
    for depth in range(len(parents), -1, -1):
        match = labels == label
        for parent, wanted in zip(parents[:depth], values_of_parents[:depth], strict=True):
            match &= rows[parent] == wanted
        if match.any():
            return ((rows[attribute][match] == value).sum() + 1 / n_values) / (match.sum() + 1)
    return ((rows[attribute] == value).sum() + 1 / n_values) / (labels.size + 1)


def prefix_losses(x, y, sizes, n_classes, structure, zero_one=False):
    """(k + 1, n + 1) sums of the losses."""
    k = max(len(parents) for parents in structure.parents)
    losses = np.zeros((k + 1, len(structure.order) + 1))
    for row in range(y.size):
        others = np.arange(y.size) != row
        rest_x, rest_y = x[:, others], y[others]
        for level in range(k + 1):
            joint = np.array([((rest_y == c).sum() + 1 / n_classes) / (rest_y.size + 1) for c in range(n_classes)])
            for prefix in range(len(structure.order) + 1):
                if prefix:
                    a, parents = structure.order[prefix - 1], structure.parents[prefix - 1][:level]
                    for c in range(n_classes):
                        joint[c] *= estimate(rest_x, rest_y, a, x[a, row], c, parents, x[list(parents), row], sizes[a])
                p = joint / joint.sum()
                losses[level, prefix] += float(p.argmax() != y[row]) if zero_one else (1 - p[y[row]]) ** 2
    return losses
