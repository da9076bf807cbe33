"""Single-threaded kernels for attribute selection and weight fitting."""

from __future__ import annotations

import numpy as np

from learners.kernels.jit import kernel


@kernel
def add_attribute_prefix_losses(log_p, depths, log_prior, y, row_weights, first, last, losses):
    """Add the squared losses of the true class for every maximum number of parents and every prefix of the attributes.

    log_p (n, m, k + 1, C) float32, depths (m,) int64 parents that each attribute has, log_prior (n, C) float64, y (n,),
    row_weights (n,) float64; rows first..last-1. OUT losses (k + 1, m + 1) float64.
    """
    joint = np.empty(log_prior.shape[1])
    for row in range(first, last):
        label = y[row]
        for k in range(losses.shape[0]):
            for c in range(joint.size):
                joint[c] = log_prior[row, c]
            for prefix in range(losses.shape[1]):
                if prefix > 0:
                    depth = min(k, depths[prefix - 1])
                    for c in range(joint.size):
                        joint[c] += log_p[row, prefix - 1, depth, c]
                total = 0.0
                for c in range(joint.size):
                    total += np.exp(min(joint[c] - joint[label], 700.0))
                losses[k, prefix] += row_weights[row] * (1.0 - 1.0 / total) ** 2


@kernel
def add_term_weight_gradient(terms, start, y, row_weights, weights, first, last, gradient):
    """Add the gradient of the log loss of rows first..last-1 with respect to the weights.

    terms (n, f, C) float32, start (n, C) float64, y (n,), row_weights (n,), weights (f,); IN/OUT gradient (f,)
    float64. Returns the sum of the losses.
    """
    n_classes = start.shape[1]
    joint = np.empty(n_classes)
    loss = 0.0
    for row in range(first, last):
        own = terms[row]
        for c in range(n_classes):
            joint[c] = start[row, c]
        for f in range(weights.size):
            for c in range(n_classes):
                joint[c] += weights[f] * own[f, c]
        largest = joint[0]
        for c in range(1, n_classes):
            largest = max(largest, joint[c])
        total = 0.0
        for c in range(n_classes):
            joint[c] = np.exp(joint[c] - largest)
            total += joint[c]
        loss -= row_weights[row] * np.log(max(joint[y[row]] / total, 1e-300))
        for c in range(n_classes):
            joint[c] /= total
        joint[y[row]] -= 1.0
        for f in range(weights.size):
            change = 0.0
            for c in range(n_classes):
                change += joint[c] * own[f, c]
            gradient[f] += row_weights[row] * change
    return loss
