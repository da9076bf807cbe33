"""What is true of rows that a known network draws."""

import numpy as np


def posterior(network, x):
    """P(y | x) of each row of x (n_attributes, n_rows): (n_rows, n_classes)."""
    log_joint = np.tile(np.log(network.prior), (x.shape[1], 1))
    for i, (parents, table) in enumerate(zip(network.parents, network.tables, strict=True)):
        for label in range(network.prior.size):
            log_joint[:, label] += np.log(table[(label, *(x[parent] for parent in parents), x[i])])
    joint = np.exp(log_joint - log_joint.max(axis=1, keepdims=True))
    return joint / joint.sum(axis=1, keepdims=True)
