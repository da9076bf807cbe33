"""m-estimates with back-off and the predictions that follow, by counting raw rows for every question."""

import numpy as np


def m_estimate(x, y, attribute, value, label, parents, parent_values, n_values, m):
    """P(value | class, parents) from the rows; while the context has none its last part is dropped, the class last."""
    for depth in range(len(parents), -1, -1):
        match = y == label
        for parent, wanted in zip(parents[:depth], parent_values[:depth], strict=True):
            match = match & (x[parent] == wanted)
        if match.any():
            break
    else:
        match = np.ones(y.size, bool)
    return ((x[attribute][match] == value).sum() + m / n_values) / (match.sum() + m)


def node_paths(tree):
    """The path (class, parents …) of every node of a context tree."""
    paths = [()]
    for node in range(1, tree.n_nodes):
        paths.append((*paths[tree.parent[node]], int(tree.branch[node])))
    return paths


def probabilities(row, x, y, sizes, n_classes, order, parents, m):
    """P(class | row) as a normalised product.

    An attribute with a value outside its domain counts for no class; as a parent it has no rows, so that it and the
    parents after it are dropped.
    """
    joint = [((y == label).sum() + 1 / n_classes) / (y.size + 1) for label in range(n_classes)]
    prior = list(joint)
    for attribute, of_attribute in zip(order, parents, strict=True):
        if row[attribute] >= sizes[attribute]:
            continue
        for label in range(n_classes):
            context = (label, of_attribute, [row[parent] for parent in of_attribute])
            joint[label] *= m_estimate(x, y, attribute, row[attribute], *context, sizes[attribute], m)
    if sum(joint) == 0:  # a row that no class can produce gets the prior
        joint = prior
    return np.array(joint) / sum(joint)


def rmse_on(hold_out_x, hold_out_y, x, y, sizes, n_classes, order, parents, m):
    """sqrt(mean (1 - p(true class))^2) of rows, learned from other rows."""
    errors = [
        1 - probabilities(hold_out_x[:, row], x, y, sizes, n_classes, order, parents, m)[hold_out_y[row]]
        for row in range(hold_out_y.size)
    ]
    return float(np.sqrt(np.mean(np.square(errors))))
