"""Leave-one-out losses from the definition: for every row, count all the others."""

from math import log

import numpy as np

from tests.naive.estimates import m_estimate

WEIGHTS = [2.0**power for power in range(10, -4, -1)]


def estimate(rows, labels, attribute, value, label, parents, values_of_parents, n_values, weights):
    """From the given rows: of each level its frequencies, and the level above as so many rows as `weights` says.

    The root has neither class nor parents, and 1 / n_values as one row. Without weights an m-estimate with m = 1.
    """
    if weights is None:
        return m_estimate(rows, labels, attribute, value, label, parents, values_of_parents, n_values, 1)
    p = ((rows[attribute] == value).sum() + 1 / n_values) / (labels.size + 1)
    for depth in range(len(weights)):
        match = labels == label
        for parent, wanted in zip(parents[:depth], values_of_parents[:depth], strict=True):
            match &= rows[parent] == wanted
        p = ((rows[attribute][match] == value).sum() + weights[depth] * p) / (match.sum() + weights[depth])
    return p


def best_weights(x, y, attribute, parents, n_values):
    """Level by level the weight under which each row is most probable, given all the others."""
    weights = []
    for depth in range(len(parents) + 1):
        scores = []
        for weight in WEIGHTS:
            score = 0.0
            for row in range(y.size):
                others = np.arange(y.size) != row
                match = others & (y == y[row])
                for parent in parents[:depth]:
                    match &= x[parent] == x[parent, row]
                if match.any():
                    given = (parents[:depth], x[list(parents[:depth]), row], n_values, [*weights, weight])
                    score += log(estimate(x[:, others], y[others], attribute, x[attribute, row], y[row], *given))
            scores.append(score)
        weights.append(WEIGHTS[int(np.argmax(scores))])
    return weights


def prefix_losses(x, y, sizes, n_classes, structure, zero_one=False, mixes=True):
    """(k + 1, n + 1) sums of the losses."""
    k = max(len(parents) for parents in structure.parents)
    losses = np.zeros((k + 1, len(structure.order) + 1))
    families = list(zip(structure.order, structure.parents, strict=True))
    weights = {a: best_weights(x, y, a, parents, sizes[a]) for a, parents in families if mixes}
    for row in range(y.size):
        others = np.arange(y.size) != row
        rest_x, rest_y = x[:, others], y[others]
        for level in range(k + 1):
            joint = np.array([((rest_y == c).sum() + 1 / n_classes) / (rest_y.size + 1) for c in range(n_classes)])
            for prefix in range(len(structure.order) + 1):
                if prefix:
                    a, parents = families[prefix - 1][0], families[prefix - 1][1][:level]
                    own = weights[a][: len(parents) + 1] if mixes else None
                    given = (parents, x[list(parents), row], sizes[a], own)
                    for c in range(n_classes):
                        joint[c] *= estimate(rest_x, rest_y, a, x[a, row], c, *given)
                p = joint / joint.sum()
                losses[level, prefix] += float(p.argmax() != y[row]) if zero_one else (1 - p[y[row]]) ** 2
    return losses
